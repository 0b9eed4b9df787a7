"""recursion.py DEPTH: a thread named "deep" waits DEPTH calls deep."""
import sys
import threading

import oracle

depth = int(sys.argv[1]) if len(sys.argv) > 1 else 10000


def even(left):
    odd(left - 1) if left else oracle.forever()


def odd(left):
    even(left - 1) if left else oracle.forever()


sys.setrecursionlimit(depth + 1000)
threading.stack_size(512 << 20)
threading.Thread(target=even, args=(depth,), name="deep", daemon=True).start()
oracle.park(1)
