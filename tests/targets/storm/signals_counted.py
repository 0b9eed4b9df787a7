"""signals_counted.py: sends itself signals: each is handled once, and none of those that queue is
lost; the thread's signal mask stays what it was."""
import os
import signal
import time

import workload

LATE = 5  # seconds after which a signal that was not handled counts as lost
QUEUED = signal.SIGRTMIN + 3
pid = os.getpid()
handled = 0
ticks = 0


def handle(number, frame):
    global handled
    handled += 1


def tick(number, frame):
    global ticks
    ticks += 1


signal.signal(signal.SIGUSR1, handle)
signal.signal(signal.SIGALRM, tick)
signal.pthread_sigmask(signal.SIG_BLOCK, [QUEUED])
signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)


def eventually(condition):
    end = time.monotonic() + LATE
    while not condition() and time.monotonic() < end:
        pass
    return condition()


def work(index):
    while True:
        for _ in range(20):
            before = handled
            os.kill(pid, signal.SIGUSR1)
            eventually(lambda: handled > before)
            workload.same(handled, before + 1 + workload.harmed, "signals handled")
        for _ in range(5):
            os.kill(pid, QUEUED)
        got = 0
        while signal.sigtimedwait([QUEUED], 0):
            got += 1
        workload.same(got, 5, "signals that were queued")
        workload.same(signal.pthread_sigmask(signal.SIG_BLOCK, []), {QUEUED}, "signal mask")
        before = ticks
        workload.same(eventually(lambda: ticks > before), True, "a timer's tick")
        time.sleep(0.0003)
        yield


workload.run(work)
signal.setitimer(signal.ITIMER_REAL, 0)  # at exit its handler goes before it does
