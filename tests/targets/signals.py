"""Busy in Python; answers each SIGUSR2 with a line, handled in Python.

While the main thread is stopped by a tracer the kernel gives a signal to another thread, and up to
3.11 CPython's main thread does not notice that before it is asked for the GIL the next time. So a
thread asks for it now and then, as in any program with threads.
"""
import signal
import threading
import time

import oracle

pending = 0


def handle(number, frame):
    global pending
    pending += 1


def work(n):
    return sum(i * i for i in range(n))


def ask():
    while True:
        time.sleep(0.05)


signal.signal(signal.SIGUSR2, handle)
threading.Thread(target=ask, daemon=True).start()
oracle.ready()
told = 0
while True:
    work(50)
    while told < pending:
        told += 1
        print(f"signal {told}", flush=True)
