"""Threads sleep in epoll_wait, which a stop makes return early (EINTR), while one is busy in
Python; prints at "stop" how many of them came back."""
import ctypes
import threading

import oracle

libc = ctypes.CDLL(None)
returned = []


def sleep():
    event = (ctypes.c_char * 12)()
    returned.append(libc.epoll_wait(libc.epoll_create1(0), event, 1, -1))


for i in range(4):
    threading.Thread(target=sleep, name=f"epoll-{i}", daemon=True).start()
oracle.ready()
while not oracle.stop.is_set():
    sum(range(1000))
print(len(returned), flush=True)
