"""Reads the rings of a process as agent/wire/ring_format.h says, straight from its memfds: what the daemon's own
reader is judged by, and what recorders are tested with."""
import math
import os
import struct

import sql
from interpreters import eventually

NAME = "/memfd:probefs-ring"
MAGIC, VERSION = 0x474E4952464250, 1
HEADER = struct.Struct("=QIiQ32sQIIQQd")
HEADER_SIZE = 4096
BLOCK = struct.Struct("=QQIIQ")
NULL_INTEGER = -1 << 63
CUT = 1 << 31


class Row(dict):
    """column: value, also as an attribute. cut: the columns whose text was longer."""

    def __init__(self, values, cut):
        super().__init__(values)
        self.cut = cut

    def __getattr__(self, column):
        try:
            return self[column]
        except KeyError:
            raise AttributeError(column) from None


class Ring:
    """One ring, readable also after its process has died, until close()."""

    def __init__(self, fd):
        self.fd = fd
        magic, version, self.pid, self.layout, table, self.size, self.block_size, self.blocks, *_, \
            self.since = self._header()
        assert magic == MAGIC and version == VERSION
        self.table = table.rstrip(b"\0").decode()
        self.columns = sql.columns(self.table, added=False)
        assert self.layout == _hash(self.columns)
        assert self.size == self.block_size * self.blocks
        assert os.fstat(fd).st_size == HEADER_SIZE + self.size

    def _header(self):
        return HEADER.unpack(os.pread(self.fd, HEADER.size, 0))

    @property
    def head(self):
        return self._header()[8]

    @property
    def dropped(self):
        return self._header()[9]

    def _block(self, sequence):
        """(first, bytes of rows) of a block; None: it has been overwritten."""
        offset = HEADER_SIZE + (sequence - 1) % self.blocks * self.block_size
        data = os.pread(self.fd, self.block_size, offset)
        number, first, used, zero, more = BLOCK.unpack_from(data)
        if number != sequence or os.pread(self.fd, 8, offset) != data[:8]:
            return None
        assert zero == more == 0 and used <= self.block_size - BLOCK.size
        return first, data[BLOCK.size:BLOCK.size + used]

    def read(self):
        """(rows, lost): those that are there, oldest first, and how many were before them."""
        head, found, lost = self.head, [], 0
        for sequence in range(max(1, head - self.blocks + 1), head + 1):
            block = self._block(sequence)
            if block is None:
                found = []  # it went round while we read: only what follows is without a gap
                continue
            first, data = block
            if not found:
                lost = first
            assert lost + len(found) == first
            at = 0
            while at < len(data):
                row, size = self._row(data, at)
                found.append(row)
                at += size
            assert at == len(data)
        return found, lost

    @property
    def rows(self):
        return self.read()[0]

    @property
    def lost(self):
        return self.read()[1]

    def _row(self, data, at):
        size, zero = struct.unpack_from("=II", data, at)
        assert zero == 0 and size % 8 == 0 and at + size <= len(data)
        end = 8 + 8 * len(self.columns)
        values, cut = {}, set()
        for number, (name, type_) in enumerate(self.columns):
            word = at + 8 + 8 * number
            if type_ == "REAL":
                value, = struct.unpack_from("=d", data, word)
                values[name] = None if math.isnan(value) else value
            elif type_ == "INTEGER":
                value, = struct.unpack_from("=q", data, word)
                values[name] = None if value == NULL_INTEGER else value
            else:
                offset, length = struct.unpack_from("=II", data, word)
                values[name] = None
                if offset:
                    if length & CUT:
                        cut.add(name)
                        length -= CUT
                    assert offset == end and offset + length <= size  # one behind the other
                    values[name] = data[at + offset:at + offset + length].decode(errors="surrogateescape")
                    end += length
        assert size == (end + 7) // 8 * 8
        return Row(values, cut), size

    def close(self):
        os.close(self.fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _hash(columns):
    """schema/generate: FNV-1a over the columns' names and types."""
    value = 0xCBF29CE484222325
    for byte in " ".join(f"{name} {type_}" for name, type_ in columns).encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def rings(pid):
    """{table: Ring} of those a process has made itself; whoever calls closes them."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        try:
            if not os.readlink(path).startswith(NAME):
                continue
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # just closed
        if os.pread(opened, 8, 0) in (b"", bytes(8)):
            os.close(opened)
            continue  # just being made
        ring = Ring(opened)
        if ring.table in found and found[ring.table].since > ring.since:
            ring.close()
            continue
        if ring.table in found:
            found[ring.table].close()
        found[ring.table] = ring
    return found


def find(pid, table):
    """The ring of a table; None: there is none. Whoever calls closes it."""
    all_of_them = rings(pid)
    ring = all_of_them.pop(table, None)
    for other in all_of_them.values():
        other.close()
    return ring


def rows(pid, table):
    """What is in the ring of a table now; [] where there is none."""
    ring = find(pid, table)
    if ring is None:
        return []
    with ring:
        return ring.rows


def wait_rows(pid, table, count):
    """The same once there are at least so many."""
    def enough():
        found = rows(pid, table)
        return found if len(found) >= count else None
    return eventually(enough, what=f"{count} rows of {table}")
