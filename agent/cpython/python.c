#include "agent/cpython/python.h"

#include "agent/cpython/look_up.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

/* Where an object's type is: behind its references, or, free-threaded, its thread, flags, lock and
 * two counts of references. */
#define TYPE_AT 8
#define TYPE_AT_FREE_THREADED 24

struct python python = {.type_at = TYPE_AT};

/* The segment that it lies in; for dl_iterate_phdr(3). 1: no more are wanted. */
static int visit(struct dl_phdr_info *info, size_t size, void *runtime)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        size_t at = (uintptr_t)runtime - info->dlpi_addr - segment->p_vaddr;
        if (segment->p_type == PT_LOAD && at < segment->p_memsz) {
            python.runtime = runtime;
            python.runtime_size = segment->p_memsz - at;
            return 1;
        }
    }
    return 0;
}

/* Where it isn't exported, what comes behind it counts as part of it. */
static void find_runtime(void)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    void *runtime = looked_up._PyRuntime;

    if (runtime && dladdr1(runtime, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol &&
        info.dli_saddr == runtime) {
        python.runtime = runtime;
        python.runtime_size = symbol->st_size;
    } else if (runtime) {
        dl_iterate_phdr(visit, runtime);
    }
}

int python_bind(void)
{
    unsigned major = 0, minor = 0;

    if (sscanf(Py_GetVersion(), "%u.%u", &major, &minor) != 2 || major != 3 || minor < 10)
        return -EOPNOTSUPP;
    python.version = major << 8 | minor;
    python.free_threaded = strstr(Py_GetVersion(), "free-threading") != NULL;
    python.type_at = python.free_threaded ? TYPE_AT_FREE_THREADED : TYPE_AT;
    python.interpreter_main = looked_up.PyInterpreterState_Main;
    python.interpreter_head = looked_up.PyInterpreterState_Head;
    python.interpreter_next = looked_up.PyInterpreterState_Next;
    python.interpreter_find = looked_up._PyInterpreterState_LookUpID;
    python.state_delete_current = looked_up.PyThreadState_DeleteCurrent;
    python.thread_first = looked_up.PyInterpreterState_ThreadHead;
    python.thread_next = looked_up.PyThreadState_Next;
    python.finalizing = looked_up.Py_IsFinalizing;
    if (!python.finalizing)
        python.finalizing = looked_up._Py_IsFinalizing;
    python.enter_tracing = looked_up.PyThreadState_EnterTracing;
    python.leave_tracing = looked_up.PyThreadState_LeaveTracing;
    /* without a GIL code that is evaluated is interrupted by its own events (eval/interrupt.h) */
    if (!python.enter_tracing || !python.leave_tracing || python.free_threaded)
        python.enter_tracing = python.leave_tracing = NULL;
    python.context_new = looked_up.PyContextVar_New;
    python.context_get = looked_up.PyContextVar_Get;
    python.context_set = looked_up.PyContextVar_Set;
    if (!python.context_get || !python.context_set)
        python.context_new = NULL;
    python.locals_to_fast = looked_up.PyFrame_LocalsToFast;
    python.frame_back = looked_up.PyFrame_GetBack;
    find_runtime();
    return python.interpreter_main && python.interpreter_head && python.interpreter_next &&
                   python.state_delete_current && python.thread_first && python.thread_next &&
                   python.finalizing && python.frame_back
               ? 0
               : -EOPNOTSUPP;
}
