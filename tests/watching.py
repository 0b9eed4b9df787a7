"""Watchpoints in the agent's own protocol, and debug registers armed without a daemon: perf_event_open(2), as its
manual page has it."""
import ctypes
import os
import platform
import struct

import pytest

import agent_client as agent
import ring_file
from interpreters import eventually

ANY, PERF, PTRACE = 0, 1, 2
ARMED_BODY = struct.Struct("=IIiI200s")

_libc = ctypes.CDLL(None, use_errno=True)
_PERF_EVENT_OPEN = 298
_BREAKPOINT, _WRITE = 5, 2
_EXCLUDE_KERNEL, _EXCLUDE_HV, _INHERIT = 1 << 5, 1 << 6, 1 << 1
_INHERIT_THREAD, _REMOVE_ON_EXEC, _SIGTRAP = 1 << 35, 1 << 36, 1 << 37
_CLOEXEC = 8


def send(client, kind, where="", **options):
    """One change of the set; its answer."""
    return client.breakpoints(agent.breakpoint(kind, where, **options))


def watch(client, where, **options):
    answer = send(client, agent.WATCH, where, **options)
    assert answer.error == 0, (answer.words, answer.text)
    return answer


def remove(client, number):
    answer = send(client, agent.REMOVE, id=number)
    assert answer.error == 0, (answer.words, answer.text)


def armed(client, slot, change, error=0, route=PERF, words=""):
    return client.wait(client.send(agent.ARMED, ARMED_BODY.pack(slot, change, error, route, words.encode())))


def rows(client, table):
    return ring_file.rows(client.pid, table)


def hits(client, count, timeout=5):
    """The rows of hits, once there are so many."""
    return eventually(lambda: found if len(found := rows(client, "hits")) >= count else None, timeout,
                      f"{count} hits")


def state(client):
    """The last row of each breakpoint."""
    return {row.id: row for row in rows(client, "breakpoints")}


def slots(client):
    """The slots of debug registers, between two changes of them: the agent's thread may be in the midst of one."""
    def at_rest():
        first, second = client.record.read().watches, client.record.read().watches
        return first if first == second and not any(slot["change"] % 2 for slot in first) else None
    return eventually(at_rest, what="slots that are not being changed")


def moved(client, before):
    """The first slot, once it is armed anew, somewhere else than before."""
    def elsewhere():
        slot = slots(client)[0]
        return slot if slot["id"] and slot["change"] != before["change"] else None
    return eventually(elsewhere, what="a move")


class Hardware:
    """Arms what the agent asks for, in all threads and those to come."""

    def __init__(self, client):
        self.client, self.events, self.slots = client, {}, {}

    def _open(self, tid, number, slot):
        flags = _EXCLUDE_KERNEL | _EXCLUDE_HV | _INHERIT | _INHERIT_THREAD | _REMOVE_ON_EXEC | _SIGTRAP
        attr = struct.pack("=IIQQQQQIIQQ48xQ", _BREAKPOINT, 128, 0, 1, 0, 0, flags, 1, _WRITE, slot["address"],
                           slot["length"], slot["change"] << 8 | number)
        got = _libc.syscall(_PERF_EVENT_OPEN, attr, tid, -1, -1, ctypes.c_ulong(_CLOEXEC))
        if got < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return got

    def look(self):
        """Brings it up to date."""
        for number, slot in enumerate(slots(self.client)):
            if self.slots.get(number) == slot:
                continue
            for fd in self.events.pop(number, []):
                os.close(fd)
            if slot["id"]:
                assert self.client.record.trap == 1
                self.events[number] = [self._open(int(tid), number, slot)
                                       for tid in os.listdir(f"/proc/{self.client.pid}/task")]
            if slot["id"] or self.slots.get(number, {}).get("id"):
                assert armed(self.client, number, slot["change"]).error == 0
            self.slots[number] = slot
        return self

    def close(self):
        for fds in self.events.values():
            for fd in fds:
                os.close(fd)
        self.events = {}


def has_hardware():
    if platform.machine() != "x86_64":
        return False
    word = ctypes.c_uint64()
    try:
        os.close(Hardware(None)._open(0, 0, {"address": ctypes.addressof(word), "length": 8, "change": 0}))
    except OSError:
        return False
    return True


needs_hardware = pytest.mark.skipif(not has_hardware(), reason="perf_event_open(2) gives no debug register here")
