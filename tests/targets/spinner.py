"""spinner.py [THREADS]: busy threads in nested calls, each doing the same sum again and again;
prints at "stop" how many sums were done, and how many came out wrong."""
import sys
import threading

import oracle

done = [0, 0]


def mix(value, i):
    return (value * 1103515245 + 12345 + i) & 0x7FFFFFFF


def inner(value, i):
    for j in range(10):
        value = mix(value, i + j)
    return value


def work(rounds):
    value = 0
    for i in range(rounds):
        value = inner(value, i)
    return value


def main(first=False):
    if first:
        oracle.ready()
    wanted = work(100)
    while not (oracle.stop.is_set() and sum(done)):
        done[work(100) != wanted] += 1


others = [threading.Thread(target=main, name=f"spinner-{i}", daemon=True)
          for i in range(1, int(sys.argv[1]) if len(sys.argv) > 1 else 1)]
for thread in others:
    thread.start()
main(True)
for thread in others:
    thread.join()
print(*done, flush=True)
