"""fork_loop.py [THREADS]: forks children that allocate, start threads and load a library, each
of which says by its status whether that went well; further threads allocate meanwhile."""
import ctypes
import os
import signal
import threading
import time

import workload

HANGS = 10  # seconds after which a child that has not ended never will


def allocates():
    blocks = [bytes([i]) * 1000 for i in range(200)]
    return all(block.count(i) == 1000 for i, block in enumerate(blocks))


def starts_threads():
    seen = []
    threads = [threading.Thread(target=seen.append, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(seen) == [0, 1, 2]


def loads():
    return ctypes.CDLL(workload.checks()).count_of_thread() == 8


def child(kind):
    try:
        os._exit(0 if kind() and not workload.harmed else 9)
    except BaseException:
        os._exit(7)


def wait(pid):
    end = time.monotonic() + HANGS
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "never"
        time.sleep(0.0005)


def work(index):
    while index:
        workload.same(allocates(), True, "blocks")
        yield
    while True:
        for kind in allocates, starts_threads, loads:
            pid = os.fork()
            if pid == 0:
                child(kind)
            workload.same(wait(pid), 0, f"status of a child that {kind.__name__}")
            yield


workload.run(work, workload.argument(1))
