#include "agent/monitor/hear.h"

#include "agent/monitor/monitoring.h"
#include "agent/monitor/trace.h"

#include <errno.h>
#include <stdio.h>

static bool monitors(void) { return python.version >= 0x030c; }

bool hear_tells_of_ends(void) { return monitors(); }

void hear_learn(void)
{
    if (!monitors())
        trace_learn();
}

bool hear_tells_of_jumps(void) { return monitors(); }

bool hear_tells_of_unwinds(void) { return monitors(); }

bool hear_may_omit_line(void) { return monitors(); }

bool hear_tells_who_begins(void) { return !monitors(); }

int hear_begin(struct interpreter *interpreter, const struct hearer *hearer, unsigned everywhere,
               unsigned local, char words[PROTO_WORDS_MAX])
{
    words[0] = '\0';
    int r = monitors() ? monitoring_begin(interpreter, hearer, everywhere, local)
                       : trace_begin(interpreter, hearer, everywhere, words);
    if (r == -EBUSY && monitors())
        snprintf(words, PROTO_WORDS_MAX,
                 "other tools have all ids of sys.monitoring (see sys.monitoring.get_tool)");
    else if (r == -EOPNOTSUPP && !words[0])
        snprintf(words, PROTO_WORDS_MAX,
                 "this interpreter lacks what it takes to %s, or forbids it", hearer->purpose);
    return r;
}

int hear_code(struct interpreter *interpreter, const struct hearer *hearer, PyObject *code,
              unsigned events)
{
    if (monitors())
        return monitoring_code(interpreter, hearer, code, events);
    trace_code(interpreter, hearer, code, events);
    return 0;
}

void hear_again(struct interpreter *interpreter)
{
    if (!monitors())
        trace_again(interpreter);
}

void hear_end(struct interpreter *interpreter, const struct hearer *hearer)
{
    PyErr_Clear();
    if (monitors())
        monitoring_end(interpreter, hearer);
    else
        trace_end(interpreter, hearer);
    PyErr_Clear();
}
