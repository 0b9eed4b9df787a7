"""pending_calls.py: uses the interpreter's queue of pending calls itself."""
import ctypes

import workload

library = ctypes.CDLL(workload.checks())
add = ctypes.pythonapi.Py_AddPendingCall
add.argtypes = ctypes.c_void_p, ctypes.c_void_p
call = ctypes.cast(library.pending_call, ctypes.c_void_p)


def work(index):
    queued = library.pending_calls()
    while True:
        for _ in range(20):
            queued += add(call, None) == 0
        for _ in range(1000):  # they run soon, between two instructions
            if library.pending_calls() == queued:
                break
        workload.same(library.pending_calls(), queued + workload.harmed, "pending calls made")
        yield


workload.run(work)
