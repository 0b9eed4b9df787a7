"""starting.py: threads that begin and end as fast as they can: Python's own, and C's, whose thread states come and go
without the GIL."""
import ctypes
import threading

import workload

THREADS, TURNS = 3, 200

M_ARENA_MAX = -8  # of malloc.h

library = ctypes.CDLL(workload.checks())
# else each thread that finds malloc() busy may map 64 MiB for good, which looks like a leak
ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
library.python_from_threads.restype = ctypes.c_long
library.python_from_threads.argtypes = ctypes.c_long, ctypes.c_long


def note(number, seen):
    seen.append(number)


def from_c():
    entered = library.python_from_threads(THREADS, TURNS)
    workload.same(entered, THREADS * TURNS + workload.harmed, "turns of C's threads")


def from_python():
    seen = []
    threads = [threading.Thread(target=note, args=(i, seen)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    workload.same(sorted(seen), list(range(8)), "threads of Python's")


def work(index):
    while True:
        (from_python if index % 2 else from_c)()
        yield


workload.run(work, workload.argument(4))
