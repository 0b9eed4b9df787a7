"""many_threads.py [THREADS]: most of them sleep again and again, some compute."""
import threading
import time

import workload


def work(index):
    while True:
        if index % 10:
            begin, seconds = time.monotonic(), 0.3 + index % 7 * 0.05
            time.sleep(seconds)
            workload.lasted(begin, seconds, "sleep")
        else:
            workload.same(sum(range(1000 + workload.harmed)), 499500, "sum")
            time.sleep(0.02)
        yield


threading.stack_size(256 << 10)
workload.run(work, workload.argument(200))
