/* Hearing by one trace function in C for all, before CPython 3.12.
 *
 * It is no object, and sys.gettrace() still says None. It is set in each thread that has none, new
 * threads too, while anybody is interested. Those that have one of their own are left alone, which
 * is said; where the program sets one later, that takes its place. */
#pragma once

#include "agent/monitor/hear.h"

/* As those of hear.h; all with the GIL of the interpreter, and no exception is set afterwards. */
void trace_learn(void);
int trace_begin(struct interpreter *interpreter, const struct hearer *hearer, unsigned everywhere,
                char words[PROTO_WORDS_MAX]);
void trace_code(struct interpreter *interpreter, const struct hearer *hearer, PyObject *code,
                unsigned events);
void trace_again(struct interpreter *interpreter);
void trace_end(struct interpreter *interpreter, const struct hearer *hearer);

/* Waits a moment, without the GIL, until no thread is in a function of this library any more,
 * once nobody hears. */
void trace_wait(void);
/* Whether a thread is in a function of this library for the sake of a hearer, or
 * may still get there. */
bool trace_remains(void);
/* In a child after fork, before anything else runs: nobody hears any more. */
void trace_forget(void);
