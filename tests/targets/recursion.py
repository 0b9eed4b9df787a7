"""recursion.py DEPTH: a thread named "deep" waits DEPTH calls deep."""
import sys
import threading

import oracle

depth = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
arrived = threading.Event()
never = threading.Lock()
never.acquire()


def bottom():
    arrived.set()
    never.acquire()


def even(left):
    odd(left - 1) if left else bottom()


def odd(left):
    even(left - 1) if left else bottom()


sys.setrecursionlimit(depth + 1000)
threading.stack_size(512 << 20)
threading.Thread(target=even, args=(depth,), name="deep", daemon=True).start()
arrived.wait()
oracle.park()
