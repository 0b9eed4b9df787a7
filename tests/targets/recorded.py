"""recorded.py LAYOUTS: a process with rings as an agent would have, which it writes itself, in Python. LAYOUTS
is {table: [types, hash]} as JSON. Runs each line of its input as Python, and says "done"."""
import fcntl
import json
import mmap
import os
import struct
import sys
import time

from imposter_record import load

MAGIC, VERSION, NULL = 0x474E4952464250, 1, -1 << 63
BLOCK = 16384
F_SEAL_FUTURE_WRITE = 16
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | F_SEAL_FUTURE_WRITE
layouts = json.loads(sys.argv[1])
record = load()


class Ring:
    """A ring of one table; rows are appended by write()."""

    def __init__(self, table, size=1 << 20, seals=SEALS):
        self.types, hash_ = layouts[table]
        self.blocks = size // BLOCK
        self.fd = os.memfd_create("probefs-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, 4096 + size)
        self.memory = mmap.mmap(self.fd, 4096 + size)
        self.memory[:] = bytes(4096 + size)  # which has no holes then
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        self.memory[:96] = struct.pack("=QIiQ32sQIIQQd", MAGIC, VERSION, os.getpid(), hash_, table.encode(), size,
                                       BLOCK, self.blocks, 0, 0, time.time())
        self.head = self.written = self.used = 0

    def write(self, *values):
        row = bytearray(8 + 8 * len(values))
        for i, (kind, value) in enumerate(zip(self.types, values)):
            if kind == "R":
                struct.pack_into("=d", row, 8 + 8 * i, float("nan") if value is None else value)
            elif kind == "I":
                struct.pack_into("=q", row, 8 + 8 * i, NULL if value is None else value)
            elif value is not None:
                text = value.encode(errors="surrogateescape")
                struct.pack_into("=II", row, 8 + 8 * i, len(row), len(text))
                row += text
        row += bytes(-len(row) % 8)
        struct.pack_into("=I", row, 0, len(row))
        if not self.head or self.used + len(row) > BLOCK - 32:
            self._next_block()
        at = 4096 + (self.head - 1) % self.blocks * BLOCK
        self.memory[at + 32 + self.used:at + 32 + self.used + len(row)] = bytes(row)
        self.used += len(row)
        self.written += 1
        struct.pack_into("@I", self.memory, at + 16, self.used)  # "=" would store byte by byte, for all to see

    def _next_block(self):
        self.head, self.used = self.head + 1, 0
        at = 4096 + (self.head - 1) % self.blocks * BLOCK
        struct.pack_into("@QQII", self.memory, at, 0, self.written, 0, 0)
        struct.pack_into("@Q", self.memory, at, self.head)
        struct.pack_into("@Q", self.memory, 64 + 8, self.head)


def publish(table, fd, inode=None, on=1, rate=0.0):
    place = record.rings[sorted(layouts).index(table)]
    place.change += 1
    place.on, place.fd, place.rate = on, fd, rate
    place.inode = os.fstat(fd).st_ino if inode is None else inode
    place.change += 1


def open_ring(table, size=1 << 20):
    ring = Ring(table, size)
    publish(table, ring.fd)
    return ring


def span(ring, number, name="step"):
    ring.write(number, None, name, 7, None, time.time(), 0.5, 0, None)


for place in record.rings:
    place.fd = -1
record.pid = os.getpid()
record.state = 1
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
