"""vectors.py: a loop in C that keeps patterns in the vector, mask, x87 and control registers, and
below the stack pointer, and compares all of them at each turn."""
import ctypes

import workload

library = ctypes.CDLL(workload.checks())
library.registers_kept.restype = ctypes.c_char_p


def work(index):
    while True:
        said = library.registers_kept(ctypes.c_long(200000), ctypes.c_int(workload.harmed))
        workload.same(said, b"", "registers")
        yield


workload.run(work, workload.argument(1))
