"""allocations.py: how long allocations take. For each line of its input it prints the nanoseconds of its own processor
time that one object() and its free, one bytes(100) and its free, and a small structure of each kind take, the least of
seven; "tracemalloc N" starts that with so many frames first."""
import sys
import time

NUMBER = 20_000


class Item:
    def __init__(self, number):
        self.number, self.name = number, str(number)


def objects():
    for _ in range(NUMBER):
        object()


def blocks():
    for _ in range(NUMBER):
        bytes(100)


def structures():
    for number in range(NUMBER // 20):
        {"item": Item(number), "list": [number, number + 1], "text": "x" * (number % 50)}


def each(function, number):
    took = []
    for _ in range(7):
        begun = time.thread_time_ns()
        function()
        took.append((time.thread_time_ns() - begun) / number)
    return round(min(took), 1)


def deep(left):
    if left:
        return deep(left - 1)
    print("ready", flush=True)
    for line in sys.stdin:
        if line.startswith("tracemalloc"):
            import tracemalloc
            tracemalloc.stop()
            tracemalloc.start(int(line.split()[1]))
        print(each(objects, NUMBER), each(blocks, NUMBER), each(structures, NUMBER // 20), flush=True)


deep(25)
