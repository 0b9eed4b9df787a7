"""wakened.py: the main thread waits for ever, and another one wakes it by a signal whose handler
raises, or by a byte; neither may be lost, nor come late."""
import os
import random
import select
import signal
import threading
import time

import workload

LATE = 5  # seconds
begun = threading.Semaphore(0)
reader, writer = os.pipe()


class Woken(Exception):
    pass


def handle(number, frame):
    raise Woken


signal.signal(signal.SIGUSR1, handle)


def wait(by_signal):
    try:
        begun.release()
        ready, _, _ = select.select([reader], [], [], LATE)
        if ready and os.read(reader, 1) and not by_signal:
            return "byte"
    except Woken:
        return "signal"
    return "nothing"


def sleep():
    """For the whole while: the wait may be woken by what comes only after it."""
    time.sleep(0.001 + dice.random() * 0.01)


dice = random.Random(1)


def work(index):
    turn = 0
    while True:
        turn += 1
        by_signal = turn % 2
        if index == 0:
            workload.same(wait(by_signal), "signal" if by_signal else "byte", "woken by")
        elif not begun.acquire(timeout=0.05):
            turn -= 1  # the main thread rests
        else:
            sleep()
            if by_signal and not workload.harmed:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            else:
                os.write(writer, b"x")
        yield


workload.run(work, 2)
