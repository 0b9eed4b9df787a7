"""threads.py COUNT DEPTH: COUNT threads with names wait in a lock, DEPTH calls deep."""
import sys
import threading

import oracle

count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
depth = int(sys.argv[2]) if len(sys.argv) > 2 else 30


def descend(left):
    if left > 1:
        descend(left - 1)
    else:
        oracle.forever()


def odd(left):
    descend(left)


if count > 16:
    threading.stack_size(256 << 10)
for i in range(count):
    threading.Thread(target=odd if i % 2 else descend, args=(depth,), name=f"worker-{i}",
                     daemon=True).start()
oracle.park(count)
