"""heap.py N [KINDS]: has exactly N objects of each of these types, or of the first so many; then makes as many more as
a line of its input says."""
import gc
import sys


class Node:
    def __init__(self, number):
        self.number = number


class Slot:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = self.b = None


class Bare:
    __slots__ = ()


class Real(float):
    __slots__ = ()


class Text(str):
    pass


class Pair(tuple):
    __slots__ = ()


class Table(dict):
    pass


class Gone:
    pass


KINDS = [Node, lambda _: Slot(), lambda _: Bare(), Real, Text, lambda number: Pair((number, number)), lambda _: Table()]


KINDS = KINDS[:int(sys.argv[2]) if len(sys.argv) > 2 else None]


def make(n):
    return [[kind(number) for number in range(n)] for kind in KINDS]


n = int(sys.argv[1])
keep = make(n)
holes = [Gone() for _ in range(n)]
del holes[::2]  # blocks that were given back lie between
big = [bytes(1000) for _ in range(10)]  # not the allocator's
gc.collect()
print("ready", flush=True)
for line in sys.stdin:
    keep += make(int(line))
    print("made", flush=True)
