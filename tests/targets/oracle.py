"""What a victim says of itself, for the tests to compare with.

A thread named "oracle" reads commands from standard input: "stacks" prints one line, a literal of Python, with
the stacks of all other threads, as sys._current_frames() has them; "stop" sets the event of that name, which busy
victims heed. At the end of the input the victim ends. SIGUSR1 makes faulthandler write all stacks to standard error.
"""
import _signal  # json and signal would take longer to import than Python to start
import faulthandler
import os
import sys
import threading
import time

stop = threading.Event()


def stacks():
    named = {t.ident: t for t in threading.enumerate()}
    said = {}
    for ident, frame in sys._current_frames().items():
        thread = named.get(ident)
        if thread is None or thread.name == "oracle":
            continue
        frames = []
        while frame is not None:
            code = frame.f_code
            frames.append((getattr(code, "co_qualname", code.co_name), code.co_filename,
                           frame.f_lineno))
            frame = frame.f_back
        said[thread.native_id] = {"name": thread.name, "frames": frames, "ident": ident,
                                  "main": thread is threading.main_thread()}
    return said


def forever():
    """Waits for ever, in a lock: where the stack of a parked thread ends."""
    _never.acquire()


def _parked():
    return sum(frame.f_code is forever.__code__ and frame.f_lineno > frame.f_code.co_firstlineno
               for frame in sys._current_frames().values())


def _sleeps(tid):
    """In a root without /proc nobody knows: what has not moved for a while sleeps."""
    try:
        with open(f"/proc/self/task/{tid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "S"
    except FileNotFoundError:
        return True


def _settle(parked):
    """Returns once so many threads are parked, and no other one has moved for a while, nor wants to."""
    while _parked() < parked:
        time.sleep(0.002)
    still, before = 0, None
    while still < 10:
        now = stacks()
        still = still + 1 if now == before and all(map(_sleeps, now)) else 0
        before = now
        time.sleep(0.005)


def _listen(parked):
    if parked is not None:
        _settle(parked)
        print("ready", flush=True)
    for line in sys.stdin:
        if line == "stacks\n":
            print(ascii(stacks()), flush=True)
        elif line == "stop\n":
            stop.set()
    os._exit(0)


def _start(parked):
    faulthandler.register(_signal.SIGUSR1, all_threads=True)
    threading.Thread(target=_listen, args=(parked,), name="oracle", daemon=True).start()


def ready():
    """Says so now: for victims that keep moving."""
    _start(None)
    print("ready", flush=True)


def ready_when_still(parked=0):
    """Says so once `parked` threads are in forever() and all others stand still."""
    _start(parked)


def park(others=0):
    """Waits for ever; "ready" is said once that and so many other threads do."""
    _start(others + 1)
    forever()


_never = threading.Lock()
_never.acquire()
