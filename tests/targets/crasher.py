"""Fails in the ways that it is told to, one a line of its input. Its hooks print what Python's own traceback module
says of the exception, as a line of JSON."""
import _thread
import ctypes
import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import traceback

if "probing" in sys.argv:
    import probing  # noqa: F401


class Angry:
    """What must not be called in a process that fails."""

    def __init__(self):
        self.calm, self.parts = False, [1, {2: (3,)}]

    def __repr__(self):
        print("asked", flush=True)
        return "angry"

    __str__ = __repr__


class OwnError(Exception):
    pass


def leaf(number, angry):
    text = "x" * number
    parts = {"one": [1, 2.5, None], "two": (angry, b"\0")}
    raise OwnError("too", number)


def branch(number):
    angry = Angry()
    try:
        {}["key"]
    except KeyError:
        leaf(number, angry)


def caused():
    try:
        branch(1)
    except OwnError as error:
        raise RuntimeError("in the end") from error


def group():
    errors = []
    for n in 1, 2:
        try:
            branch(n)
        except OwnError as error:
            errors.append(error)
    raise ExceptionGroup("many", [errors[0], ExceptionGroup("inner", [errors[1]])])


def deep(n):
    return deep(n + 1)


WAYS = {
    "branch": lambda: branch(300),
    "caused": caused,
    "group": group,
    "deep": lambda: deep(0),
    "exit": lambda: sys.exit(3),
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
    "segv": lambda: ctypes.string_at(8),
    "abort": os.abort,
    "bus": lambda: signal.raise_signal(signal.SIGBUS),
    "fpe": lambda: os.kill(os.getpid(), signal.SIGFPE),
    "fault": faulthandler._sigsegv,
    "overflow": faulthandler._stack_overflow,
}


def put(line):
    """In one piece, whoever else writes."""
    os.write(1, f"{line}\n".encode())


def say(where, error):
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    put(json.dumps({
        "hook": where,
        "tid": threading.get_native_id(),
        "type": type(error).__name__,
        "frames": [[f.name, f.filename, f.lineno] for f in reversed(traceback.extract_tb(error.__traceback__))],
        "before": type(before).__name__ if before else None,
    }))


def in_main(kind, error, trace):
    say("sys", error)


def in_thread(args):
    say("threading", args.exc_value)


def in_raw_thread(args):
    say("unraisable", args.exc_value)


def own_hooks():
    sys.excepthook, threading.excepthook, sys.unraisablehook = in_main, in_thread, in_raw_thread


def child(code):
    """What becomes of a child that runs this, as wait(2) says."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        thread = threading.Thread(target=exec, args=(code, globals()))  # its failure ends nothing
        thread.start()
        thread.join()
        exec(code, globals())
    return os.waitpid(pid, 0)[1] & 0xff7f


def run(line):
    words = line.split()
    if words[0] == "thread":
        thread = threading.Thread(target=WAYS[words[1]])
        thread.start()
        thread.join()
    elif words[0] == "raw":
        _thread.start_new_thread(WAYS[words[1]], ())
    elif words[0] == "do":
        exec(line[3:], globals())
    else:
        WAYS[words[0]]()


print("ready", flush=True)
for line in sys.stdin:
    run(line)
    put("done")
