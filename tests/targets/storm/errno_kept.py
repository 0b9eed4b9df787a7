"""errno_kept.py: errno must be what the last call made it, in C and in Python's exceptions."""
import ctypes
import errno
import os

import workload

library = ctypes.CDLL(workload.checks())


def work(index):
    while True:
        for _ in range(200):
            try:
                os.stat("/nonexistent/nowhere" if not workload.harmed else "/dev/null/nowhere")
            except OSError as error:
                workload.same(error.errno, errno.ENOENT, "errno of stat")
        workload.same(library.errno_kept(100000), 0, "changes of errno in a loop")
        yield


workload.run(work)
