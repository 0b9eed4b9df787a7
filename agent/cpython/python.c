#include "agent/cpython/python.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>

struct python python;

static void *look_up(const char *name) { return dlsym(RTLD_DEFAULT, name); }

static void find_runtime(void)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    void *runtime = look_up("_PyRuntime");

    if (runtime && dladdr1(runtime, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol &&
        info.dli_saddr == runtime) {
        python.runtime = runtime;
        python.runtime_size = symbol->st_size;
    }
}

int python_bind(void)
{
    unsigned major = 0, minor = 0;

    if (sscanf(Py_GetVersion(), "%u.%u", &major, &minor) != 2 || major != 3 || minor < 10)
        return -EOPNOTSUPP;
    python.version = major << 8 | minor;
    python.interpreter_main = look_up("PyInterpreterState_Main");
    python.interpreter_head = look_up("PyInterpreterState_Head");
    python.interpreter_next = look_up("PyInterpreterState_Next");
    python.interpreter_find = look_up("_PyInterpreterState_LookUpID");
    python.state_delete_current = look_up("PyThreadState_DeleteCurrent");
    python.thread_first = look_up("PyInterpreterState_ThreadHead");
    python.thread_next = look_up("PyThreadState_Next");
    python.finalizing = look_up("Py_IsFinalizing");
    if (!python.finalizing)
        python.finalizing = look_up("_Py_IsFinalizing");
    python.enter_tracing = look_up("PyThreadState_EnterTracing");
    python.leave_tracing = look_up("PyThreadState_LeaveTracing");
    if (!python.enter_tracing || !python.leave_tracing)
        python.enter_tracing = python.leave_tracing = NULL;
    python.context_new = look_up("PyContextVar_New");
    python.context_get = look_up("PyContextVar_Get");
    python.context_set = look_up("PyContextVar_Set");
    if (!python.context_get || !python.context_set)
        python.context_new = NULL;
    python.locals_to_fast = look_up("PyFrame_LocalsToFast");
    python.frame_back = look_up("PyFrame_GetBack");
    find_runtime();
    return python.interpreter_main && python.interpreter_head && python.interpreter_next &&
                   python.state_delete_current && python.thread_first && python.thread_next &&
                   python.finalizing && python.frame_back
               ? 0
               : -EOPNOTSUPP;
}
