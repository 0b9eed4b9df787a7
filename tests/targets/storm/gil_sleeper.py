"""gil_sleeper.py: a thread sleeps in C and keeps the GIL, again and again; another one computes
whenever it may."""
import ctypes
import time

import workload

keeping = ctypes.PyDLL(None)  # unlike CDLL, keeps the GIL


def work(index):
    while True:
        if index == 0:
            begin = time.monotonic()
            keeping.usleep(10000 if workload.harmed else 50000)
            workload.lasted(begin, 0.05, "usleep() with the GIL")
            time.sleep(0.001)
        else:
            workload.same(sum(range(1000)), 499500, "sum")
            time.sleep(0.0005)
        yield


workload.run(work, 2)
