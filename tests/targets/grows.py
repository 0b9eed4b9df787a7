"""grows.py: memory that grows in functions which measure that themselves, and in one whose memory is used again. For
each line of its input it does its round, and prints how many pages each of them took, {function: pages} as JSON."""
import ctypes
import json
import sys

try:
    import numpy
except ImportError:
    numpy = None
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: one page is one fault
kept, pages = [], {}


def resident():
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1])


def in_lists():
    kept.append([float(number) for number in range(50_000)])


def in_bytes():
    kept.append(b"x" * (8 << 20))


def in_numpy():
    kept.append(numpy.ones(500_000))


def again():
    for _ in range(100):
        bytes(100_000)


def main():
    print("ready", flush=True)
    for _ in sys.stdin:
        for _ in range(10):
            for function in (in_lists, in_bytes, again) + ((in_numpy,) if numpy else ()):
                before = resident()
                function()
                pages[function.__name__] = pages.get(function.__name__, 0) + resident() - before
        print(json.dumps(pages), flush=True)


main()
