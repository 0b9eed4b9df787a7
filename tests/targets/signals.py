"""Busy in Python; answers each SIGUSR2 with a line, handled in Python."""
import signal

import oracle

pending = 0


def handle(number, frame):
    global pending
    pending += 1


def work(n):
    return sum(i * i for i in range(n))


signal.signal(signal.SIGUSR2, handle)
oracle.ready()
told = 0
while True:
    work(50)
    while told < pending:
        told += 1
        print(f"signal {told}", flush=True)
