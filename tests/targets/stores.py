"""stores.py: at each line of input writes to the same eight bytes in ways that change them; once without."""
import array
import ctypes
import struct
import sys

cells = array.array("q", [0] * 8)
view = memoryview(cells)
pointer = ctypes.c_longlong.from_buffer(cells, 24)


def element(x):
    cells[3] = x


def viewed(x):
    view[3] = x


def packed(x):
    struct.pack_into("q", cells, 24, x)


def pointed(x):
    pointer.value = x


def sliced(x):
    view[2:5] = array.array("q", [x, x, x])


def unchanged(x):
    cells[3] = cells[3]


def byte(x):
    view.cast("B")[25] = x % 200 + 7


def moved(x):
    ctypes.memmove(ctypes.addressof(pointer), (ctypes.c_longlong * 1)(x), 8)


WAYS = element, viewed, packed, pointed, sliced, unchanged, byte, moved

print("ready", flush=True)
print(hex(cells.buffer_info()[0] + 24), flush=True)
number = 0
for line in sys.stdin:
    for way in WAYS:
        number += 1
        way(number)
    print("done", flush=True)
