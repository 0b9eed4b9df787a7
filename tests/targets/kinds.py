"""A thread that has variables of every kind, waits with them, and then fails with them."""
import collections
import enum
import sys
import threading


class Plain:
    def __init__(self):
        self.a, self.b, self._c = 1, "two", [3]

    def __repr__(self):
        raise SystemError("nobody may ask")


class Slots:
    __slots__ = ("x",)


class Number(int):
    pass


class Words(str):
    pass


class Colour(enum.IntEnum):
    RED = 1


class Own(Exception):
    def __str__(self):
        raise SystemError("nobody may ask")


def fail():
    none, yes, small, large, huge = None, True, -7, 12 ** 40, 1 << 20000
    real, infinite, nan, imaginary = 0.1, float("inf"), float("nan"), 1 - 2j
    text, quoted, wide, odd = "text", "it's\n\t\x1b", "żółw 🐢", "\udcff"
    long, octets, array = "x" * 1000, b"a\0\xff" * 3, bytearray(b"abc" * 100)
    empty = [], (), {}, set(), frozenset(), "", b""
    deep = [1, [2, [3, [4, [5, [6, [7]]]]]]], (1,), {"k": {"k": {"k": 1}}}, {(1, 2)}, frozenset({3})
    around = {"a": [1]}
    around["b"] = (around["a"], [around])
    broad = [[[i] * 17] * 3 for i in range(20)]
    many, pairs = list(range(100)), {i: str(i) for i in range(100)}
    itself = [1]
    itself.append(itself)
    plain, slots, number, words, colour = Plain(), Slots(), Number(5), Words("w"), Colour.RED
    counter, ordered = collections.Counter("aab"), collections.OrderedDict(a=1)
    kind, function, builtin, module, code = Plain, fail, len, sys, fail.__code__
    error, own = ValueError("x", 1), Own(plain)
    bounds = slice(None, 2, None), range(3), ...
    cell = 1
    reached.set()
    go.wait()
    (lambda: cell)()
    raise own


reached, go = threading.Event(), threading.Event()
thread = threading.Thread(target=fail)
thread.start()
reached.wait()
print("ready", flush=True)
sys.stdin.readline()
go.set()
thread.join()
print("done", flush=True)
sys.stdin.read()
