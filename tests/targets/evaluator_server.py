"""Runs the Python side of eval without an agent, for tests/evaluator.py.

A thread stands in for the agent's and answers requests, one a line of standard input, in JSON on
descriptor 1: {"text", ...} is evaluated, {"program"} is executed as a part of the program itself,
whose `answer` is the answer. The program's own sys.stdout and stderr only record.
"""
import contextvars
import faulthandler
import io
import json
import os
import sys
import threading
import traceback
import types

gate = threading.Lock()  # that the main thread waits for
gate.acquire()
stream_source, *sources = [open(name, encoding="utf-8").read() for name in sys.argv[1:]]
requests = open(0, encoding="utf-8", closefd=False)


class Recorder(io.StringIO):
    pass


class Module(types.ModuleType):
    """_probe; unlike a plain module it can be watched by a weak reference everywhere."""


def write_local(frame, name, value):
    import ctypes
    frame.f_locals[name] = value
    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def load():
    """Executes the sources in one new namespace, as the agent does."""
    probe = Module("_probe")
    probe.main_thread = threading.main_thread().ident
    probe.stream_source = [stream_source]
    probe.frames_are_safe = lambda: True
    probe.Context, probe.ContextVar = contextvars.Context, contextvars.ContextVar
    if sys.version_info < (3, 13):
        probe.write_local = write_local
    namespace = {"_probe": probe, "__name__": "<probefs>"}
    for source in sources:
        exec(compile(source, "<probefs source>", "exec"), namespace)
    return namespace


def evaluate(text, last=True, thread=None, depth=0, flags=0, limit=1 << 24, before=0):
    """The agent's part; text: str or bytes, thread: None for the main one."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogateescape")
    if thread is None:
        thread = threading.main_thread().ident
    try:
        return agent["evaluate"](text, last, thread, depth, flags, limit, None, before)
    finally:
        agent["restore"]()


def finish(result):
    """Where the main thread stays after the gate has opened."""
    global returned
    returned = result
    threading.Event().wait()


def answer(request):
    if "program" not in request:
        error, done, output, cut, words = evaluate(**request)
        return error, done, output.decode("utf-8", "surrogateescape"), cut, words
    space = {"__name__": "program", "agent": agent, "evaluate": evaluate, "load": load, "sys": sys,
             "threading": threading, "server": sys.modules[__name__]}
    exec(compile(request["program"], "program", "exec"), space)
    return space.get("answer")


def serve():
    while True:  # until the main thread is where it stays
        frame = sys._current_frames()[threading.main_thread().ident]
        if "gate" in frame.f_code.co_names and frame.f_lineno > frame.f_code.co_firstlineno + 5:
            break
    os.write(1, b"ready\n")
    for line in requests:
        try:
            said = {"answer": answer(json.loads(line))}
        except BaseException:
            said = {"problem": traceback.format_exc()}
        os.write(1, json.dumps(said).encode() + b"\n")
    os._exit(0)


def start():
    global agent
    faulthandler.enable(2)
    sys.stdout, sys.stderr = Recorder(), Recorder()
    agent = load()
    threading.Thread(target=serve, name="server").start()
