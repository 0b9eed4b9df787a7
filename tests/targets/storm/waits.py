"""waits.py [python]: waits in one way after the other, in Python's and in the C library's own; each
must last as long as it was asked to, and return what it does when nothing happens. "python": only
Python's own."""
import ctypes
import errno
import os
import select
import signal
import socket
import sys
import threading
import time

import workload

libc = ctypes.CDLL(None, use_errno=True)
EMPTY, FULL = os.pipe()
SHORT = 0.02


class timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


def raw(function, *arguments):
    """What a C function returns, and errno if that is -1."""
    ctypes.set_errno(0)
    result = function(*arguments)
    return (result, ctypes.get_errno()) if result == -1 else result


duration = timespec(0, int(SHORT * 1e9))
left = timespec()
milliseconds = int(SHORT * 1e3)
epoll = select.epoll()
epoll.register(EMPTY, select.EPOLLIN)
poll = select.poll()
poll.register(EMPTY, select.POLLIN)
events = (ctypes.c_char * 64)()
alarm_set = (ctypes.c_ulong * 16)(1 << signal.SIGUSR2 - 1)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])  # what is waited for is blocked
near, far = socket.socketpair()
near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bytes(timespec(0, int(SHORT * 1e6))))
room = ctypes.create_string_buffer(1)
lock, condition = threading.Lock(), threading.Condition()
lock.acquire()


def condition_wait():
    with condition:
        return condition.wait(SHORT)


WAITS = {
    "time.sleep": (lambda: time.sleep(SHORT), None),
    "select": (lambda: select.select([EMPTY], [], [], SHORT), ([], [], [])),
    "poll": (lambda: poll.poll(milliseconds), []),
    "epoll": (lambda: epoll.poll(SHORT), []),
    "lock": (lambda: lock.acquire(timeout=SHORT), False),
    "condition": (condition_wait, False),
    "nanosleep()": (lambda: raw(libc.nanosleep, ctypes.byref(duration), ctypes.byref(left)), 0),
    "usleep()": (lambda: raw(libc.usleep, int(SHORT * 1e6)), 0),
    "poll()": (lambda: raw(libc.poll, None, 0, milliseconds), 0),
    "epoll_wait()": (lambda: raw(libc.epoll_wait, epoll.fileno(), events, 1, milliseconds), 0),
    "sigtimedwait()": (lambda: raw(libc.sigtimedwait, alarm_set, None, ctypes.byref(duration)),
                       (-1, errno.EAGAIN)),
    "recv()": (lambda: raw(libc.recv, near.fileno(), room, 1, 0), (-1, errno.EAGAIN)),
}

if "python" in sys.argv[1:]:
    WAITS = {name: wait for name, wait in WAITS.items() if not name.endswith("()")}


def work(index):
    while True:
        for name, (wait, wanted) in WAITS.items():
            if workload.harmed:
                os.write(FULL, b"x")
            begin = time.monotonic()
            workload.same(wait(), wanted, name)
            workload.lasted(begin, SHORT, name)
            yield


workload.run(work)
