"""Threads wait in epoll_wait, which a stop makes return early (EINTR), while one is busy in
Python; prints at "stop" how often that happened to them."""
import ctypes
import errno
import threading

import oracle

libc = ctypes.CDLL(None, use_errno=True)
calls = interrupted = 0


def wait_and_count():
    global calls, interrupted
    epoll = libc.epoll_create1(0)
    event = (ctypes.c_char * 12)()
    while True:
        result = libc.epoll_wait(epoll, event, 1, 200)
        calls += 1
        if result < 0 and ctypes.get_errno() == errno.EINTR:
            interrupted += 1


for i in range(4):
    threading.Thread(target=wait_and_count, name=f"epoll-{i}", daemon=True).start()
oracle.ready()
while not oracle.stop.is_set():
    sum(range(1000))
print(calls, interrupted, flush=True)
