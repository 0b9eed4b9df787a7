"""allocators.py [debug]: six threads allocate through each of CPython's domains, two of them through RAW and without
the GIL, and see that a block keeps what was written into it. debug: with CPython's own checks of what is given back."""
import ctypes
import os
import random
import sys

if "debug" in sys.argv and "PYTHONMALLOC" not in os.environ:
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONMALLOC": "debug"})

import workload

sys.setswitchinterval(0.0005)
ALLOCATORS = [(ctypes.CDLL(None), "PyMem_Raw"), (ctypes.pythonapi, "PyMem_"), (ctypes.pythonapi, "PyObject_")]


def functions(index):
    """Of CDLL they are called without the GIL, of pythonapi with it."""
    library, name = ALLOCATORS[0 if index < 2 else 1 + index % 2]
    allocate, again, free = (library[name + what] for what in ("Malloc", "Realloc", "Free"))
    allocate.argtypes, free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    again.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    allocate.restype = again.restype = ctypes.c_void_p
    free.restype = None
    return allocate, again, free


def work(index):
    allocate, again, free = functions(index)
    dice = random.Random(index)
    while True:
        blocks = []
        for _ in range(100):
            size = dice.choice([16, 100, 500, 3000, 70000])
            address = allocate(size)
            ctypes.memset(address, size % 251 + workload.harmed, size)
            blocks.append((address, size))
        for address, size in blocks:
            more = again(address, size + 200)
            workload.same(ctypes.string_at(more, size), bytes([size % 251]) * size, "a block's bytes")
            free(more)
        objects = [[number, str(number), {number: number}] for number in range(200)]
        workload.same(sum(number for number, _, _ in objects), 19900, "sum of numbers")
        yield


workload.run(work, 6)
