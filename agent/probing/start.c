#include "agent/probing/start.h"

#include "agent/probing/other_copies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum proto_origin start_origin(void)
{
    const char *asked = getenv("PROBING"); /* the .pth file imports it where it is 1 */
    return asked && strcmp(asked, "1") == 0 ? ORIGIN_STARTUP : ORIGIN_IMPORTED;
}

int start_agent(enum proto_origin origin)
{
    struct agent_boot boot = {.origin = origin};

    /* Where Yama lets only ancestors attach, a daemon of the same user could not
     * take the channel. */
    if (origin != ORIGIN_REMOTE_EXEC)
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    return other_copies_run() ? 0 : probe_agent_start(&boot);
}

PyObject *start_function(PyObject *self, PyObject *unused)
{
    int r = start_agent(start_origin());

    if (r < 0) {
        errno = -r;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_IncRef(Py_None);
    return Py_None;
}
