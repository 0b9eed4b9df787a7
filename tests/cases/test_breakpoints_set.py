"""<pid>/breakpoints with an agent: what is written is the set, whatever it is cut into, and whoever else writes."""
import concurrent.futures
import errno
import os
import pwd
import re
import subprocess
import textwrap

import pytest

from commands import Commands, Refused, shell, write
from interpreters import eventually, patience
from sql import rows
from test_events import Reader, kinds

pytestmark = pytest.mark.python(minimum=(3, 10))

SOURCE = textwrap.dedent("""
    import sys
    def double(x):
        y = x * 2
        return y
    def work(i):
        return double(i)
    print("ready", flush=True)
    for i, line in enumerate(sys.stdin):
        work(i)
        print("done", flush=True)
    """)
LINE = 4  # of `y = ...`
WRITES = 20000 if os.environ.get("PROBEFS_TEST_FULL") == "1" else 400  # half of them set, half of them remove


@pytest.fixture
def target(python):
    return python.run_source(SOURCE)


@pytest.fixture
def file(probe, target):
    return probe.path / str(target.pid) / "breakpoints"


def lines(file):
    """id: what it is, without what is said of it."""
    found = re.findall(r"^(\d+): (.*?)  # ", file.read_text(), re.M)
    return {int(number): text for number, text in found}


def hits(file):
    return {int(number): int(n) for number, n in re.findall(r"^(\d+): .*  # \w+, (\d+) hits", file.read_text(), re.M)}


def plain(text):
    """Without what is said of CPython 3.10 and 3.11, of no interest here."""
    return re.sub(r"[,;] slows [^;\n]*before CPython 3.12", "", text)


def work(target, times=1):
    for _ in range(times):
        target.send("x")
        target.expect("done")


def put(file, text, mode):
    with open(file, mode) as f:
        f.write(text)


def test_set_add_remove(target, file):
    put(file, f"source.py:{LINE}\n", "w")
    assert lines(file) == {1: f"log source.py:{LINE}"}
    put(file, "stop for 2s nothing.here() {a,b} if a  x 3\n7: return double()\n", "a")
    assert lines(file) == {1: f"log source.py:{LINE}", 2: "stop for 2s nothing.here() {a, b} if a x 3",
                           7: "log return double()"}
    work(target, 2)
    assert hits(file) == {1: 2, 2: 0, 7: 2}
    assert "  # pending, 0 hits" in file.read_text().splitlines()[1]
    put(file, "-7\n", "a")
    put(file, f"-source.py:{LINE}\n", "a")
    assert list(lines(file)) == [2]
    put(file, "2: work()\n", "a")  # takes its place
    assert lines(file) == {2: "log work()"}
    put(file, "double()\n", "w")
    assert list(lines(file).values()) == ["log double()"]
    put(file, "", "w")
    assert file.read_text() == ""
    work(target)


def test_reads_back(target, file):
    """What is read is written back with no change: numbers and hits stay."""
    put(file, f"source.py:{LINE} {{x, 'a # b'}} if x != '#'\n5: stop no.where()\nraise LookupError x 9\n", "w")
    work(target, 3)
    before = file.read_text()
    assert hits(file) == {1: 3, 2: 0, 5: 0}
    put(file, before, "w")
    assert file.read_text() == before
    put(file, before, "a")
    assert file.read_text() == before
    work(target)
    assert hits(file)[1] == 4


def test_switched_off(target, file):
    """It keeps its number and its hits, and nothing of it is armed."""
    def places():
        return [int(row["places"]) for row in rows((file.parent / "tables" / "breakpoints.csv").read_text())[-3:]]
    put(file, f"source.py:{LINE}\nwork()\nraise x 2\n", "w")
    work(target)
    put(file, "disable 1 3\n", "a")
    assert lines(file) == {1: f"disabled log source.py:{LINE}", 2: "log work()", 3: "disabled log raise x 2"}
    work(target)
    assert hits(file) == {1: 1, 2: 2, 3: 0}
    assert "1: disabled log source.py:4  # disabled, 1 hits\n" in file.read_text()
    put(file, "disable 2\n", "w")  # which sets nothing, so it replaces nothing
    assert places() == [0, 0, 0]
    before = file.read_text()
    put(file, before, "w")
    assert file.read_text() == before
    work(target)
    assert hits(file) == {1: 1, 2: 2, 3: 0}
    put(file, "enable 2\ndisable 2\nenable 1 2 2\n", "a")
    assert lines(file) == {1: f"log source.py:{LINE}", 2: "log work()", 3: "disabled log raise x 2"}
    work(target)
    assert hits(file) == {1: 2, 2: 3, 3: 0} and places()[:2] == [1, 1]
    put(file, f"disabled source.py:{LINE}\nwork()\n", "w")  # as a line that is new says
    assert lines(file) == {1: f"disabled log source.py:{LINE}", 2: "log work()"}
    put(file, "", "w")
    assert file.read_text() == ""


def test_switched_with_others(probe, target, file):
    """All or nothing: what is switched stays as it was where another line fails."""
    put(file, "work()\ndisabled double()\n", "w")
    for bad, error in (("disable 77", errno.ENOENT), ("disable 2 77", errno.ENOENT), ("watch no_such", errno.EINVAL)):
        with pytest.raises(OSError) as refused:
            write(file, f"disable 1\nenable 2\n{bad}\n")
        assert refused.value.errno == error
        assert lines(file) == {1: "log work()", 2: "disabled log double()"}
    with pytest.raises(Refused) as refused:
        Commands(probe, target.pid).run("breakpoints", "disable 1 77 2\n")
    assert refused.value.words.splitlines() == ["error: there is no breakpoint 77", "  disable 1 77 2", "            ^"]
    work(target)
    assert hits(file) == {1: 1, 2: 0}
    said = Commands(probe, target.pid).run("breakpoints", "enable 2\ndisable 1\n")
    assert plain(said) == "2: log double()  # armed\n1: disabled log work()  # disabled\n"


def test_switched_watchpoint(probe, target, file):
    evaluate = Commands(probe, target.pid)
    evaluate.run("eval", "class A: pass\n\na = A()\na.b = 1\n")
    put(file, "watch a.b\n", "w")
    put(file, "disable 1\n", "a")
    evaluate.run("eval", "a.b = 2\ndel a.b\n")
    assert lines(file) == {1: "disabled log watch a.b"} and hits(file) == {1: 0}
    evaluate.run("eval", "del a\n")
    with pytest.raises(OSError) as refused:
        write(file, "enable 1\n")
    assert refused.value.errno == errno.EINVAL
    assert lines(file) == {1: "disabled log watch a.b"}
    evaluate.run("eval", "a = A()\na.b = 3\n")
    put(file, "enable 1\n", "a")
    assert lines(file) == {1: "log watch a.b"} and "# disabled" not in file.read_text()


def test_switched_while_it_holds(probe, target, file):
    """The thread stays where it is; the next time it passes."""
    put(file, f"stop source.py:{LINE}\n", "w")
    ctl = file.parent / "threads" / str(target.pid) / "ctl"
    with Reader(probe, target.pid) as events:
        target.send("x")
        events.read_until(lambda lines: "stop" in kinds(lines))
    put(file, "disable 1\n", "a")
    assert f"# disabled, 1 hits, holds {target.pid}" in file.read_text()
    assert "stopped by breakpoint 1 at " in ctl.read_text()
    write(ctl, "next\n")
    eventually(lambda: f":{LINE + 1}" in ctl.read_text(), what="the end of the step")
    write(ctl, "continue\n")
    target.expect("done")
    work(target)
    assert hits(file) == {1: 1}


@pytest.mark.parametrize("program", ["bash", "dash"])
@pytest.mark.parametrize("script, wanted", [
    ('{ echo "work()"; echo "double()"; } > "$1"', ["log work()", "log double()"]),
    ('{ echo "# mine"; echo; echo "work()"; } > "$1"', ["log work()"]),
    ('printf "work()\\ndouble()" > "$1"', ["log work()", "log double()"]),
    ('printf "wo" > "$1"; echo "work()" >> "$1"', ["log old.one()", "log old.two()", "log work()"]),
    ('echo > "$1"', []), (': > "$1"', []), ('truncate -s0 "$1"', []), ('echo "# none" > "$1"', []),
    ('echo "-1" > "$1"', ["log old.two()"]),
    ('{ echo "-1"; echo "work()"; } > "$1"', ["log work()"]),
    ('printf "%s\\n" -1 "work()" > "$1"', ["log work()"]),
    ('echo "bad" > "$1"', ["log old.one()", "log old.two()"]),
    ('exec 3>"$1"; echo "work()" >&3; echo "double()" >&3; sh -c :; echo "-old.one()" >&3; exec 3>&-',
     ["log work()", "log double()"]),
    ('sh -c "sleep 0.1; echo work\\(\\)" > "$1"', ["log work()"]),
    ('copy=$(mktemp); cat "$1" > "$copy"; cat "$copy" > "$1"; rm "$copy"', ["log old.one()", "log old.two()"]),
])
def test_shells(target, file, program, script, wanted):
    put(file, "old.one()\nold.two()\n", "w")
    shell(script, file, program=program)
    assert list(lines(file).values()) == wanted


@pytest.mark.parametrize("line, column, words", [
    ("20: work() {i, i +, 2}", 18, "invalid syntax"),
    ("work()  if\tuu + * 2", 17, "invalid syntax"),
    ("work() if üü + * 2", None, "invalid syntax"),
    ("work() if x = 3", 12, "invalid syntax"),
    ("watch sys.path + hw=perf", 16, "invalid syntax"),
    ("watch 3 = 4 {i}", 8, "invalid syntax"),
    ("work() {yield 3}", None, ""),
    ("work() if (lambda: (yield", None, "isn't closed"),
    ("work() if 0777", None, ""),
    ("work() if a b", None, "invalid syntax"),
])
def test_python_syntax(probe, target, file, line, column, words):
    put(file, "double()\n", "w")
    with pytest.raises(Refused) as refused:
        Commands(probe, target.pid).run("breakpoints", f"f()\n{line}\ng()\n")
    assert refused.value.errno == errno.EINVAL
    said, shown, caret = refused.value.words.splitlines()
    assert said.startswith("error: ") and words in said and shown == "  " + line.replace("\t", "\\t")
    assert re.fullmatch(" *\\^", caret) and 2 < len(caret) <= len(shown) + 1
    if column:
        assert len(caret) == 2 + column + 1
    assert list(lines(file).values()) == ["log double()"]
    assert [line for line in file.read_text().splitlines() if "# error: " + said[7:] in line]


def test_all_or_none(probe, target, file):
    put(file, "work()\n", "w")
    for bad, error in (("-77", errno.ENOENT), ("-no.where()", errno.ENOENT), ("work() {)}", errno.EINVAL),
                       ("work() if +", errno.EINVAL)):
        with pytest.raises(OSError) as refused:
            write(file, f"3: double()\n-1\n{bad}\n")
        assert refused.value.errno == error
        assert lines(file) == {1: "log work()"}
    work(target)
    assert hits(file) == {1: 1}


def test_lines_that_undo_others(probe, target, file):
    """What is set and taken out by the same write was never there."""
    put(file, "1: work()\n2: double()\n-2\n1: return work()\n", "w")
    assert lines(file) == {1: "log return work()"}
    work(target)
    assert hits(file) == {1: 1}
    assert len(rows((file.parent / "tables" / "hits.csv").read_text())) == 1


def test_reply_of_ones_own(probe, target, file):
    said = Commands(probe, target.pid).run("breakpoints", "work()\n9: no.where()\n-9\n")
    assert plain(said) == "1: log work()  # armed\n9: log no.where()  # removed\n-9\n"
    assert plain(file.read_text()) == "1: log work()  # armed, 0 hits\n"


def test_large_set(target, file):
    """In pieces of any size, and all at once."""
    many = "".join(f"{i}: stop source.py:{LINE} if x == {i}\n" for i in range(1, 1001))
    subprocess.run(["dd", f"of={file}", "bs=777", "status=none"], input=many.encode(), check=True, timeout=patience(60))
    assert lines(file) == {i: f"stop source.py:{LINE} if x == {i}" for i in range(1, 1001)}
    work(target, 1)
    put(file, many, "w")
    assert len(lines(file)) == 1000
    put(file, "".join(f"-{i}\n" for i in range(1, 1001)), "a")
    assert file.read_text() == ""


def test_two_writers(target, file):
    """Each adds and removes its own, and gets what it asked for."""
    def writer(name):
        for i in range(30):
            write(file, f"{name}.a{i}()\n{name}.b{i}()\n")
            assert {f"log {name}.a{i}()", f"log {name}.b{i}()"} <= set(lines(file).values())
            write(file, f"-{name}.a{i}()\n")
        return [f"log {name}.b{i}()" for i in range(30)]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        wanted = [text for done in pool.map(writer, ("one", "two")) for text in done]
    assert sorted(lines(file).values()) == sorted(wanted)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: put(file, f"{name}.c()\n{name}.d()\n", "w"), ("one", "two")))
    assert list(lines(file).values()) in (["log one.c()", "log one.d()"], ["log two.c()", "log two.d()"])


LOADED = textwrap.dedent("""
    import sys, threading
    wrong = [0]
    def double(x):
        y = x * 2
        return y
    def loop():
        x = 0
        while True:
            wrong[0] += double(x) != x + x
            x += 1
    for _ in range(2):
        threading.Thread(target=loop, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        print(*wrong, flush=True)
    """)


@pytest.mark.long
@pytest.mark.deadline(600)
def test_two_writers_under_load(probe, python):
    """The function that two threads run all the time gets and loses breakpoints by two writers, and computes the
    same."""
    target = python.run_source(LOADED)
    file = probe.path / str(target.pid) / "breakpoints"

    def writer(number):
        for i in range(WRITES // 4):
            write(file, f"{number}: log source.py:{LINE} {{x}} if x < 0\n")
            write(file, f"-{number}\n")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(writer, (1, 2)))
    assert lines(file) == {}
    target.send("x")
    target.expect("0")


def test_detached(probe, target, file):
    put(file, "work()\nno.where()\n", "w")
    commands = Commands(probe, target.pid)
    commands.run("ctl", "detach\n")
    assert file.read_text() == ""
    work(target)
    put(file, "double()\n", "a")
    assert list(lines(file).values()) == ["log double()"]
    assert [row["breakpoint"] for row in rows(commands.run("query", "SELECT * FROM breakpoints;"))] == ["log double()"]


def test_events(probe, target, file):
    put(file, "return double() {x, y}\n", "w")
    with Reader(probe, target.pid) as reader, Reader(probe, "all") as everybody:
        work(target, 3)
        told = reader.read_until(lambda lines: len(lines) >= 3)
        assert kinds(told) == ["hit"] * 3 and [line["hit"] for line in told] == [1, 2, 3]
        assert [line["captured"] for line in told] == [
            {"x": str(i), "y": str(2 * i)} for i in range(3)]
        assert {(line["func"], line["tid"], line["id"]) for line in told} == {("double", target.pid, 1)}

        def mine():
            return [line for line in everybody.lines if line["pid"] == target.pid and line["kind"] == "hit"]
        everybody.read_until(lambda _: len(mine()) >= 3)
        assert [{key: line[key] for key in told[0]} for line in mine()] == told


def test_stop(probe, target, file):
    """It is told that a thread is held and goes on; the set can be read and changed meanwhile."""
    put(file, f"stop source.py:{LINE} if x == 1\n", "w")
    with Reader(probe, target.pid) as reader:
        work(target)
        target.send("x")
        told = reader.read_until(lambda lines: "stop" in kinds(lines))
        assert kinds(told) == ["hit", "stop"] and told[1]["captured"] == {"x": "1"}
        put(file, "work() {i}\n", "a")
        assert hits(file) == {1: 1, 2: 0}
        assert [f", holds {target.pid}" in line for line in file.read_text().splitlines()] == [True, False]
        put(file, "2: work() {i, line}\n", "w")  # what is removed lets go what it holds
        assert lines(file) == {2: "log work() {i, line}"}
        target.expect("done")
        assert "holds" not in file.read_text()
        work(target)
        told = reader.read_until(lambda lines: kinds(lines).count("hit") >= 2 and "continue" in kinds(lines))
        told.sort(key=lambda line: line["ts"])  # a ring that is new is found a moment later
        assert kinds(told) == ["hit", "stop", "continue", "hit"]
        assert told[2]["ts"] > told[1]["ts"] and told[2]["tid"] == told[1]["tid"] and told[2]["attrs"]["id"] == 1
        assert told[2]["name"] == "removed" and 0 < told[2]["attrs"]["held"] < told[2]["ts"] - told[1]["ts"] + 1
        assert told[3]["captured"]["i"] == "2" and told[3]["id"] == 2


# a program of another user, that can be looked at
AS_USER = "import ctypes, os; os.setgroups([]); os.setgid({gid}); os.setuid({uid}); ctypes.CDLL(None).prctl(4, 1)\n"


@pytest.mark.alone
def test_all(probe, python, nobody):
    """Of who writes to all: their own processes, and each says what came of it."""
    if python.source == "pyenv":
        pytest.skip("not every user may read its modules")
    user = pwd.getpwnam(nobody)
    as_nobody = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    source = AS_USER.format(uid=user.pw_uid, gid=user.pw_gid) + SOURCE
    other, *targets = python.run_source(SOURCE), python.run_source(source), python.run_source(source)
    targets.sort(key=lambda target: target.pid)
    with probe.mount("allow_other") as mounted:
        everybody = mounted.path / "all" / "breakpoints"
        own = {target: mounted.path / str(target.pid) / "breakpoints" for target in (other, *targets)}
        said = shell('exec 3<>"$1"; echo "work() {i}" >&3; cat <&3', everybody, **as_nobody).stdout
        assert plain(said) == "".join(f"{target.pid}: 1: log work() {{i}}  # armed\n" for target in targets)
        one = "1: log work() {i}  # armed, 0 hits\n"
        assert [plain(own[target].read_text()) for target in (other, *targets)] == ["", one, one]
        seen = shell('cat "$1"', everybody, **as_nobody).stdout
        assert plain(seen) == "".join(f"1: log work() {{i}}  # pid {target.pid}, armed, 0 hits\n" for target in targets)
        put(own[targets[0]], "double()\n", "a")
        said = shell('exec 3<>"$1"; echo "-double()" >&3; cat <&3; echo "work() if +" >&3; cat <&3', everybody,
                     **as_nobody).stdout.splitlines()
        assert said[0] == f"{targets[0].pid}: -double()"
        words, line, caret, *rest = said[1:]  # once for all
        assert words == f"error: pid {targets[0].pid}, pid {targets[1].pid}: invalid syntax" and line == "  work() if +"
        assert caret.endswith(" ^") and rest == ["error: it was done in no process"]
        assert shell(': > "$1"', everybody, **as_nobody).returncode == 0
        assert shell('cat "$1"', everybody, **as_nobody).stdout.count("log") == 0
        assert [own[target].read_text().count("log") for target in targets] == [0, 0]


@pytest.mark.alone
@pytest.mark.parametrize("strict", [False, True])
def test_all_but_some(probe, python, nobody, strict):
    """Which have failed is told by rank, each reason once; with -- strict that fails."""
    if python.source == "pyenv":
        pytest.skip("not every user may read its modules")
    user = pwd.getpwnam(nobody)
    source = AS_USER.format(uid=user.pw_uid, gid=user.pw_gid) + SOURCE
    ten, two, one, other = [python.run_source(source, env=env)
                            for env in ({"RANK": "10"}, {"RANK": "2"}, {"RANK": "1"}, {})]
    with probe.mount("allow_other") as mounted:
        for target in ten, two, other:
            put(mounted.path / str(target.pid) / "breakpoints", "".join(f"{i}: double()\n" for i in range(1, 4097)),
                "w")
        script = 'exec 3<>"$1"; printf %b "$2work() {i}\\n" >&3; echo $?; cat <&3'
        status, *said = shell(script, mounted.path / "all" / "breakpoints", "-- strict\\n" if strict else "",
                              user=user.pw_uid, group=user.pw_gid, extra_groups=[]).stdout.splitlines()
        assert plain(said[0]) == f"{one.pid}: 1: log work() {{i}}  # armed"
        assert said[1] == (f"error: rank 2 (pid {two.pid}), rank 10 (pid {ten.pid}), pid {other.pid}: "
                           "more than 4096 breakpoints")
        assert [line.strip() for line in said[2:4]] == ["work() {i}", "^"]
        assert said[4:] == (["error: it was done in 1 of 4 processes"] if strict else [])
        assert (status != "0") == strict
        assert lines(mounted.path / str(one.pid) / "breakpoints") == {1: "log work() {i}"}
