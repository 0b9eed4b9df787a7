"""Python called from C, called from Python, again and again: each C function starts a new
evaluation loop between two Python frames."""
import ctypes
import functools
import re
import weakref

import oracle

COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def by_qsort(inner):
    @COMPARE
    def compare(a, b):
        inner()
        return 0

    numbers = (ctypes.c_int * 2)(2, 1)
    ctypes.CDLL(None).qsort(numbers, 2, 4, compare)


def by_sorted(inner):
    sorted([1], key=lambda _: inner())


def by_reduce(inner):
    functools.reduce(lambda *_: inner(), [1, 2])


def by_regex(inner):
    re.sub("a", lambda match: inner() or "", "a")


def by_attribute(inner):
    class Lazy:
        def __getattr__(self, name):
            return inner()

    getattr(Lazy(), "missing")


def by_weakref(inner):
    class Short:
        pass

    object_ = Short()
    keep = weakref.ref(object_, lambda _: inner())
    del object_
    return keep


def by_del(inner):
    class Last:
        def __del__(self):
            inner()

    Last()


def by_map(inner):
    list(map(lambda _: inner(), [1]))


chain = oracle.park
for through in (by_qsort, by_sorted, by_reduce, by_regex, by_attribute, by_weakref, by_del, by_map):
    chain = functools.partial(through, chain)
chain()
