"""What a victim says of itself, for the tests to compare with.

A thread named "oracle" reads commands from standard input: "stacks" prints one line of JSON with
the stacks of all other threads, as sys._current_frames() has them; "stop" sets the event of that
name, which busy victims heed. At the end of the input the victim ends. SIGUSR1 makes faulthandler write all stacks to standard error.
"""
import faulthandler
import json
import os
import signal
import sys
import threading

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


def _listen():
    for line in sys.stdin:
        if line == "stacks\n":
            print(json.dumps(stacks()), flush=True)
        elif line == "stop\n":
            stop.set()
    os._exit(0)


def ready():
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    threading.Thread(target=_listen, name="oracle", daemon=True).start()
    print("ready", flush=True)


def park():
    """Says "ready" and waits for ever, in a lock."""
    ready()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
