"""values.py: objects of every kind as arguments of frames, 90 in each, and then its standard input.

Prints, innermost frame first, [{name: text that is expected}, ...] as one line of JSON. The text
is what repr() says here, unless repr() can't be known from outside; then it is spelled out."""
import collections
import json
import random
import struct
import sys
import types

if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)

values = []


def add(value, want=None):
    values.append((value, repr(value) if want is None else want))


def add_instance(value, attributes):
    add(value, f"<__main__.{type(value).__name__} object at {id(value):#x}>{attributes}")


class Plain:
    def __init__(self):
        self.a = 1
        self.b = "x"


class Slots:
    __slots__ = ("x", "y", "unset", "__private")

    def __init__(self):
        self.x = 1
        self.y = [2]


class SlotsAndDict(Slots):
    def __init__(self):
        super().__init__()
        self.d = {"k": 1}


class Many:
    def __init__(self):
        for i in range(20):
            setattr(self, f"a{i}", i)


class Int(int): pass
class Str(str): pass
class List(list): pass
class Tuple(tuple): pass
class Dict(dict): pass
class Set(set): pass
class FrozenSet(frozenset): pass
class Float(float): pass
class Complex(complex): pass
class Bytes(bytes): pass
class ByteArray(bytearray): pass
class Error(Exception): pass
class Meta(type): pass
class Made(metaclass=Meta): pass


def generator():
    yield


async def coroutine():
    pass


async def asynchronous():
    yield


def cell(value):
    return (lambda: value).__closure__[0]


def singles():
    for value in (
        None, True, False, ..., NotImplemented,
        0, 1, -1, 255, -5, 256, 257, 2**30 - 1, 2**30, 2**30 + 1, -2**30, 2**60, 2**62, 2**63 - 1,
        2**63, -2**63, 2**64, 10**9, 10**18, 10**100, -10**100, 7**500, 10**4299, -(10**4300 - 1),
        0.0, -0.0, 1.0, 0.1, 1e16, 1e15, 123456789012345678.0, 1e-4, 1e-5, 0.00012345, 5e-324,
        1.7976931348623157e308, float("inf"), -float("inf"), float("nan"), 2.0**-44, 1e22, 1e23,
        1j, 1 + 2j, -1 - 2j, complex(-0.0, 1), complex(1, float("nan")), complex(0, -0.0),
        "", "abc", "it's", 'say "x"', "both ' and \"", "tab\t nl\n cr\r nul\0 del\x7f",
        "gr\xfc\xdfe", "\u65e5\u672c", "\U0001f40d x", "\ud800", "\x80\xa0\xad", "a\u2028b\u202e",
        "\ue000\ufeff", "back\\slash", "x" * 200, "\xe9" * 200,
        b"", b"abc\x00\xff\n", b"it's", b"'\"", b"y" * 200, bytearray(b""), bytearray(b"abc\x00"),
    ):
        add(value)
    late = bytearray(b"0123456789")
    del late[:4]  # begins behind its buffer's start
    add(late)
    add(10**4300, "<int of 14285 bits>")
    add(-(1 << 100000), "<negative int of 100001 bits>")
    add("z" * 201, repr("z" * 200) + "... 201 characters")
    add("\u65e5" * 5000, repr("\u65e5" * 200) + "... 5,000 characters")
    add(b"z" * 201, repr(b"z" * 200) + "... 201 bytes")
    add(bytearray(1234567), f"bytearray({bytes(200)!r}... 1,234,567 bytes)")


def containers():
    for value in (
        [], [1], [1, 2, "x"], (), (1,), (1, 2), {}, {"a": 1, 2: "b"}, set(), {1}, frozenset(),
        frozenset({5}), [[1, []], (2,)], {"k": {"z": 1}}, list(range(16)),
        dict.fromkeys(range(16)), range(0, 3), range(1, 10, 2), range(0, -5, -1), range(10**20),
        slice(None, 2, None), slice(1, 2, 3), types.MappingProxyType({"a": 1}),
    ):
        add(value)
    add(list(range(17)), "[" + ", ".join(map(str, range(16))) + ", ... 17 items]")
    add(tuple(range(17)), "(" + ", ".join(map(str, range(16))) + ", ... 17 items)")
    add(dict.fromkeys(range(25523)), "{" + ", ".join(f"{i}: None" for i in range(16)) + ", ... 25,523 items}")
    add([[[[[1]]]]])
    add([[[[[[]]]]]])
    add([[[[[[1]]]]]], "[[[[[[... 1 item]]]]]]")
    add([[[[[{"k": 1, 2: 3}]]]]], "[[[[[{... 2 items}]]]]]")
    add([[[[[(1, 2)]]]]], "[[[[[(... 2 items)]]]]]")
    add([[[[[{1, 2}]]]]], "[[[[[{... 2 items}]]]]]")
    add([[[[[frozenset(range(1000))]]]]], "[[[[[frozenset({... 1,000 items})]]]]]")
    add([({},), ((1, {"k": (2,)}),)])
    cycle = [1]
    cycle.append(cycle)
    add(cycle)
    around = {"k": (cycle, [1])}
    around["a"] = [around]
    add(around)
    add([cycle, cycle])
    nearly_empty = {i: i for i in range(1000)}
    removed = set(range(1000))
    for i in range(990):
        del nearly_empty[i]
        removed.discard(i)
    add(nearly_empty)
    add(removed)
    moved = collections.OrderedDict.fromkeys("abc")
    add(moved, "collections.OrderedDict({'a': None, 'b': None, 'c': None})")
    if sys.version_info >= (3, 15):
        add(frozendict(a=1))


def instances():
    add_instance(Plain(), " {a=1, b='x'}")
    one = Plain()
    one.c = 1.5
    add_instance(one, " {a=1, b='x', c=1.5}")
    one = Plain()
    one.__dict__  # makes the dict
    add_instance(one, " {a=1, b='x'}")
    one = Plain()
    one.__dict__["new"] = 2
    add_instance(one, " {a=1, b='x', new=2}")
    one = Plain()
    one.__dict__ = {"r": 1}
    add_instance(one, " {r=1}")
    one = Plain()
    del one.a
    add_instance(one, " {b='x'}")
    one = Plain()
    setattr(one, "\xe9", [1, [2]])
    add_instance(one, " {a=1, b='x', \xe9=[1, [2]]}")
    one = Plain()
    one.itself = one
    add_instance(one, f" {{a=1, b='x', itself=<__main__.Plain object at {id(one):#x}>}}")
    add([one], f"[<__main__.Plain object at {id(one):#x}>]")
    add_instance(Slots(), " {x=1, y=[2]}")
    one = Slots()
    one._Slots__private = None
    add_instance(one, " {_Slots__private=None, x=1, y=[2]}")  # sorted, as CPython keeps them
    add_instance(SlotsAndDict(), " {x=1, y=[2], d={'k': 1}}")
    add_instance(Many(), " {" + ", ".join(f"a{i}={i}" for i in range(16)) + f", ... {len(vars(Many()))} attributes}}")
    add_instance(Made(), "")
    add(object(), None)


def subclasses():
    add(Int(5), "__main__.Int(5)")
    for number in (7, 2**100, -2**70):
        one = Int(number)
        one.tag = "t"
        add(one, f"__main__.Int({number}) {{tag='t'}}")
    add(Str("\xe9"), "__main__.Str('\xe9')")
    one = Str("ab")
    one.q = 1
    add(one, "__main__.Str('ab') {q=1}")
    add(List([1]), "__main__.List([1])")
    one = Tuple((1, 2, 3))
    one.w = 1
    add(one, "__main__.Tuple((1, 2, 3)) {w=1}")
    one = Dict(a=1)
    one.x = 2
    add(one, "__main__.Dict({'a': 1}) {x=2}")
    add(Set({1}), "__main__.Set({1})")
    add(Set(), "__main__.Set()")
    add(FrozenSet(), "__main__.FrozenSet()")
    one = Float(2.5)
    one.u = 1
    add(one, "__main__.Float(2.5) {u=1}")
    add(Complex(1j), "__main__.Complex(1j)")
    one = Bytes(b"xyz")
    one.u = 1
    add(one, "__main__.Bytes(b'xyz') {u=1}")
    add(ByteArray(b"x"), "__main__.ByteArray(b'x')")
    add(collections.Counter("aab"), "collections.Counter({'a': 2, 'b': 1})")
    add(collections.namedtuple("Point", "x y")(1, 2), "__main__.Point((1, 2))")
    for error in (ValueError("x"), ValueError(), ValueError("x", 1), KeyError("k"),
                  FileNotFoundError(2, "no"), Error("e"), StopIteration()):
        add(error)
    one = Error("m")
    one.code = 3
    add(one, "Error('m') {code=3}")


def code_like():
    one = Plain()
    for value in (int, Plain, Plain.__init__, type, Meta, Made, collections.OrderedDict, ValueError,
                  len, sys.exc_info, [].append, "x".join, "".maketrans, add, lambda: 0,
                  add.__code__, cell(5), types.CellType()):
        add(value)
    begun, ended = generator(), generator()
    next(begun)
    list(ended)
    for value, state in ((generator(), "not started"), (coroutine(), "not started"), (asynchronous(), "not started"),
                         (begun, f"suspended at {__file__}:{generator.__code__.co_firstlineno + 1}"),
                         (ended, "finished")):
        add(value, f"{repr(value)[:-1]}, {state}>")
    add(one.__init__,
        f"<bound method Plain.__init__ of <__main__.Plain object at {id(one):#x}>>")
    add(collections, "<module 'collections'>")
    add(sys, "<module 'sys'>")


def chosen_at_random():
    random_ = random.Random(1)
    for i in range(-1074, 1024, 17):
        add(2.0**i)
    for _ in range(200):
        add(struct.unpack("d", struct.pack("Q", random_.getrandbits(64)))[0])
    for _ in range(100):
        add(random_.getrandbits(random_.randrange(1, 3000)) * random_.choice((1, -1)))
    planes = [(0x20, 0x7f), (0xa1, 0x250), (0x4e00, 0x9000), (0x1f300, 0x1f600)]
    for _ in range(100):
        kinds = planes[:random_.randrange(1, 5)]
        add("".join(chr(random_.randrange(*random_.choice(kinds)))
                    for _ in range(random_.randrange(50))))


def hold(chunks):
    """One frame for each chunk, the last one innermost; each value is an argument."""
    if not chunks:
        print(json.dumps(expected), flush=True)
        sys.stdin.read()
        return
    names = [f"v{i}" for i in range(len(chunks[0]))]
    scope = {"hold": hold}
    exec(f"def frame(rest, {', '.join(names)}): hold(rest)", scope)
    scope["frame"](chunks[1:], *chunks[0])


for make in (singles, containers, instances, subclasses, code_like, chosen_at_random):
    make()
SIZE = 90
chunks = [values[i:i + SIZE] for i in range(0, len(values), SIZE)]
expected = [{f"v{i}": text for i, (_, text) in enumerate(chunk)} for chunk in reversed(chunks)]
hold([[value for value, _ in chunk] for chunk in chunks])
