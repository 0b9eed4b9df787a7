"""<pid>/crash/ and exited/<pid>/crash/: what the daemon shows of the last uncaught exception, or of a fatal signal."""
import errno
import json
import os
import pathlib
import re
import signal
import time

import pytest

from commands import Commands, failure
from interpreters import eventually, patience
from recorded import recorded, write  # noqa: F401, a fixture
from sql import settle

pytestmark = [pytest.mark.python(minimum=(3, 10)), pytest.mark.harms]

FILES = {"traceback", "locals", "backtrace", "frames"}


def begin(probe, python, verb="record", script="crasher.py"):
    target = python.run(script)
    commands = Commands(probe, target.pid)
    assert commands.run("ctl", f"on-crash {verb}\n") == f"OnCrash: {verb.split()[0]}\n"
    return target, commands


def said(target, line):
    target.send(line)
    target.expect("done")


def left(probe, target):
    top = probe.path / "exited" / str(target.pid)
    eventually(top.exists, what="a directory in exited/")
    return top / "crash"


BESIDE = {"attach", "thread"}


def told(events):
    """The next event; of its agent, which was there before, it may be told only now, and any look may see a thread."""
    line = json.loads(events.readline())
    return told(events) if line["kind"] in BESIDE else line


def plain(text):
    """What Python prints of a traceback, as far as the file has it: no source, no markers, no paths of modules."""
    return [line for line in text.splitlines() if re.match(r"  File |Traceback|\S", line)]


def bare(lines):
    """Without what CPython before 3.13 doesn't print: the classes of methods."""
    return [re.sub(r"(, in )(?:[\w.<>]+\.)?(<?\w+>?)$", r"\1\2", line) for line in lines]


# ---- the verb ----


def test_verb(probe, any_python):
    target = any_python.run("crasher.py")
    commands = Commands(probe, target.pid)
    assert commands.run("ctl", "on-crash off\n") == "OnCrash: off\n"
    assert commands.state() == "none"  # nobody was attached for that
    for line, words, caret in (
            ("on-crash", "write it as: on-crash off|record|stop [for TIME]", 8),
            ("on-crash now", "write off, record or stop", 9),
            ("on-crash record for 5s", "only stop has more", 16),
            ("on-crash stop for", "for how long?", 17),
            ("on-crash stop for 5x", "a time is written as 500ms", 18),
            ("on-crash stop for 8d", "at most 7d", 18),
            ("on-crash stop for 5s 6s", "write it as", 21)):
        number, said = commands.refused("ctl", line + "\n")
        assert number == errno.EINVAL and words in said, said
        assert said.splitlines()[-1].index("^") - 2 == caret, said
    assert commands.run("ctl", "on-crash stop for 500ms\n") == "OnCrash: stop\n"
    assert "OnCrash: stop\n" in commands.ctl.read_text()
    assert commands.run("ctl", "on-crash off\n") == "OnCrash: off\n"
    assert commands.run("ctl", "on-crash record\n") == "OnCrash: record\n"
    commands.detach()
    assert "OnCrash: off\n" in commands.ctl.read_text()


def test_nothing_happened(probe, any_python):
    target, commands = begin(probe, any_python)
    crash = commands.directory / "crash"
    assert "crash" not in os.listdir(commands.directory)
    for name in FILES | {""}:
        assert failure(os.stat, crash / name) == errno.ENOENT


def test_unloaded(probe, python):
    """Nothing is left of it in the process, and it fails as if it had never been there."""
    target, commands = begin(probe, python)
    said(target, "thread branch")
    assert commands.detach() == "Agent: none\n"
    maps = pathlib.Path(f"/proc/{target.pid}/maps")
    eventually(lambda: "probe-agent" not in maps.read_text(), what="no mapping")
    said(target, "thread branch")
    assert target.stderr().count("Exception in thread") == 2
    target.send("segv")
    assert target.process.wait(patience(30)) == -signal.SIGSEGV


def test_stays_while_something_refers_to_it(probe, any_python):
    """A hook, or a handler of signals, of the program that goes on to ours."""
    target, commands = begin(probe, any_python)
    said(target, "do found = sys.excepthook; sys.excepthook = lambda *args: found(*args)")
    assert "the library stays" in commands.detach()
    target.send("branch")
    assert target.process.wait(patience(30)) == 1 and "OwnError" in target.stderr()

    target, commands = begin(probe, any_python)
    said(target, "do faulthandler.enable()")
    assert "the library stays" in commands.detach()
    target.send("segv")
    assert target.process.wait(patience(30)) == -signal.SIGSEGV


def test_child(probe, any_python):
    """Has none of it until it gets its own."""
    target, commands = begin(probe, any_python, "stop")
    said(target, "do child = os.fork() or signal.pause()")
    child = Commands(probe, int(commands.value("child")))
    assert "OnCrash: off" in child.ctl.read_text()
    assert child.run("ctl", "on-crash record\n") == "OnCrash: record\n"
    assert child.eval("threading.Thread(target=branch, args=(5,)).start()") == ""
    crash = child.directory / "crash"
    eventually(lambda: crash.exists() and "OwnError: ('too', 5)" in (crash / "traceback").read_text())
    assert "crash" not in os.listdir(commands.directory)


# ---- exceptions ----


@pytest.mark.parametrize("way", ["branch", "caused"])
def test_traceback(probe, python, way):
    """As Python itself prints it."""
    target, commands = begin(probe, python)
    said(target, f"thread {way}")
    crash = commands.directory / "crash"
    head, *lines = (crash / "traceback").read_text().splitlines()
    assert re.fullmatch(r"Exception in thread \d+ at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S+:", head)
    printed = [line for line in plain(target.stderr()) if not line.startswith("Exception in thread ")]
    printed = [line.removeprefix("__main__.") for line in printed]  # 3.10
    assert len(printed) > 8 and bare([line for line in lines if line]) == bare(printed)
    assert (crash / "backtrace").read_text() == ""


@pytest.mark.python(minimum=(3, 11))
def test_group(probe, python):
    """The exceptions in it, of which Python draws a tree."""
    target, commands = begin(probe, python)
    said(target, "thread group")
    text = (commands.directory / "crash" / "traceback").read_text()
    parts = re.split(r"\nSub-exception (\d):\n\n", text)
    assert parts[1::2] == ["1", "2", "3"]
    assert [part.splitlines()[-1] for part in parts[::2]] == [
        "ExceptionGroup: many (2 sub-exceptions)", "OwnError: ('too', 1)", "ExceptionGroup: inner (1 sub-exception)",
        "OwnError: ('too', 2)"]
    assert [part.count("in leaf\n") for part in parts[::2]] == [0, 1, 0, 1]


def test_values_are_those_of_the_daemon(probe, python):
    """What the agent shows of a value, and what the daemon reads of it from outside."""
    target, commands = begin(probe, python, script="kinds.py")
    settle(target)
    depth, passive = next(
        (depth, text) for tid in target.tids() if tid != target.pid
        for depth in os.listdir(f"{commands.directory}/threads/{tid}/frames")
        for text in [probe.read(target.pid, "threads", tid, "frames", depth, "locals")] if text.startswith("none = "))
    said(target, "")
    shown = (commands.directory / "crash" / "frames" / "0" / "locals").read_text()
    assert shown.splitlines() == passive.splitlines()
    assert len(shown.splitlines()) > 35


def test_frames(probe, python):
    target, commands = begin(probe, python)
    said(target, "thread branch")
    crash = commands.directory / "crash"
    depths = sorted(map(int, os.listdir(crash / "frames")))
    assert depths == list(range(len(depths))) and len(depths) > 3
    each = [(crash / "frames" / str(depth) / "locals").read_text() for depth in depths]
    whole = (crash / "locals").read_text()
    heads = [line for line in whole.splitlines() if line.startswith("#")]
    assert [head.split()[0] for head in heads] == [f"#{depth}" for depth in depths]
    assert whole == "".join(
        head + "\n" + "".join(f"    {line}\n" for line in part.splitlines()) for head, part in zip(heads, each))
    source = (crash / "frames" / "0" / "source").read_text()
    assert source.splitlines()[0] == heads[0].split("  ", 1)[1]
    assert re.search(r'^ +\d+  ->      raise OwnError\("too", number\)$', source, re.M)
    assert failure(os.stat, crash / "frames" / str(len(depths))) == errno.ENOENT
    number, words = commands.refused("crash/frames/0/eval", "1\n")
    assert number == errno.ENOENT and "no exception holds the process" in words


def test_the_last_one_counts(probe, any_python):
    target, commands = begin(probe, any_python)
    said(target, "thread branch")
    said(target, "thread caused")
    assert "RuntimeError: in the end" in (commands.directory / "crash" / "traceback").read_text()
    assert commands.run("query", "SELECT count(DISTINCT crash) AS n FROM crash\n").splitlines()[:2] == ["n", "2"]


def test_asks_nobody(probe, any_python):
    target, commands = begin(probe, any_python)
    said(target, "thread branch")
    target.signal(signal.SIGSTOP)
    eventually(lambda: target.state() == "T")
    assert "OwnError" in probe.read(target.pid, "crash", "traceback")
    assert "number = 300" in probe.read(target.pid, "crash", "frames", 0, "locals")
    target.signal(signal.SIGCONT)


def test_held(probe, python):
    target, commands = begin(probe, python, "stop for 1m")
    crash = commands.directory / "crash"
    with open(commands.directory / "events") as events:
        target.send("branch")
        lines = sorted((told(events) for _ in range(2)), key=lambda line: line["kind"])
    assert [line["kind"] for line in lines] == ["crash", "stop"]
    for line in lines:
        assert line["func"] == "leaf" and line["file"].endswith("/crasher.py") and line["tid"] == target.pid
    assert lines[0]["lineno"] == lines[1]["lineno"] > 0 and lines[1]["id"] is None
    eventually(lambda: crash.exists() and "OwnError" in (crash / "traceback").read_text())
    assert "300\n" in commands.run("crash/frames/0/eval", "number\n")
    backtrace = (commands.directory / "backtrace").read_text()
    assert f"Thread {target.pid} (MainThread) [held, crash, see crash/" in backtrace
    assert commands.run("crash/frames/1/eval", "number = 4\nangry.calm = number\nangry.calm\n") == "4\n"
    assert commands.run("crash/frames/0/eval", "angry.calm\n") == "4\n"
    for depth in 0, 1:
        assert commands.run(f"crash/frames/{depth}/eval", "type(__exception__).__name__\n") == "'OwnError'\n"
    assert commands.eval("1 + 1").strip() == "2"
    assert target.process.poll() is None
    probe.kill()
    assert target.process.wait(patience(30)) == 1
    assert "OwnError: ('too', 300)" in target.stderr()
    probe.start()


def test_goes_on(probe, any_python):
    """`continue`: and then all is as it would have been."""
    target, commands = begin(probe, any_python, "stop")
    with open(commands.directory / "events") as events:
        target.send("branch")
        assert {told(events)["kind"] for _ in range(2)} == {"crash", "stop"}
        assert "300\n" in commands.run("crash/frames/0/eval", "number\n")
        commands.run("ctl", "continue\n")
        assert told(events)["kind"] == "continue"
        assert target.process.wait(patience(30)) == 1 and "OwnError" in target.stderr()
        *before, last = [json.loads(line)["kind"] for line in events]
        assert last == "exit" and set(before) <= {"detach", *BESIDE}  # where its agent was seen to end first


def test_left_behind(probe, python):
    target, commands = begin(probe, python)
    target.send("branch")
    assert target.process.wait(patience(30)) == 1
    crash = left(probe, target)
    assert set(os.listdir(crash)) == FILES
    assert "OwnError: ('too', 300)\n" in (crash / "traceback").read_text()
    assert "number = 300\n" in (crash / "frames" / "0" / "locals").read_text()
    assert os.listdir(crash / "frames" / "0") == ["locals"]
    assert (crash / "locals").read_text().startswith("#0  leaf (")


def test_events(probe, any_python):
    """Each crash, once, as it comes; not those of before."""
    target, commands = begin(probe, any_python)
    said(target, "thread branch")
    with open(commands.directory / "events") as events:
        said(target, "thread caused")
        line = told(events)
        row, = commands.run("query", "SELECT tid, crash, name, value, func, file, lineno FROM crash "
                                     "WHERE kind = 'exception' AND crash = 2\n").splitlines()[1:]
        assert ",".join(str(line[key]) for key in ("tid", "crash", "type", "message", "func", "file", "lineno")) == row
        assert (line["kind"], line["pid"], line["type"], line["func"]) == \
            ("crash", target.pid, "RuntimeError", "caused")
        target.send("abort")
        line = told(events)
        assert (line["kind"], line["type"], line["tid"], line["file"]) == ("crash", "SIGABRT", target.pid, None)
        *before, last = [json.loads(line)["kind"] for line in events]
        assert last == "exit" and set(before) <= {"detach", *BESIDE}  # where its agent was seen to end first


# ---- signals ----


@pytest.mark.parametrize("way, number", [("segv", signal.SIGSEGV), ("abort", signal.SIGABRT), ("bus", signal.SIGBUS),
                                         ("fpe", signal.SIGFPE)])
def test_signal(probe, python, way, number):
    """The stacks of all threads, Python's and native ones, as they were when it came."""
    def die():
        target, _ = begin(probe, python)
        said(target, "do threading.Thread(target=lambda: signal.pause(), name='bystander', daemon=True).start()")
        target.send(way)
        assert target.process.wait(patience(30)) == -number
        crash = left(probe, target)
        return (crash / "backtrace").read_text() and (target, crash)
    target, crash = eventually(die, what="stacks within the second that it waits")
    first, second = (crash / "traceback").read_text().splitlines()
    assert first.startswith(f"Fatal signal in thread {target.pid} at ")
    assert second.startswith(f"{number.name}: ")
    text = (crash / "backtrace").read_text()
    assert f"Process {target.pid}: " in text and ("bystander" in text or "pause" in text)
    main = text.partition(f"Thread {target.pid} ")[2].partition("\n\n")[0]
    assert re.search(r"<module> \(.*crasher\.py:\d+\)", main) and re.search(r" run \(.*crasher\.py:\d+\)", main), main
    assert "[native]" in main
    assert (crash / "locals").read_text() == "" and os.listdir(crash / "frames") == []


def test_daemon_is_killed_meanwhile(probe, any_python):
    """At whatever moment: the process ends as it would, and soon."""
    for delay in (0, 0.001, 0.003, 0.01, 0.03):
        target, commands = begin(probe, any_python)
        target.send("segv")
        time.sleep(delay)
        probe.kill()
        assert target.process.wait(patience(30)) == -signal.SIGSEGV
        probe.start()


def test_daemon_is_stopped(probe, any_python):
    target, commands = begin(probe, any_python)
    os.kill(probe.pid, signal.SIGSTOP)
    try:
        target.send("abort")
        assert target.process.wait(patience(30)) == -signal.SIGABRT
    finally:
        os.kill(probe.pid, signal.SIGCONT)


def test_many_at_once(probe, any_python):
    def die():
        targets = [begin(probe, any_python)[0] for _ in range(8)]
        for target in targets:
            target.send("segv")
        for target in targets:
            assert target.process.wait(patience(30)) == -signal.SIGSEGV
        crashes = [left(probe, target) for target in targets]
        assert all("SIGSEGV" in (crash / "traceback").read_text() for crash in crashes)
        return any("crasher.py" in (crash / "backtrace").read_text() for crash in crashes)
    eventually(die, what="stacks within the second that they wait")


def test_all_threads_at_once(probe, any_python):
    """The first one is told of; all are waited for together."""
    target, commands = begin(probe, any_python)
    target.send("do libc = ctypes.PyDLL(None); "
                "[threading.Thread(target=os.abort).start() for _ in range(10)]")
    assert target.process.wait(patience(30)) == -signal.SIGABRT
    assert "SIGABRT" in (left(probe, target) / "traceback").read_text()


def test_core_is_of_the_fault(probe, any_python):
    """The status says whether a core was written: as without us."""
    for verb in "off", "record":
        target, commands = begin(probe, any_python, verb)
        commands.eval("import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))")
        target.send("segv")
        pid, status = os.waitpid(target.pid, 0)
        target.process.returncode = -signal.SIGSEGV
        assert os.WTERMSIG(status) == signal.SIGSEGV and not os.WCOREDUMP(status)


NUMBER, PAST = 2**62, -(2**62)


@pytest.mark.parametrize("rows", [
    [(0.0, 1, 1, "frame", depth, "f", "x.py", 1, None, None) for depth in (5, -1, PAST, NUMBER, 5, 5)],
    [(None, NUMBER, PAST, "exception", None, None, None, PAST, None, None)],
    [(1e300, 1, 1, "signal", None, None, None, None, "\n\x1b[2J", "\r" * 3000)],
    [(1.0, 1, 1, "exception", None, None, None, None, "E", "")] +
    [(1.0, 1, 1, "cause", None, None, None, None, "E", None)] * 5000,
    [(1.0, 1, 1, "frame", n, None, None, None, None, None) for n in range(5000)],
    [(1.0, 1, 1, "local", 0, None, None, None, None, None), (1.0, 0, 1, "frame", 0, "f", "f", 1, "n", "v"),
     (1.0, -5, 1, "frame", 0, "f", "f", 1, "n", "v"), (1.0, 1, 1, None, 0, None, None, None, None, None),
     (1.0, 1, 1, "frame", 0, "a\nb", "/proc/self/environ", 1, None, None)],
])
def test_hostile_rows(probe, recorded, rows):
    """They are the program's to scribble into."""
    target = recorded()
    write(target, "crash", rows)
    crash = probe.path / str(target.pid) / "crash"
    if not crash.exists():  # nothing that a crash would have written
        return
    depths = os.listdir(crash / "frames")
    assert len(depths) <= 4096
    for name in ("traceback", "locals", "backtrace",
                 *(f"frames/{d}/{f}" for d in depths[:3] for f in ("locals", "source"))):
        text = (crash / name).read_text()
        assert not re.search(r"[\x00-\x09\x0b-\x1f]", text), text
    assert probe.alive()
