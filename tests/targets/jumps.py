"""CPython's own samples of jumps, those of JumpTestCase in its test_sys_settrace: jumps.py trace|wait.

trace: does all of them with sys.settrace() and prints a line of JSON for each: its name, where it jumped, and
what came of it. wait: runs each whose name it reads, and prints what came of that; SIGINT raises there what a
jump that is refused raises in a trace function."""
import asyncio
import inspect
import json
import signal
import sys
import unittest
import warnings

from test import test_sys_settrace

# they run by themselves, jump to what is no number, or have 100,000 lines
OTHERS = {"test_no_jump_without_trace_function", "test_jump_to_firstlineno", "test_no_jump_to_non_integers",
          "test_jump_extended_args_for_iter"}


class Samples(test_sys_settrace.JumpTestCase):
    def run_test(self, function, at, to, expected, error=None, event="line", decorated=False, **others):
        self.sample = {"function": function, "at": at, "to": to, "event": event, "decorated": decorated}

    run_async_test = run_test

    @classmethod
    def all(cls):
        for name in unittest.TestLoader().getTestCaseNames(cls):
            if name not in OTHERS:
                case = cls(name)
                getattr(case, name)()
                yield name, case.sample


def code_of(function):
    return inspect.unwrap(function).__code__


def run(function, output):
    """What it raises: a type and a text; None: nothing."""
    try:
        if inspect.iscoroutinefunction(inspect.unwrap(function)):
            asyncio.run(function(output))
        else:
            function(output)
    except Exception as error:
        return [type(error).__name__, str(error)]


def is_inside(frame, code):
    while frame and frame.f_code is not code:
        frame = frame.f_back
    return frame


def trace(name, function, at, to, event, decorated):
    code, found = code_of(function), {"name": name, "event": event, "refused": None}
    first = None if decorated else code.co_firstlineno

    def tracer(frame, what, arg):
        nonlocal first
        if "line" in found:
            return None
        if first is None and frame.f_code is code and what == "line":
            first = frame.f_lineno - 1
        if what == event and first is not None and frame.f_lineno == first + at and is_inside(frame, code):
            found.update(line=first + at, to=first + to, function=frame.f_code.co_name,
                         file=frame.f_code.co_filename)
            try:
                frame.f_lineno = first + to
            except ValueError as error:
                found["refused"] = str(error)
                raise
        return tracer

    found["output"] = []
    sys.settrace(tracer)
    found["error"] = run(function, found["output"])
    sys.settrace(None)
    print(json.dumps(found), flush=True)


def raise_refused(*_):
    raise ValueError("refused")


def main():
    warnings.simplefilter("ignore")
    samples = dict(Samples.all())
    if sys.argv[1] == "trace":
        for name, sample in samples.items():
            trace(name, **sample)
        return
    import probing  # noqa: F401, with it comes the agent
    signal.signal(signal.SIGINT, raise_refused)
    print("ready", flush=True)
    for name in sys.stdin:
        output = []
        error = run(samples[name.strip()]["function"], output)
        print(json.dumps([output, error]), flush=True)


main()
