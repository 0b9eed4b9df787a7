"""loader.py [THREADS]: loads fresh copies of a library with thread-local data, and unloads them."""
import ctypes
import os
import shutil

import _ctypes
import workload

directory = workload.scratch()


def work(index):
    copies = [os.path.join(directory, f"copy-{index}-{i}.so") for i in range(3)]
    for path in copies:
        shutil.copy(workload.checks(), path)
    while True:
        for path in copies:
            library = ctypes.CDLL(path)
            if workload.harmed:
                library.count_of_thread()
            workload.same(library.count_of_thread(), 8, "thread-local data of a new library")
            workload.same(library.count_of_thread(), 9, "thread-local data")
            handle = library._handle
            del library
            workload.same(_ctypes.dlclose(handle), None, "dlclose")
        yield


workload.run(work, workload.argument(2))
