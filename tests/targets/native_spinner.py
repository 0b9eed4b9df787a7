"""Runs all the time, in and out of C, the vDSO and signal handlers among it."""
import ctypes
import functools
import signal
import time

COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
qsort = ctypes.CDLL(None).qsort
qsort.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, COMPARE)


def work(*_):
    time.monotonic()
    str(sum(range(20)))
    return 0


compare = COMPARE(work)


def generate():
    for i in range(3):
        yield work()


def spin(n):
    if n:
        return spin(n - 1)
    sorted(range(4), key=work)
    functools.reduce(work, range(3))
    qsort((ctypes.c_int * 3)(3, 2, 1), 3, 4, compare)
    return sum(generate())


signal.signal(signal.SIGALRM, work)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
print("ready", flush=True)
while True:
    spin(3)
