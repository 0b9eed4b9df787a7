"""probefs-dap: what an editor asks by the Debug Adapter Protocol, over the files."""
import json
import os
import re
import signal

import pytest

from dap import Adapter
from interpreters import eventually
from mount import REPOSITORY
from test_jobs import job_of

pytestmark = pytest.mark.python(minimum=(3, 10))

SOURCE = """
import contextlib, sys, threading

class Node:
    def __init__(self, depth):
        self.depth = depth
        self.kids = [Node(depth - 1)] if depth else []
        self.names = {"a'b": depth, (1, 2): {3}}

def leaf(x):
    y = x * 2
    return y

def turn(i):
    node = Node(2)
    total = 0
    for k in range(3):
        total += k
    total += leaf(i)
    return total

def fail(i):
    try:
        raise KeyError(i)
    except KeyError:
        pass
    return i

def calls(i):
    return sum(map(leaf, [i, i + 1]))

def hooked(i):
    with contextlib.ExitStack() as stack:
        stack.callback(leaf, i)
    return i

print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


def line_of(text, after=""):
    return SOURCE.splitlines().index(text, SOURCE.splitlines().index(after) if after else 0) + 1


BODY, LEAF, RETURN = line_of("        total += k"), line_of("    y = x * 2"), line_of("    return total")


class Debugged:
    """A program, and an editor that is to debug it."""

    def __init__(self, probe, python):
        self.target = python.run_source(SOURCE)
        self.pid, self.file = self.target.pid, self.target.path()
        self.directory = probe.path / str(self.pid)
        self.editor = Adapter(probe.path)

    def attach(self, *lines, **arguments):
        return self.editor.attach((self.file, lines), processId=self.pid, **arguments)[0]

    def held(self):
        return re.search(r"^Stopped: (.*)$", (self.directory / "status").read_text(), re.M)[1]

    def lines(self):
        """What stands in the file breakpoints."""
        text = (self.directory / "breakpoints").read_text()
        return [line for line in text.splitlines() if not line.startswith("#")]

    def asked_for(self):
        """Of these, what the editor wants; the program's own breakpoint() always stops."""
        return [line for line in self.lines() if "stop for 7d breakpoint()" not in line]


@pytest.fixture
def debugged(probe, python):
    debugged = Debugged(probe, python)
    yield debugged
    if debugged.editor.process.poll() is None:
        assert debugged.editor.close() == 0
    if debugged.target.process.poll() is None:
        eventually(lambda: debugged.lines() == [] and debugged.held() == "none", what="that nothing is left behind")
        assert debugged.target.stderr() == ""


def test_walk(debugged):
    """As an editor goes: stops, looks, changes, steps, and leaves."""
    editor = debugged.editor
    shown = debugged.attach(BODY, {"line": LEAF, "condition": "x > 100"})
    assert [(one["verified"], one["line"]) for one in shown] == [(True, BODY), (True, LEAF)]
    assert editor.event("process")["systemProcessId"] == debugged.pid
    debugged.target.send("turn(21)")
    thread = editor.stopped("breakpoint")
    assert thread == debugged.pid and thread in [one["id"] for one in editor.ask("threads")["threads"]]
    frames = editor.frames(thread)
    assert [(frame["name"], frame["line"])
            for frame in frames[:1]] == [("turn", BODY)] and frames[-1]["name"] == "<module>"
    variables, scope = editor.locals(frames[0]["id"])
    assert {name: one["value"] for name, one in variables.items() if name != "node"} == {"i": "21", "total": "0",
                                                                                         "k": "0"}
    assert variables["i"]["variablesReference"] == 0
    node = editor.variables(variables["node"]["variablesReference"])
    assert node["depth"]["value"] == "2"
    kid = editor.variables(node["kids"]["variablesReference"])["0"]
    names = editor.variables(editor.variables(kid["variablesReference"])["names"]["variablesReference"])
    assert {name: one["value"] for name, one in names.items()} == {'"a\'b"': "1", "(1, 2)": "{3}"}
    editor.ask("setVariable", variablesReference=scope, name="total", value="100")
    assert editor.ask("setExpression", expression="node.kids[0].depth", value="7",
                      frameId=frames[0]["id"])["value"] == "7"
    assert editor.evaluate("total + node.kids[0].depth", frames[0]["id"])["result"] == "107"
    editor.ask("next", threadId=thread)
    assert editor.stopped("step") == thread
    editor.set(debugged.file, [])
    for request, name, line in (("next", "turn", BODY), ("next", "turn", BODY - 1), ("next", "turn", BODY),
                                ("next", "turn", BODY - 1), ("next", "turn", BODY + 1), ("stepIn", "leaf", LEAF),
                                ("stepOut", "turn", RETURN)):
        editor.ask(request, threadId=thread)
        assert editor.stopped("step") == thread
        frame = editor.frame(thread)
        if (frame["name"], frame["line"]) != (name, line):  # CPython 3.10 goes back to the loop's head before its end
            assert name == "turn" and frame["line"] in (BODY - 1, BODY, BODY + 1), (frame, name, line)
    assert editor.locals(editor.frame(thread)["id"])[0]["total"]["value"] == "145"
    assert "gone on" in editor.refused("scopes", frameId=frames[0]["id"])
    assert editor.ask("continue", threadId=thread) == {"allThreadsContinued": False}
    debugged.target.expect("145")


def test_breakpoints_while_held(debugged):
    """What is wanted still stays, and what is wanted no more goes once it holds nobody: a new breakpoint lets nobody
    go."""
    editor = debugged.editor
    first = debugged.attach(BODY)[0]
    debugged.target.send("turn(1)")
    thread = editor.stopped("breakpoint")
    again, more = editor.set(debugged.file, [BODY, RETURN])
    assert again == first and more["line"] == RETURN and debugged.held() == str(thread)
    assert editor.set(debugged.file, []) == [] and debugged.held() == str(thread)
    assert f":{BODY}" in debugged.asked_for()[0] and len(debugged.asked_for()) == 1  # which holds it
    editor.ask("continue", threadId=thread)
    debugged.target.expect("5")
    eventually(lambda: debugged.asked_for() == [], what="the line's end")
    assert [event["event"] for event in editor.events if event["event"] == "stopped"] == []


COUNTS = {"3": [3], "== 3": [3], "> 3": [4, 5, 6], ">=5": [5, 6], "<3": [1, 2], "<= 2": [1, 2], "%2": [2, 4, 6]}


@pytest.mark.python(minimum=(3, 12), maximum=(3, 13))
def test_hit_counts(debugged):
    editor = debugged.editor
    debugged.attach()
    for count, expected in COUNTS.items():
        shown, = editor.set(debugged.file, [{"line": LEAF, "hitCondition": count}])
        assert shown["verified"], shown
        debugged.target.send("[leaf(i) for i in range(1, 7)][0]")
        for value in expected:
            thread = editor.stopped("breakpoint")
            assert editor.locals(editor.frame(thread)["id"])[0]["x"]["value"] == str(value), count
            editor.ask("continue", threadId=thread)
        debugged.target.expect("2")
        editor.set(debugged.file, [])  # the same one would go on counting
    shown, = editor.set(debugged.file, [{"line": LEAF, "hitCondition": "often"}])
    assert not shown["verified"] and ">=3" in shown["message"]


@pytest.mark.python(minimum=(3, 11), maximum=(3, 13))
def test_what_is_logged(debugged):
    """A message is evaluated, whatever it is made of; a condition that raises is told once."""
    editor = debugged.editor
    node = "{node.names[\"a'b\"]}"
    shown = debugged.attach({"line": RETURN, "logMessage": "total is {total!r:>5}, 'i' is \"{i}\" \\ {{so}} " + node},
                            {"line": LEAF, "logMessage": "never", "condition": "nothing > 1"},
                            {"line": BODY, "condition": "nothing > 1"})
    assert [one["verified"] for one in shown] == [True, True, True], shown
    debugged.target.send("turn(4)")
    debugged.target.expect("11")
    said = [editor.event("output")["output"] for _ in range(3)]
    assert sorted(said)[-1] == "total is    11, 'i' is \"4\" \\ {so} 2\n"
    assert all("NameError: name 'nothing' is not defined" in one for one in sorted(said)[:2])
    assert not any(event["event"] == "stopped" for event in editor.events)


def test_exceptions(debugged):
    """Raised in the program's own code, of one class or any; and what isn't asked for doesn't stop. There is an answer
    for each filter."""
    editor = debugged.editor
    debugged.attach()
    of_values = [{"filterId": "raised", "condition": "ValueError"}]
    of_lookups = [{"filterId": "raised", "condition": "LookupError"}]
    for options, stops in (({"filters": ["raised"]}, True), ({"filters": [], "filterOptions": of_values}, False),
                           ({"filters": ["uncaught"], "filterOptions": of_lookups}, True), ({"filters": []}, False)):
        shown = editor.ask("setExceptionBreakpoints", **options)["breakpoints"]
        asked = len(options["filters"]) + len(options.get("filterOptions", []))
        assert [one["verified"] for one in shown] == [True] * asked
        debugged.target.send("fail(3)")
        if stops:
            event = editor.event("stopped")
            assert (event["reason"], event["text"], event["description"]) == ("exception", "KeyError", "3")
            info = editor.ask("exceptionInfo", threadId=event["threadId"])
            assert (info["exceptionId"], info["breakMode"], info["details"]["message"]) == ("KeyError", "always", "3")
            assert info["details"]["source"] == debugged.file
            assert editor.frame(event["threadId"])["name"] == "fail"
            editor.ask("continue", threadId=event["threadId"])
        debugged.target.expect("3")
    refused = editor.ask("setExceptionBreakpoints", filters=["often", "raised"])["breakpoints"]
    assert [one["verified"] for one in refused] == [False, True]
    assert "raised, userUnhandled and uncaught" in refused[0]["message"]


def test_user_uncaught(debugged):
    """As it leaves the program's own code for a library's, which catches it or not."""
    editor = debugged.editor
    debugged.attach()
    shown = editor.ask("setExceptionBreakpoints", filters=["userUnhandled"])["breakpoints"]
    if debugged.target.interpreter.version < (3, 12):
        assert not shown[0]["verified"] and "from CPython 3.12 on" in shown[0]["message"]
        return
    assert shown[0]["verified"]
    debugged.target.send("fail(3)")
    debugged.target.expect("3")  # it catches it itself
    debugged.target.send("threading.Thread(target=lambda: turn('a')).start()")
    event = editor.event("stopped")
    debugged.target.expect("None")
    assert (event["reason"], event["text"]) == ("exception", "TypeError")
    assert editor.ask("exceptionInfo", threadId=event["threadId"])["breakMode"] == "userUnhandled"
    assert editor.frame(event["threadId"])["name"] == "<lambda>"
    editor.ask("continue", threadId=event["threadId"])
    eventually(lambda: "TypeError" in debugged.target.stderr(), what="what the program says of it")
    debugged.target.close()


def test_uncaught(debugged):
    """A thread is held at what nobody caught: where, with what, and asked in any of its frames. Afterwards on-crash is
    as before."""
    editor = debugged.editor
    (debugged.directory / "ctl").write_text("on-crash record\n")
    debugged.attach()
    editor.ask("setExceptionBreakpoints", filters=["uncaught"])
    debugged.target.send("threading.Thread(target=lambda: turn('a')).start()")
    debugged.target.expect("None")
    event = editor.event("stopped")
    assert (event["reason"], event["text"]) == ("exception", "TypeError")
    frames = editor.frames(event["threadId"])
    assert (frames[0]["name"], frames[0]["line"]) == ("turn", line_of("    total += leaf(i)"))
    variables, _ = editor.locals(frames[0]["id"])
    assert (variables["i"]["value"], variables["total"]["value"]) == ("'a'", "3")
    assert editor.evaluate("total * 2", frames[0]["id"])["result"] == "6"
    info = editor.ask("exceptionInfo", threadId=event["threadId"])
    assert info["breakMode"] == "unhandled" and "in turn" in info["details"]["stackTrace"]
    editor.ask("disconnect")
    eventually(lambda: debugged.held() == "none", what="the thread's end")
    eventually(lambda: "OnCrash: record" in (debugged.directory / "ctl").read_text(), what="that on-crash is as before")
    eventually(lambda: "TypeError" in debugged.target.stderr(), what="what the program says of it")
    debugged.target.close()


def test_functions_and_data(debugged):
    editor = debugged.editor
    debugged.attach()
    shown = editor.ask("setFunctionBreakpoints",
                       breakpoints=[{"name": ""}, {"name": "leaf()"}, {"name": "a b"}])["breakpoints"]
    assert [one["verified"] for one in shown] == [False, True, False]
    debugged.target.send("calls(5)")
    event = editor.event("stopped")
    assert (event["reason"], event["hitBreakpointIds"]) == ("function breakpoint", [shown[1]["id"]])
    thread = event["threadId"]
    frames = editor.frames(thread)
    names = [frame["name"] for frame in frames if frame.get("presentationHint") != "subtle"]
    assert names == ["leaf", "calls", "<module>", "<module>"][:len(names)]
    subtle = [frame for frame in frames if frame.get("presentationHint") == "subtle"]
    # sum() and map() call it
    assert subtle and all(frame["source"]["presentationHint"] == "deemphasize" for frame in subtle)
    assert frames[0]["name"] == "leaf" and frames[-1]["name"] == "<module>"
    _, scope = editor.locals(frames[0]["id"])
    info = editor.ask("dataBreakpointInfo", variablesReference=scope, name="x")
    assert info["dataId"].startswith(f"x in {thread}/0  # ") and info["accessTypes"] == ["write"]
    data = editor.ask("setDataBreakpoints",
                      breakpoints=[{"dataId": info["dataId"]}, {"dataId": "x", "accessType": "read"}])["breakpoints"]
    assert [one["verified"] for one in data] == [True, False]
    editor.ask("setFunctionBreakpoints", breakpoints=[])
    editor.ask("setDataBreakpoints", breakpoints=[])
    editor.ask("continue", threadId=thread)
    debugged.target.expect("22")


def test_data_of_a_frame(debugged):
    """What a thread's frame has is watched as long as that call lasts."""
    editor = debugged.editor
    debugged.attach(LEAF)
    debugged.target.send("threading.Thread(target=turn, args=[2]).start()")
    debugged.target.expect("None")
    thread = editor.stopped("breakpoint")
    assert thread != debugged.pid
    frame = next(frame["id"] for frame in editor.frames(thread) if frame["name"] == "turn")
    _, scope = editor.locals(frame)
    for where in {"variablesReference": scope}, {"frameId": frame}:
        data = editor.ask("dataBreakpointInfo", name="total", **where)
        assert data["dataId"].startswith(f"total in {thread}/1  # ")
    wanted = [{"dataId": data["dataId"], "condition": "new > 5"}]
    (shown,) = editor.ask("setDataBreakpoints", breakpoints=wanted)["breakpoints"]
    assert shown["verified"]
    editor.ask("continue", threadId=thread)
    event = editor.event("stopped")
    assert (event["reason"], event["threadId"], event["hitBreakpointIds"]) == ("data breakpoint", thread, [shown["id"]])
    assert editor.locals(editor.frame(thread)["id"])[0]["total"]["value"] == "7"
    editor.ask("continue", threadId=thread)
    changed = editor.event("breakpoint")["breakpoint"]
    assert (changed["id"], changed["verified"], changed["message"]) == (shown["id"], False, "its frame has returned")
    (again,) = editor.ask("setDataBreakpoints", breakpoints=wanted)["breakpoints"]
    assert again["id"] == shown["id"] and not again["verified"]
    editor.ask("setDataBreakpoints", breakpoints=[])
    (again,) = editor.ask("setDataBreakpoints", breakpoints=wanted)["breakpoints"]
    assert not again["verified"] and "its thread has gone on" in again["message"]


def test_globals_data(debugged):
    """A global of the main module is watched wherever it is written."""
    editor = debugged.editor
    debugged.attach(RETURN)
    debugged.target.send("turn(2)")
    frame = editor.frame(editor.stopped("breakpoint"))["id"]
    scope = editor.ask("scopes", frameId=frame)["scopes"][1]["variablesReference"]
    assert editor.ask("dataBreakpointInfo", variablesReference=scope, name="line")["dataId"] == "line"


def test_goto(debugged):
    editor = debugged.editor
    debugged.attach(LEAF)
    debugged.target.send("turn(2)")
    thread = editor.stopped("breakpoint")

    def target(line, file=debugged.file):
        return editor.ask("gotoTargets", source={"path": file}, line=line)["targets"][0]["id"]
    assert "function" in editor.refused("goto", threadId=thread, targetId=target(RETURN, "/other.py"))
    assert editor.refused("goto", threadId=thread, targetId=target(RETURN))  # of another function
    editor.ask("goto", threadId=thread, targetId=target(LEAF + 1))
    assert editor.stopped("goto") == thread and editor.frame(thread)["line"] == LEAF + 1
    editor.evaluate("globals().update(y=None)", editor.frame(thread)["id"])
    editor.ask("goto", threadId=thread, targetId=target(LEAF))
    assert editor.stopped("goto") == thread
    editor.ask("continue", threadId=thread)
    debugged.target.expect("7")


def test_evaluate(debugged):
    editor = debugged.editor
    debugged.attach(RETURN)
    debugged.target.send("turn(2)")
    frame = editor.frame(editor.stopped("breakpoint"))["id"]
    shown = editor.evaluate("[node, {'k': (1, 2)}]", frame)
    second = editor.variables(shown["variablesReference"])["1"]
    assert shown["type"] == "list" and editor.variables(second["variablesReference"])["'k'"]["value"] == "(1, 2)"
    for expression, words in (("1 / 0", "ZeroDivisionError: division by zero"),
                              ("nothing", "NameError: name 'nothing' is not defined"), ("1 +", "SyntaxError:")):
        for context in "watch", "repl":
            assert editor.refused("evaluate", expression=expression, frameId=frame, context=context).startswith(words)
    assert editor.evaluate("for i in range(3): print(i)", frame, context="repl")["result"] == "0\n1\n2\n"
    assert editor.evaluate("print('said', end='') or 5", frame, context="repl")["result"] == "5"
    assert editor.event("output")["output"] == "said"
    assert editor.evaluate("'\\x00\\ud800\\n' + chr(0x1f600)", frame)["result"] == "'\\x00\\ud800\\n\U0001f600'"
    assert len(editor.evaluate("'a' * 5000", frame)["result"]) < 3000
    assert len(editor.evaluate("'a' * 5000", frame, context="clipboard")["result"]) == 5002
    completed = editor.ask("completions", text="x = node.ki", column=12, frameId=frame)["targets"]
    assert completed == [{"label": "kids", "type": "field", "start": 9, "length": 2}]
    assert completed == editor.ask("completions", text="x = node.KI", column=12, frameId=frame)["targets"]
    assert "node" in [one["label"] for one in editor.ask("completions", text="no", column=3, frameId=frame)["targets"]]
    assert editor.evaluate("len(sys.argv)")["result"] == "1"  # in no frame


MADE = """class Loud:
    def __repr__(self):
        raise SystemExit("repr was called")

def made(x):
    many, kept = list(range(3000)), [Loud(), {"it's": (1, 2), (3, 4): [5]}]
    return leaf(x)
"""


def test_what_no_code_runs_for(debugged):
    """Values are opened from outside, in parts, and text that lies in no file is shown."""
    editor = debugged.editor
    debugged.attach(LEAF)
    entry = f"{{'<made!>': (1, None, {MADE!r}.splitlines(True), '')}}"
    debugged.target.send(f"[__import__('linecache').cache.update({entry}), "
                         f"exec(compile({MADE!r}, '<made!>', 'exec'), globals()), made(2)][2]")
    frame = next(one for one in editor.frames(editor.stopped("breakpoint")) if one["name"] == "made")
    number = frame["source"]["sourceReference"]
    assert editor.ask("source", source=frame["source"], sourceReference=number)["content"] == MADE
    variables, _ = editor.locals(frame["id"])
    many, kept = variables["many"], variables["kept"]["variablesReference"]
    assert many["indexedVariables"] == 3000
    shown = editor.ask("variables", variablesReference=many["variablesReference"])["variables"]
    assert [one["name"] for one in shown] == [*map(str, range(1000)), "..."]
    part = editor.ask("variables", variablesReference=many["variablesReference"], start=2990, count=5)["variables"]
    assert [(one["name"], one["value"]) for one in part] == [(str(n), str(n)) for n in range(2990, 2995)]
    assert part[0]["evaluateName"] == "many[2990]"
    shown = editor.variables(kept)
    assert shown["0"]["value"].startswith("<__main__.Loud object at ")
    inner = editor.variables(shown["1"]["variablesReference"])
    assert {name: one["value"] for name, one in inner.items()} == {'"it\'s"': "(1, 2)", "(3, 4)": "[5]"}
    assert editor.variables(inner["(3, 4)"]["variablesReference"])["0"]["value"] == "5"
    assert "evaluateName" not in inner["(3, 4)"]
    assert "no expression" in editor.refused("setVariable", variablesReference=shown["1"]["variablesReference"],
                                             name="(3, 4)", value="1")
    editor.ask("setVariable", variablesReference=kept, name="1", value="7")
    assert editor.variables(kept)["1"]["value"] == "7"
    editor.ask("continue", threadId=debugged.pid)
    debugged.target.expect("4")


def test_cancel(debugged):
    """What takes long holds up nobody who looks, and can be ended."""
    editor = debugged.editor
    debugged.attach(RETURN)
    debugged.target.send("turn(2)")
    thread = editor.stopped("breakpoint")
    frame = editor.frame(thread)["id"]
    endless = editor.send("evaluate", expression="globals().update(runs=1) or [None for _ in iter(int, 1)]",
                          frameId=frame)
    behind = editor.send("evaluate", expression="1", frameId=frame)
    eventually(lambda: "runs = 1" in (debugged.directory / "globals/__main__").read_text(), what="that it runs")
    assert editor.locals(frame)[0]["total"]["value"] == "7"
    for number in behind, endless:
        editor.ask("cancel", requestId=number)
        with pytest.raises(Exception, match="cancelled"):
            editor.answer(number)
    assert editor.evaluate("total", frame)["result"] == "7"


def test_held_before(debugged):
    """Who comes later is told once of who is held already, and why; and lets go nobody that another one holds."""
    (debugged.directory / "breakpoints").write_text(f"stop {debugged.file}:{RETURN}\n")
    debugged.target.send("turn(2)")
    eventually(lambda: debugged.held() == str(debugged.pid), what="the stop")
    editor = debugged.editor
    debugged.attach()
    event = editor.event("stopped")
    assert (event["reason"], event["threadId"]) == ("breakpoint", debugged.pid) and "hitBreakpointIds" not in event
    assert editor.frame(debugged.pid)["line"] == RETURN
    editor.ask("disconnect")
    assert not any(event["event"] == "stopped" for event in editor.events)
    assert debugged.held() == str(debugged.pid) and len(debugged.asked_for()) == 1
    (debugged.directory / "breakpoints").write_text("\n")
    debugged.target.expect("7")


def test_exception_held_before(debugged):
    """Its stop tells who comes later all that it would have told at once."""
    (debugged.directory / "breakpoints").write_text("stop raise KeyError\n")
    debugged.target.send("fail(3)")
    eventually(lambda: debugged.held() == str(debugged.pid), what="the stop")
    editor = debugged.editor
    debugged.attach()
    event = editor.event("stopped")
    assert (event["reason"], event["text"], event["description"]) == ("exception", "KeyError", "3")
    info = editor.ask("exceptionInfo", threadId=event["threadId"])
    assert info["details"]["source"] == debugged.file
    editor.ask("disconnect")
    (debugged.directory / "breakpoints").write_text("\n")
    debugged.target.expect("3")


@pytest.mark.parametrize("what", ["a line", "a step", "a pause", "an exception"])
def test_killed(debugged, what):
    """By kill -9 as at the worst moment: nothing of it is left, and who was held runs on."""
    editor = debugged.editor
    debugged.attach(BODY)
    if what == "an exception":
        editor.set(debugged.file, [])
        editor.ask("setExceptionBreakpoints", filters=["uncaught", "raised"])
        debugged.target.send("threading.Thread(target=lambda: turn('a')).start()")
        debugged.target.expect("None")
        thread = editor.stopped("exception")
    else:
        debugged.target.send("turn(2)")
        thread = editor.stopped("breakpoint")
    if what == "a step":
        editor.ask("next", threadId=thread)
        editor.set(debugged.file, [])
        assert editor.stopped("step") == thread
    if what == "a pause":
        editor.set(debugged.file, [])
        editor.ask("continue", threadId=thread)
        debugged.target.expect("7")
        debugged.target.send("next(it for it in iter(lambda: turn(2), None) if 'done' in globals())")
        editor.ask("pause", threadId=thread)
        assert editor.stopped("pause") == thread
    eventually(lambda: debugged.held() == str(thread), what="that it is held")
    state = (debugged.directory / "threads" / str(thread) / "ctl").read_text()
    lasts = re.search(r"goes on in (\d+) s", state)
    assert lasts and int(lasts[1]) > 86400, state  # nobody waits for an editor that has gone
    editor.process.kill()
    editor.process.wait()
    eventually(lambda: debugged.held() == "none" and debugged.lines() == [], what="that nothing is left behind")
    eventually(lambda: "OnCrash: off" in (debugged.directory / "ctl").read_text(), what="that on-crash is as before")
    if what == "an exception":
        eventually(lambda: "TypeError" in debugged.target.stderr(), what="what the program says of it")
        return debugged.target.close()
    (debugged.directory / "eval").write_text("done = True")
    return debugged.target.expect("7")


def test_own_breakpoint(debugged):
    """Of the program: it stops there as long as somebody debugs it, and its own hook is asked before and after."""
    editor, call = debugged.editor, "[sys.__dict__.update(breakpointhook=lambda: 'hook'), breakpoint()][1]"
    debugged.target.send(call)
    debugged.target.expect("hook")
    debugged.attach()
    debugged.target.send("(lambda x: [breakpoint(), x][1])(3)")
    event = editor.event("stopped")
    assert event["reason"] == "breakpoint" and "hitBreakpointIds" not in event
    frame = editor.frame(event["threadId"])
    assert frame["name"] == "<lambda>" and editor.locals(frame["id"])[0]["x"]["value"] == "3"
    number = re.match(r"\d+", debugged.lines()[0])[0]
    (debugged.directory / "breakpoints").open("a").write(f"-{number}\n")  # somebody else takes it out
    debugged.target.expect("3")
    debugged.target.send("breakpoint()")
    debugged.target.expect("hook")
    editor.ask("disconnect")
    assert not [one for one in editor.events if one["event"] == "breakpoint"]


def test_pause(debugged):
    editor = debugged.editor
    debugged.attach()
    debugged.target.send("[fail(i) for i in iter(lambda: turn(1), 'never')]")
    editor.ask("pause", threadId=debugged.pid)
    assert editor.stopped("pause") == debugged.pid
    assert editor.ask("continue")["allThreadsContinued"]
    eventually(lambda: debugged.held() == "none", what="that the thread goes on")
    editor.ask("pause", threadId=debugged.pid)
    assert editor.stopped("pause") == debugged.pid
    editor.ask("disconnect")  # which lets it go on
    eventually(lambda: debugged.held() == "none", what="that the thread goes on")
    debugged.target.close()


def test_refusals(probe, any_python):
    with Adapter(probe.path) as editor:
        assert "no process is attached" in editor.refused("threads")
        assert "there is no request" in editor.refused("frobnicate")
        assert "attach to one that runs" in editor.refused("launch")
        assert "paths" in editor.refused("initialize", pathFormat="uri")
        assert "no such Python process" in editor.refused("attach", processId=99999999)
        assert "processId" in editor.refused("attach", processId="many")
        assert "disconnect" in editor.refused("terminate") and "disconnect" in editor.refused("restart")
        editor.raw(b"Content-Length: 3\r\n\r\n[1]")  # no request, and no end
        editor.raw(b'content-length: 2\r\nContent-Type: a/b\r\n\r\n{}')
        target = any_python.run_source(SOURCE)
        editor.attach(processId=str(target.pid), justMyCode=False)
        assert "isn't stopped" in editor.refused("next", threadId=target.pid)
        assert "attached to already" in editor.refused("attach", processId=target.pid)
        names = [one["name"] for one in editor.ask("modules", moduleCount=1000)["modules"]]
        assert "sys" in names and "__main__" in names
        some = editor.ask("modules", startModule=1, moduleCount=2)
        assert [one["name"] for one in some["modules"]] == names[1:3] and some["totalModules"] == len(names)
        assert any(one["path"].endswith("threading.py") for one in editor.ask("loadedSources")["sources"])
        target.close()
        assert editor.event("exited") and editor.event("terminated")
        assert editor.close() == 0


def test_paths(probe, python, tmp_path):
    """By the first of several mappings that fits; what the client can't open is asked for."""
    target = python.run_source(SOURCE)
    here, there = tmp_path / "here", os.path.dirname(target.path())
    here.mkdir()
    (here / "source.py").write_text(SOURCE)
    with Adapter(probe.path) as editor:
        mappings = [{"localRoot": "/somewhere", "remoteRoot": "/elsewhere"},
                    {"localRoot": str(here) + "/", "remoteRoot": there}]
        shown, = editor.attach((str(here / "source.py"), [LEAF]), processId=target.pid, pathMappings=mappings)
        assert shown[0]["verified"], shown
        target.send("exec(compile('x = 1\\nleaf(x)', '<made>', 'exec'))")
        frames = editor.frames(editor.stopped("breakpoint"))
        assert frames[0]["source"] == {"name": "source.py", "path": str(here / "source.py"), "sourceReference": 0}
        made = next(frame["source"] for frame in frames if frame["source"]["name"] == "<made>")
        assert made["sourceReference"] and "path" not in made
        assert "<made>" in editor.refused("source", source=made, sourceReference=made["sourceReference"])
        assert "isn't known" in editor.refused("source", sourceReference=99)
    target.expect("None")


def test_log_of_mount_that_ends(probe, any_python):
    """The daemon goes, and the client is told."""
    other = probe.mount()
    target = any_python.run_source(SOURCE)
    with Adapter(other.path) as editor:
        editor.attach(processId=target.pid)
        other.kill()
        assert "no longer mounted" in editor.event("output")["output"] and editor.event("terminated")
        other.start()


def test_steps_in_own_code(debugged):
    """Out of what a library calls: on to the next line of the program's own code, or, where there is none, to the
    thread's end."""
    editor = debugged.editor
    debugged.attach(LEAF + 1)
    debugged.target.send("threading.Thread(target=leaf, args=(4,)).start()")
    debugged.target.expect("None")
    thread = editor.stopped("breakpoint")
    editor.set(debugged.file, [])
    editor.ask("stepOut", threadId=thread)
    eventually(lambda: str(thread) not in os.listdir(debugged.directory / "threads"), what="the thread's end")
    editor.set(debugged.file, [LEAF])
    debugged.target.send("hooked(4)")
    thread = editor.stopped("breakpoint")
    assert any(frame["source"]["name"] == "contextlib.py" for frame in editor.frames(thread))
    for name in "leaf", "hooked":
        editor.ask("next", threadId=thread)
        assert editor.stopped("step") == thread and editor.frame(thread)["name"] == name
    editor.ask("continue", threadId=thread)
    debugged.target.expect("4")


def test_what_comes_up(debugged):
    """Sources that a stack shows, and their modules, are told of once; those of libraries don't catch the eye."""
    editor = debugged.editor
    debugged.attach(LEAF)
    debugged.target.send("hooked(4)")
    thread = editor.stopped("breakpoint")
    for frame in editor.frames(thread):
        if frame["source"].get("origin") == "native":
            continue
        library = frame["source"]["name"] == "contextlib.py"
        assert (frame.get("presentationHint"), frame["source"].get("origin")) == \
            (("subtle", "library") if library else (None, None))
    told = [editor.event("module")["module"]["name"] for _ in range(2)]
    assert told == ["__main__", "contextlib"]
    sources = {}
    while sources.keys() != {"contextlib.py", "<string>", os.path.basename(debugged.file)}:
        source = editor.event("loadedSource")["source"]
        assert source["name"] not in sources
        sources[source["name"]] = source
    assert sources["contextlib.py"]["path"].startswith("/")
    editor.ask("next", threadId=thread)
    editor.stopped("step")
    editor.frames(thread)
    editor.ask("threads")  # which is answered after that
    assert not [event for event in editor.events if event["event"] in ("module", "loadedSource")]


def test_ranks(probe, any_python):
    """An editor that can is asked for a session of each; they have nothing to do with each other."""
    env, _ = job_of(3)
    ranks = [any_python.run_source(SOURCE, env={**env, "RANK": str(rank)}) for rank in range(3)]
    with Adapter(probe.path) as first:
        first.attach(processId=ranks[1].pid, ranks=True, nativeFrames=False, __restart=1,
                     can=["supportsStartDebuggingRequest"])
        asked = [first.is_asked("startDebugging") for _ in range(2)]
        assert asked == [{"request": "attach", "configuration": {
            "processId": ranks[rank].pid, "name": f"rank {rank} ({ranks[rank].pid})", "nativeFrames": False}}
            for rank in (0, 2)]
        with Adapter(probe.path) as other:
            other.attach((ranks[2].path(), [LEAF]), **asked[1]["configuration"])
            ranks[2].send("turn(1)")
            assert other.stopped("breakpoint") == ranks[2].pid
            ranks[1].send("turn(1)")
            ranks[1].expect("5")
        ranks[2].expect("5")
        assert not first.asked
    with Adapter(probe.path) as unable:
        unable.attach(processId=ranks[1].pid, ranks=True)
        assert "attach to each rank" in unable.event("output")["output"]
    with Adapter(probe.path) as alone:
        alone.attach(processId=any_python.run_source(SOURCE).pid, ranks=True)
        assert "no rank of a job" in alone.event("output")["output"]


def test_what_changes(debugged):
    """A breakpoint whose code comes later, one that somebody else takes out, and threads."""
    editor, later = debugged.editor, os.path.join(os.path.dirname(debugged.file), "later.py")
    debugged.attach(LEAF)
    shown, = editor.set(later, [{"line": 2, "condition": "False"}])
    assert not shown["verified"] and shown["line"] == 2
    debugged.target.send(f"exec(compile('\\n\\ndef later():\\n    pass', {later!r}, 'exec'))")
    debugged.target.expect("None")
    changed = editor.event("breakpoint")
    assert changed["reason"] == "changed" and changed["breakpoint"]["id"] == shown["id"]
    assert changed["breakpoint"]["verified"] and changed["breakpoint"]["line"] > 2, changed
    again, = editor.set(later, [{"line": 2, "condition": "False"}])
    assert again == changed["breakpoint"]
    (debugged.directory / "breakpoints").open("a").write(f"-{shown['id']}\n")
    assert editor.event("breakpoint", lambda body: body["breakpoint"]["id"] == shown["id"])["reason"] == "removed"
    new, = editor.set(later, [{"line": 2, "condition": "False"}])
    assert new["verified"]
    debugged.target.send("[e := threading.Event(), t := threading.Thread(target=e.wait), t.start()] and t.native_id")
    number = int(debugged.target.readline())
    assert editor.event("thread", lambda body: body["threadId"] == number)["reason"] == "started"
    debugged.target.send("e.set()")
    debugged.target.expect("None")
    assert editor.event("thread", lambda body: body["threadId"] == number)["reason"] == "exited"
    assert "breakpoint" not in [event["event"] for event in editor.events]


def test_children(debugged, probe):
    """Of which there is a session each, begun as that of their parent."""
    editor = debugged.editor
    debugged.attach(subProcess=True, nativeFrames=False, can=["supportsStartDebuggingRequest"])
    debugged.target.send("__import__('warnings').simplefilter('ignore')")  # of fork() beside the agent's thread
    debugged.target.expect("None")
    debugged.target.send("__import__('os').fork() or threading.Event().wait()")
    child = int(debugged.target.readline())
    configuration = editor.is_asked("startDebugging")["configuration"]
    assert configuration == {"processId": child, "name": f"child ({child})", "subProcess": True, "nativeFrames": False}
    with Adapter(probe.path) as other:
        other.attach(**configuration)
        assert other.evaluate("__import__('os').getppid()")["result"] == str(debugged.pid)
        os.kill(child, signal.SIGKILL)
        assert other.event("exited") and other.event("terminated")
    debugged.target.send("__import__('os').wait()[0]")
    debugged.target.expect(str(child))
    assert not editor.asked
