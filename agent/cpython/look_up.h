/* What is looked up of CPython when the library is loaded: functions and types that aren't of the
 * limited API of 3.10. Which version has which is told by the table alone, so that the daemon, who
 * reads it too, knows what it must find in a program that exports none of Python's functions
 * (fs/link/agent_symbols.c). */
#pragma once

/* Each name, the first version that has it, and the last one, 0: it is there still. */
/* clang-format off */
#define LOOKED_UP(X) \
    X(PyAsyncGen_Type, 0x030a, 0) \
    X(PyBuffer_Release, 0x030a, 0) \
    X(PyCell_Type, 0x030a, 0) \
    X(PyCode_AddWatcher, 0x030c, 0) \
    X(PyCode_Addr2Line, 0x030a, 0) \
    X(PyCode_ClearWatcher, 0x030c, 0) \
    X(PyCode_Type, 0x030a, 0) \
    X(PyContextVar_Get, 0x030a, 0) \
    X(PyContextVar_New, 0x030a, 0) \
    X(PyContextVar_Set, 0x030a, 0) \
    X(PyContextVar_Type, 0x030a, 0) \
    X(PyContext_Type, 0x030a, 0) \
    X(PyCoro_Type, 0x030a, 0) \
    X(PyDict_AddWatcher, 0x030c, 0) \
    X(PyDict_ClearWatcher, 0x030c, 0) \
    X(PyDict_Unwatch, 0x030c, 0) \
    X(PyDict_Watch, 0x030c, 0) \
    X(PyExc_BaseExceptionGroup, 0x030b, 0) \
    X(PyFrameLocalsProxy_Type, 0x030d, 0) \
    X(PyFrame_GetBack, 0x030a, 0) \
    X(PyFrame_GetGlobals, 0x030b, 0) \
    X(PyFrame_GetLasti, 0x030b, 0) \
    X(PyFrame_GetVar, 0x030c, 0) \
    X(PyFrame_LocalsToFast, 0x030a, 0) \
    X(PyFunction_GetCode, 0x030a, 0) \
    X(PyFunction_New, 0x030a, 0) \
    X(PyFunction_SetVectorcall, 0x030c, 0) \
    X(PyFunction_Type, 0x030a, 0) \
    X(PyGen_Type, 0x030a, 0) \
    X(PyInterpreterState_Head, 0x030a, 0) \
    X(PyInterpreterState_Main, 0x030a, 0) \
    X(PyInterpreterState_Next, 0x030a, 0) \
    X(PyInterpreterState_ThreadHead, 0x030a, 0) \
    X(PyMem_GetAllocator, 0x030a, 0) \
    X(PyMem_SetAllocator, 0x030a, 0) \
    X(PyMutex_Unlock, 0x030d, 0) \
    X(PyObject_GetBuffer, 0x030a, 0) \
    X(PyObject_Vectorcall, 0x030b, 0) \
    X(PySys_Audit, 0x030a, 0) \
    X(PyThreadState_DeleteCurrent, 0x030a, 0) \
    X(PyThreadState_EnterTracing, 0x030b, 0) \
    X(PyThreadState_GetUnchecked, 0x030d, 0) \
    X(PyThreadState_LeaveTracing, 0x030b, 0) \
    X(PyThreadState_Next, 0x030a, 0) \
    X(PyUnstable_GC_VisitObjects, 0x030c, 0) \
    X(PyVectorcall_Function, 0x030b, 0) \
    X(Py_IsFinalizing, 0x030d, 0) \
    X(_PyEval_EvalFrameDefault, 0x030a, 0) \
    X(_PyEval_SetTrace, 0x030a, 0x030c) \
    X(_PyInterpreterState_GetEvalFrameFunc, 0x030a, 0) \
    X(_PyInterpreterState_LookUpID, 0x030a, 0) \
    X(_PyInterpreterState_SetEvalFrameFunc, 0x030a, 0) \
    X(_PyRuntime, 0x030a, 0) \
    X(_PyThreadState_UncheckedGet, 0x030a, 0x030c) \
    X(_Py_IsFinalizing, 0x030a, 0x030c)
/* clang-format on */

#define LOOKED_UP_MEMBER(name, since, until) void *name;
/* Where they are; NULL: this interpreter lacks it. */
extern const struct looked_up {
    LOOKED_UP(LOOKED_UP_MEMBER)
} looked_up;
