"""<pid>/breakpoints as a file: what is refused and how that is shown, and what is read of what an agent has written
down, whatever agent that is."""
import errno
import os

import pytest

from command_files import target  # noqa: F401
from commands import Commands, Refused, failure, shell
from recorded import do, recorded, write  # noqa: F401
from sql import rows
from test_events import Reader, kinds
from test_other_user import run_as

NOW = 2e9  # later than any test runs


@pytest.fixture
def file(probe, target):
    return probe.path / str(target.pid) / "breakpoints"


def a_row(number, text="log f()", state="armed", note=None, places=1, hits=0, dropped=0, errors=0):
    return number, text, state, note, places, hits, dropped, errors, 1.5, None, 1.5


def a_hit(number=None, hit=None, stopped=None, resumed=None, ts=NOW, captured='{"x": "1"}'):
    return (ts, number, hit, 7, "f", "/w/a.py", 3, "main (/w/a.py:9);f (/w/a.py:3)", captured, None, "2", None, None,
            stopped, resumed, *((5, "return", "app.Bad", 'no "x"', "1") if stopped else (None,) * 5))


# ---- what is refused ----

WRONG = [
    ("stop train.py", "a location is FILE:LINE", 5),
    ("stop train.py:8 if (a", "this bracket isn't closed", 19),
    ("stop train.py:8 {a, }", "a Python expression belongs here", 20),
    ("3: 4: f()", "the number of a line belongs here", 5),
    ("stop for 8d f()", "at least 1ms and at most 7d", 9),
    ("watch 0x11:4", "a multiple of the length", 6),
    ("watch ü[ hw=perf", "this bracket isn't closed", 7),
    ("-3 4", "nothing follows", 3),
]


@pytest.mark.parametrize("line, words, column", WRONG, ids=[line for line, *_ in WRONG])
def test_wrong_line(probe, target, file, line, words, column):
    """The words, the line and a caret below the place, wherever they are read; nothing was let into the program."""
    commands = Commands(probe, target.pid)
    with pytest.raises(Refused) as refused:
        commands.run("breakpoints", line + "\n")
    assert refused.value.errno == errno.EINVAL
    said, shown, caret = refused.value.words.splitlines()
    assert said.startswith("error: ") and words in said
    assert shown == "  " + line and caret == " " * (column + 2) + "^"
    assert file.read_text().splitlines() == ["# " + each for each in (said, shown, caret)]
    assert "breakpoints EINVAL" in (file.parent / "errors").read_text()
    assert "Agent: none" in (file.parent / "ctl").read_text()


def test_one_wrong_line_of_many(probe, target):
    with pytest.raises(Refused) as refused:
        Commands(probe, target.pid).run("breakpoints", "f()\n\n# why\nstop g(\nh()\n")
    assert refused.value.words.splitlines()[1:] == ["  stop g(", "       ^"]


@pytest.mark.parametrize("program", ["bash", "dash"])
def test_shells(file, program):
    done = shell('echo "stop nothing" > "$1"', file, program=program)
    assert done.returncode == 1 and ("Invalid argument" in done.stderr or program == "dash")


def test_too_much(probe, target):
    commands = Commands(probe, target.pid)
    for text, error in (("f() if " + "a" * 2000 + "\n", errno.EINVAL), ("f()" * 5000, errno.EINVAL),
                        ("f()\n" * 4097, errno.EFBIG), ("f()\n\0\n", errno.EINVAL)):
        with pytest.raises(Refused) as refused:
            commands.run("breakpoints", text)
        assert refused.value.errno == error
    assert commands.run("breakpoints", "# nothing\n" * 4097) == ""


def test_nothing_to_remove(probe, target, file):
    """Where nothing is set emptying is done, and removing fails; neither lets an agent in."""
    assert shell(': > "$1" && echo > "$1" && truncate -s0 "$1" && cat /dev/null > "$1"', file).returncode == 0
    for line in ("-3", "-train.py:8"):
        with pytest.raises(Refused) as refused:
            Commands(probe, target.pid).run("breakpoints", line + "\n")
        assert refused.value.errno == errno.ENOENT and f"\n  {line}\n  ^" in refused.value.words
    assert failure(os.truncate, file, 0) == errno.EPERM
    assert "Agent: none" in (file.parent / "ctl").read_text()


def test_another_user(probe, any_python, nobody):
    mine = any_python.run_source("import sys; print('ready'); sys.stdin.read()")
    with probe.mount("allow_other") as mounted:
        file = mounted.path / str(mine.pid) / "breakpoints"
        for script in ('cat "$1"', 'echo "f()" > "$1"', ': > "$1"'):
            done = run_as(nobody, "bash", "-c", script, "bash", file)
            assert done.returncode != 0 and "No such file" in done.stderr
        assert file.read_text() == ""


# ---- what is read ----

def test_last_row_counts(probe, recorded):
    target = recorded()
    file = probe.path / str(target.pid) / "breakpoints"
    write(target, "breakpoints", [
        a_row(2, "stop g()", "pending"), a_row(1, "log a.py:3", "armed"), a_row(7, "log raise", "removed"),
        a_row(2, "stop g()", "armed", hits=3, dropped=2, errors=1), a_row(5), a_row(1, "log a.py:3", "removed"),
        a_row(9, "stop watch a.b", "hw", note="moved twice, 1 place"), a_row(5, "log f() x 2", "done", hits=2)])
    assert file.read_text() == (
        "2: stop g()  # armed, 3 hits, 2 of them without a row, 1 errors\n"
        "5: log f() x 2  # done, 2 hits\n"
        "9: stop watch a.b  # hw, 0 hits, moved twice, 1 place\n")
    table = [row["id"] for row in rows((file.parent / "tables" / "breakpoints.csv").read_text())]
    assert table == ["2", "5", "9"]
    said = Commands(probe, target.pid).run("query", "SELECT id, hits FROM breakpoints WHERE state = 'armed';")
    assert said == "id,hits\n2,3\n"


def test_set_goes_with_its_agent(probe, recorded):
    target = recorded()
    file = probe.path / str(target.pid) / "breakpoints"
    write(target, "breakpoints", [a_row(1)])
    assert file.read_text().startswith("1: ")
    do(target, "record.state = 2")
    assert file.read_text() == ""
    assert rows((file.parent / "tables" / "breakpoints.csv").read_text()) == []


def test_hostile_rows(probe, recorded):
    """They make one line each, and drive no terminal."""
    target = recorded()
    file = probe.path / str(target.pid) / "breakpoints"
    write(target, "breakpoints", [
        a_row(None), a_row(-5, "x\n99: stop g()\x1b[31m", "y\nz", note="\udcff\r"), a_row(1, None, "armed"),
        a_row(2, "log f()", None), a_row(3, hits=None, dropped=-1, errors=2**62)])
    assert file.read_text() == ("-5: x\\n99: stop g()\\x1b[31m  # y\\nz, 0 hits, \\xff\\r\n"
                                "1:   # armed, 0 hits\n"
                                f"3: log f()  # armed, 0 hits, {2**62} errors\n")
    do(target, f"for i in range(20000): breakpoints.write(i, *{a_row(1)[1:]!r})")
    assert len(file.read_text().splitlines()) == 8192


def test_all(probe, recorded):
    """Those of each process, and whose they are."""
    one, other = recorded(), recorded()
    for target, text in ((one, "log f()"), (other, "stop g()")):
        write(target, "breakpoints", [a_row(1, text)])
    mine = [line for line in (probe.path / "all" / "breakpoints").read_text().splitlines()
            if f"pid {one.pid}," in line or f"pid {other.pid}," in line]
    want = [(one.pid, f"1: log f()  # pid {one.pid}, armed, 0 hits"),
            (other.pid, f"1: stop g()  # pid {other.pid}, armed, 0 hits")]
    assert mine == [line for _, line in sorted(want)]


@pytest.mark.alone
def test_all_wrong(probe):
    with pytest.raises(Refused) as refused:
        Commands(probe, "all").run("breakpoints", "nothing\n")
    assert refused.value.errno == errno.EINVAL and "a location is" in refused.value.words


# ---- events ----

def test_hits_and_stops(probe, recorded):
    target = recorded()
    write(target, "hits", [a_hit(1, 1), a_hit(2, 1, stopped=1, ts=NOW + 1)])
    with Reader(probe, target.pid) as reader:
        do(target, f"hits.write(*{a_hit(1, 2)!r})")
        do(target, f"hits.write(*{a_hit(3, 1, stopped=1, ts=NOW + 2)!r})")
        do(target, f"hits.write(*{a_hit(stopped=1, resumed=NOW + 9)!r})")
        do(target, f"hits.write(*{a_hit(4, 1, stopped=0)!r})")
        lines = reader.read_until(lambda lines: len(lines) >= 5)
        assert kinds(lines) == ["hit", "hit", "stop", "stop", "hit"]
        assert lines[0] == {
            "ts": NOW, "kind": "hit", "pid": target.pid, "tid": 7, "id": 1, "hit": 2, "func": "f", "file": "/w/a.py",
            "lineno": 3, "stack": "main (/w/a.py:9);f (/w/a.py:3)", "captured": {"x": "1"}, "old_value": None,
            "new_value": "2", "address": None, "error": None}
        place = {"func": "f", "file": "/w/a.py", "lineno": 3, "captured": {"x": "1"}, "stop": 5, "reason": "return",
                 "returned": "1", "exception": {"type": "app.Bad", "message": "no \"x\""}, "error": None}
        assert lines[2] == {"ts": NOW + 2, "kind": "stop", "pid": target.pid, "tid": 7, "id": 3, **place}
        assert lines[3] == {"ts": NOW, "kind": "stop", "pid": target.pid, "tid": 7, "id": None, **place}


def test_order(probe, recorded):
    """That a thread goes on is told after that it stopped, although each is in a ring of its own; and what is seen at
    once in the order of its times."""
    target = recorded()
    write(target, "hits", [])
    write(target, "events", [])
    with Reader(probe, target.pid) as reader:
        do(target, "; ".join(f"hits.write(*{a_hit(i, 1, stopped=1, ts=NOW + i)!r}); "
                             f"events.write(*{(NOW + i + 0.5, 7, None, 'continue', 'step', None, None)!r})"
                             for i in range(400)))
        told = reader.read_until(lambda lines: len(lines) >= 1200)
        assert sorted(kinds(told)) == ["continue"] * 400 + ["hit"] * 400 + ["stop"] * 400
        at = {(line["kind"], line["ts"]): i for i, line in enumerate(told)}
        for i in range(400):
            assert at["hit", NOW + i] < at["stop", NOW + i] < at["continue", NOW + i + 0.5]
        later = sum(a["ts"] > b["ts"] for a, b in zip(told, told[1:]))
        assert later < 100
