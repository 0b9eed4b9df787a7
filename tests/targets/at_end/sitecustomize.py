"""Ends the daemon threads of a program before its interpreter ends, for CPython 3.10.

There a daemon thread that waits for the GIL while the main thread ends crashes the program, about once in a hundred
times (take_gil() resets its request to drop the GIL in an interpreter that has been freed, since gh-96387).
"""
import atexit
import sys


def end():
    threading = sys.modules.get("threading")  # importing it would change the program
    daemons = [thread for thread in threading.enumerate() if thread.daemon] if threading else []
    if not daemons:
        return
    import ctypes
    import time
    for thread in daemons:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    over = time.monotonic() + 0.5  # one that waits in C isn't meant, and doesn't end
    for thread in daemons:
        thread.join(max(0, over - time.monotonic()))


atexit.register(end)
