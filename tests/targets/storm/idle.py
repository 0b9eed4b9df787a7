"""idle.py: sleeps."""
import time

import workload


def work(index):
    while True:
        begin = time.monotonic()
        time.sleep(0.1 if workload.harmed else 0.2)
        workload.lasted(begin, 0.2, "sleep")
        yield


workload.run(work)
