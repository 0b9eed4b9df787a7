"""query: SQL over a live process. What it says is held against what the victim, /proc and SQLite
say by themselves."""
import contextlib
import errno
import itertools
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import threading
import time

import pytest

from commands import failure, shell
from interpreters import eventually, patience
from sql import RECORDED, SCHEMA, ask, columns, refused, reply, settle, value
from stacks import escape

ONLY = "only reading is allowed: SELECT, WITH, VALUES, EXPLAIN"
WAIT = "import sys; print('ready'); sys.stdin.read()"
BOMB = "SELECT count(*) FROM backtrace a, backtrace b, backtrace c, backtrace d, backtrace e, backtrace f"


@pytest.fixture
def waiting(any_python):
    return any_python.run_source(WAIT)


@pytest.fixture
def query(probe, waiting):
    return probe.path / str(waiting.pid) / "query"


def path_of(probe, target):
    return probe.path / str(target.pid) / "query"


# ---- the tables ----

def test_backtrace(probe, python):
    target = python.run("threads.py", 6, 8)
    said = target.stacks()
    rows = ask(path_of(probe, target), "SELECT * FROM python.backtrace WHERE frame_type = 'Python' "
                                       "ORDER BY tid, depth")
    seen = {}
    for tid, frames in itertools.groupby(rows, key=lambda row: int(row["tid"])):
        frames = list(frames)
        assert [int(f["depth"]) for f in frames] == list(range(len(frames)))
        assert all(f["module"] == "" and int(f["address"]) > 0 for f in frames)
        seen[tid] = {"thread": frames[0]["thread"],
                     "frames": [(f["func"], f["file"], int(f["lineno"])) for f in frames]}
    assert set(said) <= set(seen)
    for tid, thread in said.items():
        assert seen[tid] == {"thread": thread["name"], "frames": thread["frames"]}


def test_backtrace_is_the_file(probe, python):
    """The rows are the lines of the file, native frames included."""
    target = python.run("threads.py", 3, 5)
    settle(target)
    lines = [line for line in probe.read(target.pid, "backtrace").splitlines()
             if line.startswith("  #")]
    rows = ask(path_of(probe, target), "SELECT number, func, file, lineno, frame_type, module "
                                       "FROM backtrace")
    assert len(rows) == len(lines) > 30
    for row, line in zip(rows, lines):
        head, rest = re.match(r"  #(\d+)  (.*)$", line).groups()
        assert row["number"] == head
        if row["frame_type"] == "Python":
            assert rest == f"{row['func']} ({row['file']}:{row['lineno']})"
        elif row["frame_type"] == "Native":
            assert rest.startswith(f"{row['func'] or '??'} ({row['module']}+0x")
            assert rest.endswith(" [native]")
        else:
            assert rest == f"?? (unreadable: {row['func']})"


def test_top_frames(probe, python):
    """The query of the first page: where is every thread?"""
    target = python.run("threads.py", 5, 8)
    said = target.stacks()
    rows = ask(path_of(probe, target),
               "SELECT tid, func, file, lineno FROM python.backtrace WHERE depth = 0")
    seen = {int(r["tid"]): (r["func"], r["file"], int(r["lineno"])) for r in rows}
    assert len(rows) == len(seen)
    for tid, thread in said.items():
        assert seen[tid] == thread["frames"][0]
    for depth, (tid, thread) in itertools.product((0, 1, 3), said.items()):
        (row,) = ask(path_of(probe, target), f"SELECT func FROM backtrace WHERE depth = {depth} AND "
                                             f"tid = {tid}") or [None]
        assert row["func"] == thread["frames"][depth][0]
        break
    tid = min(said)
    rows = ask(path_of(probe, target), f"SELECT depth FROM backtrace WHERE tid = {tid} AND depth < 2")
    assert [int(r["depth"]) for r in rows] == [0, 1]
    assert ask(path_of(probe, target), "SELECT * FROM backtrace WHERE tid = 1") == []
    assert ask(path_of(probe, target), "SELECT * FROM backtrace WHERE depth < 0") == []


def test_deep_stack(probe, python):
    target = python.run("recursion.py")
    query = path_of(probe, target)
    tid, full = ask(query, "SELECT tid, depth FROM threads WHERE thread = 'deep'")[0].values()
    full = int(full)
    rows = ask(query, f"SELECT depth, func FROM backtrace WHERE tid = {tid} AND "
                      "frame_type = 'Python'")
    depths = [int(r["depth"]) for r in rows]
    assert full > len(depths) > 1000  # the middle is cut
    assert depths == sorted(set(depths)) and depths[0] == 0 and depths[-1] == full - 1
    assert rows[-1]["func"].rpartition(".")[2] == "_bootstrap"
    assert [int(r["depth"]) for r in ask(query, "SELECT depth FROM backtrace WHERE depth <= 3 AND "
                                                f"tid = {tid}")] == [0, 1, 2, 3]


def test_threads(probe, python):
    target = python.run("threads.py", 4, 6)
    said = target.stacks()
    settle(target)
    rows = {int(r["tid"]): r for r in ask(path_of(probe, target), "SELECT * FROM threads")}
    assert set(rows) == set(target.tids())
    for tid, thread in said.items():
        row = rows[tid]
        assert row["thread"] == thread["name"]
        assert row["is_main"] == str(int(thread["main"]))
        assert int(row["depth"]) == len(thread["frames"])
        assert int(row["ident"]) == thread["ident"] and row["interpreter"] == "0"
        assert (row["state"], row["wchan"]) == ("idle", "futex")
        assert row["holds_gil"] == row["waits_gil"] == "0"
        fields = pathlib.Path(f"/proc/{target.pid}/task/{tid}/stat").read_text().rpartition(")")[2]
        user, system = map(int, fields.split()[11:13])
        tick = os.sysconf("SC_CLK_TCK")
        assert float(row["cpu_user"]) == pytest.approx(user / tick)
        assert float(row["cpu_system"]) == pytest.approx(system / tick)


def test_busy_thread_holds_the_gil(probe, python):
    target = python.run_source("print('ready', flush=True)\nwhile True: pass")
    query = path_of(probe, target)
    eventually(lambda: value(query, "SELECT count(*) FROM threads WHERE holds_gil AND "
                                    "state = 'running' AND is_main") == "1", what="the GIL's holder")


def test_locals(probe, python):
    target = python.run("values.py", ready=False)
    expected = json.loads(target.readline())
    eventually(lambda: target.state() == "S", what="reading")
    rows = ask(path_of(probe, target),
               "SELECT depth, name, value FROM locals JOIN backtrace USING (tid, depth) "
               f"WHERE tid = {target.pid} AND func = 'frame' AND name <> 'rest'")
    seen = [{r["name"]: r["value"] for r in frame}
            for _, frame in itertools.groupby(rows, key=lambda row: row["depth"])]
    assert len(seen) == len(expected) > 6
    assert seen == expected


TYPES = """
import sys, collections, threading
class Point: pass
def f(a, b, c, d, e, g, h, i):
    print('ready', flush=True)
    sys.stdin.read()
f(1, 10**30, 'x', None, Point(), Point, collections.Counter(), threading.Lock())
"""


def test_types(probe, python):
    target = python.run_source(TYPES)
    eventually(lambda: target.state() == "S", what="reading")
    rows = ask(path_of(probe, target), "SELECT name, type FROM locals JOIN backtrace USING (tid, "
                                       "depth) WHERE func = 'f' AND lineno > 0")
    assert {r["name"]: r["type"] for r in rows} == {
        "a": "int", "b": "int", "c": "str", "d": "NoneType", "e": "__main__.Point", "g": "type",
        "h": "collections.Counter", "i": "_thread.lock"}


@pytest.mark.python(minimum=(3, 12))
def test_tasks(probe, python):
    target = python.run("asyncio_tasks.py", "nested")
    said = {escape(task["name"]): task for task in json.loads(target.readline())}
    rows = {r["name"]: r for r in ask(path_of(probe, target), "SELECT * FROM tasks")}
    assert set(rows) == {*said, "Task-1"}
    for name, task in said.items():
        row = rows[name]
        assert int(row["id"]) == task["address"] and row["coro"] == task["coro"]
        func, file, line = task["frames"][-1]
        assert row["state"] == "waiting" and row["tid"] == str(target.pid)
        if func != "Event.wait":
            assert (row["func"], row["file"], int(row["lineno"])) == (func, file, line)


EXCEPTIONS = """
import sys, threading

def wait():
    started.release()
    done.acquire()

def handles():
    try:
        raise ValueError
    except ValueError:
        wait()

def cleans():
    try:
        raise ValueError
    finally:
        wait()

def handled():
    try:
        raise ValueError
    except ValueError:
        pass
    wait()

def generate(inside):
    try:
        raise ValueError
    except ValueError:
        if inside:
            wait()
        yield

def generates():
    next(generate(True))

def generated():
    paused = generate(False)
    next(paused)
    wait()

def plain():
    yield wait()

def around():
    try:
        raise ValueError
    except ValueError:
        next(plain())

def nested(depth):
    if depth:
        yield from nested(depth - 1)
    else:
        yield wait()

def far_around():
    try:
        raise ValueError
    except ValueError:
        next(nested(32))

def cleaned_up():
    try:
        raise ValueError
    except ValueError:
        pass
    finally:
        yield wait()

def finished():
    next(cleaned_up())

async def coroutine():
    try:
        raise ValueError
    except ValueError:
        wait()

def awaits():
    coroutine().send(None)

done = threading.Lock()
done.acquire()
started = threading.Semaphore(0)
for function in wait, handles, cleans, handled, generates, generated, around, far_around, finished, awaits:
    threading.Thread(target=function, name=function.__name__, daemon=True).start()
    started.acquire()
print("ready", flush=True)
sys.stdin.read()
"""


def test_who_handles_an_exception(probe, python):
    target = python.run_source(EXCEPTIONS, name="handlers.py")
    rows = ask(path_of(probe, target), "SELECT thread, tid, handles_exception AS h FROM threads")
    handling = {r["thread"] for r in rows if r["h"] == "1"}
    assert handling == {"handles", "cleans", "generates", "around", "far_around", "awaits"}
    assert {r["h"] for r in rows} == {"0", "1"}
    for row in rows:
        said = probe.read(target.pid, "threads", row["tid"], "status")
        assert f"HandlesException: {'yes' if row['h'] == '1' else 'no'}\n" in said


COLLECTING = """
import gc, sys, threading
if len(sys.argv) > 1:
    threading.Thread(target=threading.Event().wait, name="other", daemon=True).start()
gc.disable()
print("ready", flush=True)
sys.stdin.readline()
gc.callbacks.append(lambda phase, info: (print(phase, flush=True), sys.stdin.readline()))
gc.collect()
sys.stdin.readline()
"""


@pytest.mark.parametrize("others", [False, True])
def test_who_collects_garbage(probe, python, others):
    target = python.run_source(COLLECTING, *["other"] * others, name="collecting.py")

    def said():
        return {r["thread"]: r["c"] for r in
                ask(path_of(probe, target), "SELECT thread, collects_garbage AS c FROM threads")}
    nobody = {name: "0" for name in ["MainThread", *["other"] * others]}
    assert said() == nobody
    for phase in "start", "stop":
        target.send("go")
        target.expect(phase)
        known = not others or python.version >= (3, 15)
        assert said() == ({**nobody, "MainThread": "1"} if known else {name: "" for name in nobody})
        status = probe.read(target.pid, "threads", target.pid, "status")
        assert f"CollectsGarbage: {'yes' if known else 'unknown'}\n" in status
    target.send("go")
    eventually(lambda: said() == nobody, what="the end of the collection")


GROUP = """
import asyncio
async def leaf(): await asyncio.Event().wait()
async def main():
    one, two = (asyncio.create_task(leaf(), name=n) for n in ("one", "two"))
    await asyncio.sleep(0)
    print('ready', flush=True)
    await asyncio.gather(one, two)
asyncio.run(main())
"""


@pytest.mark.python(minimum=(3, 12))
def test_who_awaits_whom(probe, python):
    target = python.run_source(GROUP)
    query = path_of(probe, target)
    eventually(lambda: target.state() == "S", what="waiting")
    assert value(query, "SELECT awaits FROM tasks WHERE name = 'Task-1'") == "one, two"
    rows = ask(query, "WITH RECURSIVE t(id, path) AS (SELECT id, name FROM tasks WHERE awaited_by IS "
                      "NULL UNION ALL SELECT tasks.id, path || '/' || name FROM tasks JOIN t ON "
                      "awaited_by = t.id) SELECT path FROM t ORDER BY path")
    assert [r["path"] for r in rows] == ["Task-1", "Task-1/one", "Task-1/two"]


@pytest.mark.python(maximum=(3, 11))
def test_tasks_of_old_versions(probe, python):
    target = python.run_source(WAIT)
    number, words = refused(path_of(probe, target), "SELECT * FROM tasks")
    assert number == errno.EOPNOTSUPP and "3.12" in words


MODULES = """
import json, sys, threading, email.message
sys.modules["no module"] = 5
print(json.dumps({name: getattr(m, "__file__", None) for name, m in sys.modules.items()}))
sys.stdin.read()
"""


def test_modules(probe, python):
    target = python.run_source(MODULES, ready=False)
    said = json.loads(target.readline())
    eventually(lambda: target.state() == "S", what="reading")
    rows = ask(path_of(probe, target), "SELECT * FROM modules")
    assert {r["name"]: r["file"] or None for r in rows} == said and len(rows) == len(said)
    kinds = {r["name"]: r["type"] for r in rows}
    assert kinds["no module"] == "int" and kinds["threading"] == "module"
    assert {r["interpreter"] for r in rows} == {"0"}


def test_process(probe, python):
    target = python.run_source(WAIT, "a b", env={"RANK": "3"})
    eventually(lambda: target.state() == "S", what="reading")
    asked = time.time()
    (row,) = ask(path_of(probe, target), "SELECT * FROM process")
    answered = time.time()
    status = dict(line.split(":\t", 1) for line in
                  pathlib.Path(f"/proc/{target.pid}/status").read_text().splitlines())
    assert int(row["pid"]) == target.pid and row["rank"] == "3"
    assert row["ppid"] == status["PPid"] and row["uid"] == status["Uid"].split()[0]
    assert row["python"].startswith(".".join(map(str, python.version)))
    assert row["executable"] == os.readlink(f"/proc/{target.pid}/exe")
    assert row["cwd"] == os.readlink(f"/proc/{target.pid}/cwd")
    assert row["command"].endswith("source.py a b") and row["state"] == status["State"]
    assert int(row["threads"]) == 1 and int(row["vsize"]) > int(row["rss"]) > 0
    assert asked - 5 < float(row["started"]) + float(row["uptime"]) < answered + 5
    assert float(row["cpu_user"]) >= 0


def test_environ(probe, any_python):
    nasty = {"PLAIN": "x", "EMPTY": "", "QUOTED": 'a "b", c', "LINES": "one\ntwo\n", "EQUALS": "a=b",
             "INJECTION": "'; DROP TABLE threads; --", "ESCAPE": "\x1b[31m"}
    target = any_python.run_source(WAIT, env={**nasty, "INVALID": os.fsdecode(b"a\xff\xc3\xbc")})
    rows = ask(path_of(probe, target), "SELECT * FROM environ")
    seen = {r["name"]: r["value"] for r in rows}
    assert seen.pop("ESCAPE") == "\\x1b[31m" and seen.pop("INVALID") == "a\\xffü"
    nasty.pop("ESCAPE")
    assert {name: seen[name] for name in nasty} == nasty
    block = pathlib.Path(f"/proc/{target.pid}/environ").read_bytes()
    assert len(rows) == block.count(b"\0")


def test_maps(probe, waiting):
    settle(waiting)
    rows = ask(path_of(probe, waiting), "SELECT * FROM maps")
    lines = pathlib.Path(f"/proc/{waiting.pid}/maps").read_text().splitlines()
    assert len(rows) == len(lines)
    for row, line in zip(rows, lines):
        span, perms, offset, _, inode, *path = line.split(None, 5)
        start, end = (int(text, 16) for text in span.split("-"))
        if start < 1 << 63:
            assert (int(row["start"]), int(row["size"])) == (start, end - start)
        assert (row["perms"], int(row["file_offset"])) == (perms[:3], int(offset, 16))
        assert int(row["inode"]) == int(inode) and row["path"] == (path[0] if path else "")
    # an address in a row leads to its library
    assert value(path_of(probe, waiting), "SELECT count(*) FROM backtrace b JOIN maps m ON "
                 "b.address BETWEEN m.start AND m.start + m.size - 1 WHERE frame_type = 'Native' AND "
                 "m.path LIKE '%' || b.module") == value(
        path_of(probe, waiting), "SELECT count(*) FROM backtrace WHERE module <> ''")


def test_tables_describe_themselves(query):
    tables = {r["name"]: r for r in ask(query, "SELECT * FROM python.tables")}
    assert set(tables) == set(SCHEMA)
    for name, row in tables.items():
        assert row["comment"] and row["source"] in {"passive", "recorded", "sampled", "schema"}
        described = ask(query, f"SELECT name, type FROM columns WHERE table_name = '{name}' "
                               "ORDER BY position")
        assert [(r["name"], r["type"]) for r in described] == columns(name, hidden=True)
        assert int(row["columns"]) == len(described)
        header = reply(query, f"SELECT * FROM {name} LIMIT 0").strip()
        assert header == ",".join(column for column, _ in columns(name))
        assert reply(query, f"SELECT * FROM python.{name} LIMIT 0").strip() == header
        assert (row["source"] == "recorded") == (name in RECORDED)
        assert (row["kept"], row["lost"]) == ("", "")
    assert all(r["comment"] for r in ask(query, "SELECT comment FROM columns"))
    assert value(query, "SELECT unit FROM columns WHERE table_name = 'threads' AND "
                        "name = 'cpu_user'") == "s"


# ---- SQL ----

def test_sql(query):
    cases = {
        "SELECT 1 + 1 AS x": [{"x": "2"}],
        "WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM c LIMIT 3) SELECT * FROM c":
            [{"x": "1"}, {"x": "2"}, {"x": "3"}],
        "SELECT row_number() OVER (ORDER BY name) AS n, name FROM tables LIMIT 1":
            [{"n": "1", "name": "backtrace"}],
        "SELECT value FROM json_each('[7]')": [{"value": "7"}],
        "SELECT round(sqrt(2), 3) AS x, pow(2, 10) AS y": [{"x": "1.414", "y": "1024.0"}],
        "SELECT median(value) AS m, percentile(value, 25) AS q FROM json_each('[4, 1, 3, 2]')":
            [{"m": "2.5", "q": "1.75"}],
        "SELECT name FROM tables WHERE name REGEXP '^t(a|h).*s$' ORDER BY 1":
            [{"name": "tables"}, {"name": "task_edges"}, {"name": "tasks"}, {"name": "threads"}],
        "SELECT python.threads.is_main FROM python.threads": [{"is_main": "1"}],
        "SELECT t.is_main FROM threads AS t JOIN backtrace b USING (tid) WHERE b.depth = 0":
            [{"is_main": "1"}],
        "VALUES (1, 'a')": [{"column1": "1", "column2": "a"}],
    }
    for sql, wanted in cases.items():
        assert ask(query, sql) == wanted, sql


def test_formats(query):
    sql = "SELECT name, columns FROM tables WHERE name IN ('backtrace', 'columns') ORDER BY 1"
    assert json.loads(reply(query, f"-- format: json\n{sql}")) == [
        {"name": "backtrace", "columns": len(columns("backtrace"))},
        {"name": "columns", "columns": len(columns("columns"))}]
    assert reply(query, f"-- format: csv\n{sql}") == reply(query, sql)
    table = reply(query, f"-- format: table\n{sql}").splitlines()
    assert table[0].split() == ["name", "columns"] and set(table[1]) == {"-", " "}
    assert len(table) == 4 and len({len(line) for line in table}) == 1
    number, words = refused(query, "-- format: yaml\nSELECT 1")
    assert number == errno.EINVAL and "csv, json, jsonl, metrics or table" in words


def test_errors(query):
    for sql, words in {
        "SELECT func FORM backtrace WHERE x": 'near "backtrace": syntax error\n'
        "  SELECT func FORM backtrace WHERE x\n                   ^",
        "SELECT depth,\n       nope\nFROM backtrace\n": "no such column: nope\n         nope\n"
        "         ^",
        "SELECT * FROM nowhere": "no such table: nowhere; there are: " + ", ".join(
            ask(query, "SELECT group_concat(name, ', ') AS n FROM tables")[0]["n"].split(", ")) +
        "; one of the program's own is there once it has a row",
        'SELECT "MainThread" FROM threads\n': "no such column: MainThread\n"
        '  SELECT "MainThread" FROM threads\n         ^',
        "SELECT nosuch_(1) FROM threads": "no such function: nosuch_\n  SELECT nosuch_(1) FROM "
        "threads\n         ^",
    }.items():
        assert refused(query, sql) == (errno.EINVAL, words)
    # what a semicolon ends is wrong at once, not only at a close that nobody looks at
    for sql in "SELECT nope;", "SELECT tid FROM threads, backtrace;":
        assert refused(query, sql)[0] == errno.EINVAL
    result = shell('echo "SELECT nope FROM threads" > "$1"; echo $?; cat "$1"', query)
    assert "Invalid argument" in result.stderr
    assert result.stdout == "1\nerror: no such column: nope\n  SELECT nope FROM threads\n" \
                            "         ^\n"
    assert "no such column: nope" in (query.parent / "errors").read_text()


@pytest.mark.parametrize("sql", [
    "ATTACH '/tmp/probefs-attached' AS x", "VACUUM INTO '/tmp/probefs-attached'",
    "CREATE TABLE t(a)", "DELETE FROM threads", "UPDATE threads SET tid = 1",
    "INSERT INTO threads VALUES (1)", "DROP TABLE threads", "PRAGMA journal_mode = DELETE",
    "SELECT load_extension('/lib/x86_64-linux-gnu/libm.so.6')", "BEGIN",
    "PRAGMA temp_store_directory = '/tmp'", "CREATE TRIGGER t AFTER INSERT ON x BEGIN SELECT 1; END"])
def test_only_reading(query, sql):
    number, words = refused(query, sql + ";")
    assert number == errno.EINVAL
    assert words.startswith((ONLY, "table threads may not be modified", "no such table",
                             "table threads has 12 columns"))
    assert not os.path.exists("/tmp/probefs-attached")
    assert value(query, "SELECT count(*) FROM threads") == "1"


WRITERS = {
    "bash echo": ("bash", 'echo "$2" > "$1"'),
    "dash echo": ("dash", 'echo "$2" > "$1"'),
    "append": ("bash", 'echo "$2" >> "$1"'),
    "printf without a newline": ("bash", 'printf %s "$2" > "$1"'),
    "with a semicolon": ("bash", 'echo "$2;" > "$1"'),
    "cat": ("bash", 'echo "$2" | cat > "$1"'),
    "byte by byte": ("bash", 'printf %s "$2" | dd bs=1 of="$1" status=none'),
    "in sevens": ("bash", 'printf %s "$2" | dd bs=7 of="$1" status=none'),
    "words": ("bash", 'for word in $2; do echo -n "$word "; done > "$1"'),
    "a program a word": ("bash", 'for word in $2; do /bin/echo -n "$word "; done > "$1"'),
    "tee": ("bash", 'echo "$2" | tee "$1" > /dev/null'),
    "here document": ("bash", 'cat > "$1" <<< "$2"'),
}
LINES = """SELECT t.name,
       count(*) AS n
FROM python.tables AS t
JOIN python.columns AS c
  ON c.table_name = t.name -- joins; them
WHERE t.name IN ('threads', 'tasks')
GROUP BY t.name
ORDER BY n DESC"""


@pytest.mark.parametrize("how", WRITERS)
def test_ways_to_write(query, how):
    program, script = WRITERS[how]
    text = " ".join(line.partition("--")[0] for line in LINES.splitlines()) \
        if "word" in how else LINES
    result = shell(script, query, text, program=program)
    assert (result.returncode, result.stderr) == (0, "")
    wanted = sorted(((len(columns(t)), t) for t in ("threads", "tasks")), reverse=True)
    assert query.read_text() == "name,n\n" + "".join(f"{t},{n}\n" for n, t in wanted)


@pytest.mark.parametrize("before", ["-- how many\n", "-- taken from where?\n\n  -- and by whom\n"])
def test_comments_in_front(query, before):
    """They make no difference, wherever it is cut."""
    lines = (before + LINES + "\n").splitlines(keepends=True)
    for cut in range(1, len(lines)):
        parts = "".join(lines[:cut]), "".join(lines[cut:])
        if lines[cut - 1].startswith("       count"):
            parts = lines  # two lines that are none together are wrong at once, as what `cat` writes is
        fd = os.open(query, os.O_RDWR)
        for part in parts:
            os.write(fd, part.encode())
        os.close(fd)
        assert query.read_text().startswith("name,n\n") and query.read_text().count("\n") == 3
    result = shell('exec 3> "$1"; echo -n "$2" >&3; echo "SELECT nope FROM threads" >&3; echo $?; exec 3>&-; cat "$1"',
                   query, before)
    assert result.stdout.startswith("1\nerror: no such column: nope\n"), result


def test_statements_in_a_row(query):
    result = shell('exec 3<> "$1"; echo "SELECT 1 AS x" >&3; cat <&3; echo "SELECT 2 AS y" >&3;'
                   'cat <&3; echo "SELECT 3 AS z; SELECT 4 AS w;" >&3; cat <&3', query)
    assert (result.stdout, result.stderr) == ("x\n1\ny\n2\nz\n3\nw\n4\n", "")
    for program in "bash", "dash":
        result = shell('echo "SELECT 1 AS x;\nSELECT 2 AS y\n;" > "$1"', query, program=program)
        assert query.read_text() == "x\n1\ny\n2\n"
    result = shell('echo "SELECT 5 AS x\nWHERE 1" 1<> "$1"; cat "$1"', query)
    assert result.stdout == "x\n5\n"
    assert failure(lambda: query.write_text("SELECT count(")) == errno.EINVAL
    assert query.read_text() == "error: incomplete input\n"


# ---- limits ----

@pytest.mark.long
def test_bomb_ends_at_its_limit(probe, any_python):
    target = any_python.run("threads.py", 4, 10)
    query = path_of(probe, target)
    said = []
    start = time.monotonic()
    bomb = threading.Thread(target=lambda: said.append(refused(query, BOMB)))
    bomb.start()
    slowest = 0
    while bomb.is_alive():
        begun = time.monotonic()
        assert value(query, "SELECT count(*) FROM threads") == "6"
        assert probe.read(target.pid, "backtrace")
        slowest = max(slowest, time.monotonic() - begun)
        time.sleep(0.2)
    assert said == [(errno.ETIMEDOUT, "over the limit: a statement may take 10 s")]
    assert 9.9 < time.monotonic() - start < patience(60)
    assert slowest < patience(8)


def test_memory_ends_at_its_limit(probe, query):
    def resident():
        return int(pathlib.Path(f"/proc/{probe.pid}/statm").read_text().split()[1])

    before = resident()
    # texts of 14 MB, each an argument: what fills memory row by row takes a busy machine longer than the 10 s
    texts = ", ".join(f"hex(zeroblob({7000000 + number}))" for number in range(24))
    number, words = refused(query, f"SELECT length(max({texts}))")
    assert number == errno.EFBIG and "256 MiB" in words
    assert (resident() - before) * resource.getpagesize() < 400 << 20
    assert value(query, "SELECT 1") == "1"


@pytest.mark.attack
def test_depth_ends_at_its_limit(query):
    """SQLite calls itself for each level of a statement."""
    def chain(levels):
        return "WITH t0(x) AS (SELECT 1)" + "".join(
            f", t{i + 1}(x) AS (SELECT x + 1 FROM t{i})" for i in range(levels)) + f" SELECT x FROM t{levels};"

    wanted = {(errno.EFBIG, "over the limit: a statement may have 64 KiB")}
    if os.environ.get("PROBEFS_TEST_DAEMON"):  # with sanitizers its time may be over before
        wanted.add((errno.ETIMEDOUT, "over the limit: a statement may take 10 s"))
    for _ in range(3):
        assert refused(query, chain(3400)) in wanted
    assert value(query, chain(1500)) == "1501"


@pytest.mark.skipif(bool(os.environ.get("PROBEFS_TEST_DAEMON")), reason="with sanitizers its time may be over before")
def test_rows_end_at_their_limit(query):
    def in_time():
        """On a busy machine its 10 s may be over before."""
        try:
            return reply(query, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c")
        except TimeoutError:
            return None
    said = eventually(in_time, what="as many rows as there may be")
    assert said.startswith("x\n1\n2\n")
    assert said.endswith("\n1000000\n[cut: the limit of 1,000,000 rows was reached]\n")


ZEROS = "replace(hex(zeroblob(7000000)), '0', 'a')"
LASTING = {
    "joins": BOMB,
    "LIKE": f"SELECT {ZEROS} LIKE '%{'a' * 900}b'",
    "GLOB": f"SELECT {ZEROS} GLOB '*{'[^b-z]' * 100}q'",
    "rtrim": f"SELECT length(rtrim({ZEROS}, replace(hex(zeroblob(500000)), '0', 'b') || 'a'))",
    "planning": "WITH t0(x) AS (SELECT 1)" + "".join(
        f", t{i + 1}(x) AS (SELECT a.x FROM t{i} a, t{i} b)" for i in range(24)) + " SELECT count(*) FROM t24",
}


@pytest.mark.attack
@pytest.mark.parametrize("what", LASTING)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted(probe, any_python, what, number):
    """Ctrl-C ends the statement, and not only the one who waits for it."""
    target = any_python.run("threads.py", 4, 10)
    query = path_of(probe, target)
    writer = subprocess.Popen(["bash", "-c", 'echo "$2" > "$1"', "bash", str(query), LASTING[what]],
                              stderr=subprocess.PIPE, start_new_session=True)

    def busy():
        """Of the daemon, and of what runs statements: that has ended, or not."""
        total = 0
        for pid in probe.pid, *(pid for pid, name in probe.children().items() if name == "probefs-sql"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15]))
        return total

    rest = busy()
    eventually(lambda: busy() - rest > 10, what="the statement")
    start = time.monotonic()
    os.killpg(writer.pid, number)
    writer.wait(patience(30))
    assert time.monotonic() - start < patience(8)
    eventually(lambda: (before := busy(), time.sleep(0.3)) and busy() - before < 5,
               what="the daemon at rest")
    writer.stderr.close()


def test_64_at_once(probe, any_python):
    target = any_python.run("threads.py", 4, 6)
    settle(target)
    query = path_of(probe, target)
    wanted = value(query, "SELECT count(*) FROM backtrace")
    wrong = []

    def ask_often(n):
        for i in range(4):
            row, = ask(query, f"SELECT count(*) AS n, {n * 10 + i} AS mine FROM backtrace")
            if row != {"n": wanted, "mine": str(n * 10 + i)}:
                wrong.append(row)

    threads = [threading.Thread(target=ask_often, args=(n,)) for n in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---- one moment ----

RECURSIVE = """
import random
def descend(left):
    if left:
        return descend(left - 1)
print('ready', flush=True)
while True:
    descend(random.randrange(40))
"""


def test_one_moment(probe, python):
    """The tables of a statement show the same moment of a process that never rests: a frame's
    argument tells how many frames are above it then."""
    target = python.run_source(RECURSIVE)
    query = path_of(probe, target)
    deepest = 0
    for _ in range(60):
        rows = ask(query, "SELECT b.depth, l.value, (SELECT count(*) FROM backtrace WHERE "
                          "func = 'descend') AS n FROM backtrace b JOIN locals l USING (tid, depth) "
                          "WHERE b.func = 'descend' AND l.name = 'left' ORDER BY b.depth")
        if not rows:
            continue
        left = [int(r["value"]) for r in rows]
        assert left == list(range(left[0], left[0] + len(left)))
        assert {int(r["n"]) for r in rows} == {len(rows)}
        first = int(rows[0]["depth"])
        assert [int(r["depth"]) for r in rows] == list(range(first, first + len(rows)))
        deepest = max(deepest, len(rows))
    assert deepest > 5


# ---- names that mean something to SQL ----

NASTY = r"""
import sys, threading
def park(): threading.Event().wait()
names = ["'; DROP TABLE threads; --", 'a"b', "c,d", "x'||(SELECT 1)||'", "[y]", "z\n\"w\""]
code = "def f():\n park()\n"
for name in names:
    scope = {"park": park}
    exec(compile(code, name, "exec"), scope)
    threading.Thread(target=scope["f"], name=name, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


def test_names_are_only_names(probe, python):
    target = python.run_source(NASTY)
    query = path_of(probe, target)
    names = ["'; DROP TABLE threads; --", 'a"b', "c,d", "x'||(SELECT 1)||'", "[y]", r'z\n"w"']
    eventually(lambda: {r["thread"] for r in ask(query, "SELECT thread FROM threads")} >= set(names),
               what="the threads")
    eventually(lambda: {r["file"] for r in ask(query, "SELECT file FROM backtrace WHERE func = 'f'")} == set(names),
               what="the files")
    for name in names:
        quoted = name.replace("'", "''")
        (row,) = ask(query, f"SELECT thread FROM threads WHERE thread = '{quoted}'")
        assert row["thread"] == name
        assert value(query, "SELECT count(*) FROM backtrace b JOIN threads t ON b.file = t.thread "
                            f"WHERE t.thread = '{quoted}'") == "1"


# ---- the process ends ----

def test_dead_process(probe, any_python):
    target = any_python.run_source(WAIT)
    fd = os.open(path_of(probe, target), os.O_RDWR)
    try:
        os.write(fd, b"SELECT 1;")
        target.close()
        assert failure(os.write, fd, b"SELECT 2;") == errno.ESRCH
    finally:
        os.close(fd)
