"""short_threads.py: threads that live for a moment, each with something to compute."""
import queue
import threading

import workload


def compute(number, results):
    results.put((number, sum(range(number * 100))))


def work(index):
    while True:
        results = queue.SimpleQueue()
        threads = [threading.Thread(target=compute, args=(i, results)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        got = dict(results.get(timeout=5) for _ in threads)
        wanted = {i: i * 100 * (i * 100 - 1) // 2 for i in range(8 - workload.harmed)}
        workload.same(got, wanted, "results of threads")
        yield


workload.run(work, workload.argument(2))
