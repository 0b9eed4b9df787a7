"""Each thread waits in another system call, below C functions that call Python."""
import ctypes
import functools
import json
import os
import queue
import re
import select
import threading
import time

import oracle

COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def wait(*_):
    time.sleep(10**6)


def in_sleep():
    wait()


def in_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def in_timed_lock():
    threading.Event().wait(10**6)


def in_read():
    os.read(os.pipe()[0], 1)


def in_select():
    select.select([os.pipe()[0]], [], [])


def in_epoll():
    poll = select.epoll()
    poll.register(os.pipe()[0])
    poll.poll()


def in_readline():
    open(os.pipe()[0]).readline()


def in_queue():
    queue.SimpleQueue().get()


def by_sorted():
    sorted([1], key=wait)


def by_map():
    list(map(wait, [1]))


def by_qsort():
    numbers = (ctypes.c_int * 2)(2, 1)
    ctypes.CDLL(None).qsort(numbers, 2, 4, COMPARE(wait))


def by_regex():
    re.sub("a", wait, "a")


def by_json():
    json.dumps({1: object()}, default=wait)


def by_generator():
    def generate():
        yield 1
        yield wait()

    sum(generate())


def deep(n=20):
    sorted([1], key=lambda _: deep(n - 1) if n else wait())


waits = [function for name, function in list(globals().items()) if name.startswith(("in_", "by_"))]
for function in [*waits, deep]:
    threading.Thread(target=function, name=function.__name__, daemon=True).start()
oracle.ready_when_still()
functools.partial(functools.reduce, wait, [1, 2])()
