"""tasks: the asyncio task tree, against what the victims say of themselves."""
import concurrent.futures
import dataclasses
import errno
import json
import pathlib
import re
import signal
import time

import pytest

from interpreters import eventually
from sql import ask, settle
from stacks import STANDS, escape

NEW = pytest.mark.python(minimum=(3, 12))
SCRIPT = "asyncio_tasks.py"

LOOP = re.compile(r"Loop 0x([0-9a-f]+) \((.*)\) \[(?:thread (\d+)(?:, (?:busy|blocked) .*)?|not running)\]$")
TASK = re.compile(r"( +)Task 0x([0-9a-f]+) \((.*)\) \[([a-z, ]+?)(?:, %s)?\] (.*?)( \(see (?:above|below)\))?$"
                  % STANDS.pattern)
FRAME = re.compile(r"( +)(\S.*) \((.*):(\d+|\?)\)$")
OBJECT = re.compile(r"( +)<(.*) object at 0x[0-9a-f]+>$")


@dataclasses.dataclass
class Task:
    address: int
    name: str
    state: list
    coro: str
    thread: int                 # of its loop
    frames: list = dataclasses.field(default_factory=list)   # outermost first
    objects: list = dataclasses.field(default_factory=list)
    children: list = dataclasses.field(default_factory=list)  # names, also of those seen elsewhere
    depth: int = 0


def parse(text):
    """{name: Task}; every line must be of a known form, at a place where it may stand."""
    tasks, thread, path = {}, None, []
    for line in text.splitlines():
        if head := LOOP.match(line):
            thread, path = int(head[3] or 0), []
            continue
        if head := TASK.match(line):
            depth = len(head[1]) // 2
            assert thread is not None and 1 <= depth <= len(path) + 1, line
            del path[depth - 1:]
            task = Task(int(head[2], 16), head[3], head[4].split(", "), head[5], thread, depth=depth)
            if path:
                path[-1].children.append(task.name)
            if head[6] is None:
                assert task.name not in tasks, f"{task.name} stands there twice"
                tasks[task.name] = task
                path.append(task)
            continue
        found = FRAME.match(line) or OBJECT.match(line)
        assert found and path and len(found[1]) == 2 * (path[-1].depth + 1), line
        if found.re is FRAME:
            assert not path[-1].objects and not path[-1].children, line
            line_number = int(found[4]) if found[4] != "?" else None
            path[-1].frames.append((found[2], found[3], line_number))
        else:
            path[-1].objects.append(found[2])
    return tasks


def look(probe, target):
    return parse(probe.read(target.pid, "tasks"))


def start(python, *cases, then=None):
    target = python.run(SCRIPT, *(["--then", then] if then else []), *cases)
    said = {escape(task["name"]): task for task in json.loads(target.readline())}
    if then:
        target.expect("there")
    return target, said


def check(seen, said):
    """All tasks of the victim but its main one are there, exactly as it described them."""
    assert set(seen) == {*said, "Task-1"}
    for name, task in said.items():
        assert seen[name].address == task["address"]
        assert seen[name].coro == escape(task["coro"])
        assert seen[name].frames == [(escape(f), escape(file), line)
                                     for f, file, line in task["frames"]], name
        assert seen[name].state == ["waiting"] + ["cancelling"] * task["cancelling"]


@NEW
@pytest.mark.parametrize("case", [
    "nested", "gather", "gather_of_gather", "group", "wait_for", "wait", "shield",
    "async_generator", "anext_default", "shared", "circle", "resting", "cancelled", "eager",
    "subclass", "python_task", "deep_chain", "handing_on"])
@pytest.mark.python(free_threaded=True)
def test_same_as_all_tasks(probe, python, case):
    target, said = start(python, case)
    assert said
    seen = look(probe, target)
    check(seen, said)
    assert all(task.thread == target.pid for task in seen.values())
    check(look(probe, target), said)  # once more, from the caches


@NEW
def test_what_stands_where(probe, python):
    """The text itself, for one small tree."""
    target, said = start(python, "shared")
    path = python.path(SCRIPT)
    address = {name: f"0x{task['address']:x}" for name, task in said.items()}
    line = {name: task["frames"][0][2] for name, task in said.items()}
    wait = "Event.wait ({}:{})".format(*said["shared"]["frames"][1][1:])
    text = probe.read(target.pid, "tasks")
    text = re.sub(r"<_asyncio.Future object at 0x\w+>", "<_asyncio.Future object>", text)
    text = re.sub(rf", {STANDS.pattern}\]", "]", text)
    lines = text.splitlines()
    assert lines[lines.index(f"  Task {address['joiner-0']} (joiner-0) [waiting] joiner"):] == [
        f"  Task {address['joiner-0']} (joiner-0) [waiting] joiner",
        f"    joiner ({path}:{line['joiner-0']})",
        f"    Task {address['shared']} (shared) [waiting] worker",
        f"      worker ({path}:{line['shared']})",
        f"      {wait}",
        "      <_asyncio.Future object>",
        f"  Task {address['joiner-1']} (joiner-1) [waiting] joiner",
        f"    joiner ({path}:{line['joiner-1']})",
        f"    Task {address['shared']} (shared) [waiting] worker (see above)",
    ]


CHILDREN = {
    "gather": {"gatherer": ["gathered-0", "gathered-1", "gathered-2"]},
    "gather_of_gather": {"gather-of-gather": ["deep-0", "deep-1", "shallow"]},
    "group": {"grouper": ["grouped-0", "grouped-1", "grouped-2"]},
    "wait": {"waiter": ["waited-0", "waited-1"]},
    "shield": {"shielder": ["shielded"]},
    "shared": {"joiner-0": ["shared"], "joiner-1": ["shared"]},
    "circle": {"circle-a": ["circle-b"], "circle-b": ["circle-a"]},
    "python_task": {"python-joiner": ["python-child"]},
    "resting": {},
    "handing_on": {f"link-{i}": [f"link-{i - 1}"] for i in range(1, 150)},
    "handed": {"gather-joiner": ["gathered-0", "gathered-1"], "shield-joiner": ["shielded-0"],
               "completed-joiner": ["completed-0", "completed-1"]},
    "as_completed": {"collector": ["collected-0", "collected-1", "collected-2"]},
}


@pytest.mark.python(free_threaded=True)
@NEW
@pytest.mark.parametrize("case", CHILDREN)
def test_who_awaits_whom(probe, python, case):
    target, _ = start(python, case)
    seen = look(probe, target)
    assert {t.name: t.children for t in seen.values() if t.children} == CHILDREN[case]
    assert max(t.depth for t in seen.values()) <= 65


@pytest.mark.python(minimum=(3, 14))
def test_who_does_not_await_any_more(probe, python):
    target, _ = start(python, "removed")
    seen = look(probe, target)
    assert {t.name: t.children for t in seen.values() if t.children} == {"awaiter-1": ["awaited"]}


@NEW
def test_staggered_race(probe, python):
    target, _ = start(python, "staggered")
    seen = look(probe, target)
    functions = {name: [frame[0] for frame in task.frames] for name, task in seen.items()}
    (runner,) = [name for name in functions if "worker" in functions[name]]
    assert functions[runner] == ["staggered_race.<locals>.run_one_coro", "worker", "Event.wait"]
    assert functions["racer"][:2] == ["staggered.<locals>.race", "staggered_race"]
    assert runner in seen["racer"].children


@NEW
def test_asynchronous_generators(probe, python):
    """What is awaited through them, whatever they give to await on."""
    target, _ = start(python, "generators")
    seen = look(probe, target)
    assert {name: [frame[0] for frame in seen[name].frames] for name in seen if name != "Task-1"} == {
        "async-for": ["iterate", "slow", "Event.wait"],
        "nested-for": ["iterate", "slow_outer", "slow", "Event.wait"],
        "anext": ["slow", "Event.wait"],
        "aclose": ["slow_to_close", "Event.wait"],
        "named-so": ["joiner"],
    }


@NEW
def test_all_edges(probe, python):
    target, said = start(python, "shared", "gather_of_gather", "handed")
    rows = ask(probe.path / str(target.pid) / "query",
               "SELECT a.name AS awaiter, b.name AS task FROM task_edges e JOIN tasks a ON a.id = e.awaited_by "
               "JOIN tasks b ON b.id = e.task")
    wanted = {(awaiter, task) for case in ("shared", "gather_of_gather", "handed")
              for awaiter, tasks in CHILDREN[case].items() for task in tasks}
    assert sorted((r["awaiter"], r["task"]) for r in rows) == sorted(wanted)


@NEW
def test_order(probe, python):
    target, _ = start(python, "aging")
    names = re.findall(r"^  Task \S+ \((.*?)\)", probe.read(target.pid, "tasks"), re.M)
    assert names == (["Task-1", "zebra", "yak", "ant", "bee"] if python.version >= (3, 14) else
                     ["Task-1", "ant", "bee", "yak", "zebra"])


@NEW
def test_what_is_awaited(probe, python):
    target, _ = start(python, "gather", "resting")
    seen = look(probe, target)
    assert seen["gatherer"].objects == ["asyncio.tasks._GatheringFuture"]
    assert seen["on-lock"].objects == seen["on-sleep"].objects == ["_asyncio.Future"]


@NEW
def test_names(probe, python):
    target, said = start(python, "names")
    long = [name for name in said if name.startswith("xxx")]
    said["x" * 256 + "..."] = said.pop(long[0])
    check(look(probe, target), said)
    assert "größe" in said and "new\\nline" in said


@NEW
def test_thousand(probe, python):
    target, said = start(python, "thousand")
    assert len(said) == 1000
    text = probe.read(target.pid, "tasks")
    check(parse(text), said)
    names = re.findall(r"^  Task \S+ \((t-\d+)\)", text, re.M)
    assert names == [f"t-{i}" for i in range(1000)], "by name, numbers as numbers"


MANY = """
import asyncio

async def idle():
    await asyncio.Event().wait()

async def main():
    tasks = [asyncio.create_task(idle()) for _ in range(10000)]
    await asyncio.sleep(0)
    print("ready", flush=True)
    await asyncio.gather(*tasks)

asyncio.run(main())
"""


@NEW
def test_preempted(probe, python):
    """A daemon that doesn't get a processor for a while, in the middle of a reading, reads on."""
    target = python.run_source(MANY, name="many_tasks.py")
    mine = probe.mount()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        mine.read(target.pid, "tasks")  # from the caches next time
        for delay in 0, 0.01, 0.02:
            reading = pool.submit(mine.read, target.pid, "tasks")
            time.sleep(delay)
            mine.process.send_signal(signal.SIGSTOP)
            time.sleep(0.6)
            mine.process.send_signal(signal.SIGCONT)
            text = reading.result()
            assert "cut" not in text and len(re.findall("^ +Task ", text, re.M)) == 10001


@NEW
def test_running(probe, python):
    target, said = start(python, "nested", then="then_spin")
    path = python.path(SCRIPT)
    for _ in range(20):
        seen = look(probe, target)
        main = seen.pop("Task-1")
        assert main.state == ["running"]
        assert [(f, file) for f, file, _ in main.frames] == \
            [("main", path), ("then_spin", path), ("spin", path)]
        check({**seen, "Task-1": main}, said)


@NEW
def test_running_in_an_asynchronous_generator(probe, python):
    target, _ = start(python, then="then_generate")
    seen = look(probe, target)
    assert seen["anext"].state == ["running"] and seen["Task-1"].state == ["waiting"]
    assert seen["Task-1"].children == ["anext"]
    assert [frame[0] for frame in seen["anext"].frames][:1] == ["spinning"]


@NEW
def test_running_eagerly(probe, python):
    """Tasks in their first step, each started by the one before, are in no list from 3.14 on."""
    target, _ = start(python, then="then_eager")
    path = python.path(SCRIPT)
    for _ in range(20):
        seen = look(probe, target)
        assert set(seen) == {"Task-1", "eager-outer", "eager-inner"}
        assert all(task.state == ["running"] for task in seen.values())
        assert [f for f, file, _ in seen["Task-1"].frames if file == path] == \
            ["main", "then_eager", "start_eagerly"]
        assert [f for f, file, _ in seen["eager-outer"].frames if file == path] == \
            ["eager_outer", "start_eagerly"]
        assert [f for f, file, _ in seen["eager-inner"].frames] == ["eager_inner", "spin"]


@NEW
def test_ready(probe, python):
    """Nobody keeps them waiting but the loop."""
    target, _ = start(python, then="then_hang")
    seen = look(probe, target)
    assert {name: task.state for name, task in seen.items()} == {
        "Task-1": ["running"], "new": ["waiting"], "newer": ["ready"], "awakened": ["ready"]}
    assert [f for f, _, _ in seen["newer"].frames] == ["sleeper"]


LOOPS = """
import asyncio, json, threading
lock, tids, said = threading.Lock(), {}, threading.Barrier(4)

async def idle():
    await asyncio.Event().wait()

async def main(n):
    tasks = [asyncio.create_task(idle(), name=f"loop{n}-{i}") for i in range(3)]
    await asyncio.sleep(0)
    tids[n] = threading.get_native_id()
    said.wait()
    await asyncio.gather(*tasks)

for n in range(3):
    threading.Thread(target=lambda n=n: asyncio.run(main(n)), daemon=True).start()
stopped = asyncio.new_event_loop()
asyncio.Task(idle(), loop=stopped, name="stopped")
said.wait()
print("ready", flush=True)
print(json.dumps(tids), flush=True)
threading.Event().wait()
"""


@pytest.mark.python(free_threaded=True)
@NEW
def test_several_loops(probe, python):
    target = python.run_source(LOOPS, name="loops.py")
    tids = json.loads(target.readline())
    settle(target)
    text = probe.read(target.pid, "tasks")
    seen = parse(text)
    for n, tid in tids.items():
        for i in range(3):
            assert seen[f"loop{n}-{i}"].thread == tid
    assert seen["stopped"].thread == 0 and seen["stopped"].state == ["ready"]
    assert len(re.findall(r"^Loop ", text, re.M)) == 4
    assert len(seen) == 3 * 4 + 1


SUBINTERPRETER = """
import threading
try:
    import _interpreters
    make = lambda: _interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as _interpreters
    make = lambda: _interpreters.create(isolated=False)

inside = '''
import asyncio
async def idle():
    await asyncio.Event().wait()
async def main():
    asyncio.current_task().set_name("inside-main")
    await asyncio.create_task(idle(), name="inside")
asyncio.run(main())
'''

import asyncio
async def main():
    thread = threading.Thread(target=lambda: _interpreters.run_string(make(), inside), daemon=True)
    thread.start()
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@NEW
def test_subinterpreter(probe, python):
    target = python.run_source(SUBINTERPRETER, name="inside.py")
    settle(target)
    seen = look(probe, target)
    assert [f for f, _, _ in seen["inside"].frames] == ["idle", "Event.wait"]
    assert seen["inside"].thread not in (0, target.pid)
    assert seen["inside-main"].children == ["inside"] and not seen["Task-1"].children


@NEW
@pytest.mark.parametrize("source", ["", "import asyncio",
                                    "import asyncio; asyncio.run(asyncio.sleep(0))"])
def test_without_tasks(probe, python, source):
    target = python.run_source(f"{source}\nprint('ready', flush=True)\ninput()", name="idle.py")
    assert probe.read(target.pid, "tasks") == ""


@pytest.mark.python(maximum=(3, 11))
def test_too_old(probe, python):
    target = python.run("aio.py")
    with pytest.raises(OSError) as raised:
        probe.read(target.pid, "tasks")
    assert raised.value.errno == errno.EOPNOTSUPP
    assert "3.12" in probe.read(target.pid, "errors")


CHURN = """
import asyncio

async def level_0(n):
    await asyncio.sleep(0)

for i in range(1, 6):
    exec(f"async def level_{i}(n): await level_{i - 1}(n)")

async def family(n):
    while True:
        await asyncio.gather(*(asyncio.create_task(globals()[f"level_{i}"](n), name=f"{n}-{i}-{k}")
                               for k in range(3) for i in range(6)))

async def main():
    print("ready", flush=True)
    await asyncio.gather(*(asyncio.create_task(family(n), name=f"family-{n}") for n in range(4)))

asyncio.run(main())
"""


@NEW
@pytest.mark.deadline(240)
def test_consistent(probe, python):
    """A loop that always runs: each task has the stack that its name allows, and the parent."""
    target = python.run_source(CHURN, name="churn_tasks.py")
    path = python.path("churn_tasks.py")
    met = 0
    for _ in range(150):
        text = probe.read(target.pid, "tasks")
        assert "torn" not in text and "unreadable" not in text and "cut" not in text, text
        seen = parse(text)
        for task in seen.values():
            found = re.fullmatch(r"(\d)-(\d)-\d", task.name)
            if not found or not task.frames:
                continue
            met += 1
            legal = [f"level_{i}" for i in range(int(found[2]), -1, -1)]
            names = [f for f, file, _ in task.frames if file in (path, "<string>")]
            assert names == legal[:len(names)], (task, text)
            parents = [p.name for p in seen.values() if task.name in p.children]
            assert parents in ([], [f"family-{found[1]}"]), (task, text)
    assert met > 150


SCRIBBLER = """
import asyncio, ctypes, gc, random, sys, time
gc.disable()  # it would follow what is broken
generator = random.Random(1)

async def idle():
    await asyncio.Event().wait()

async def outer():
    await idle()

async def main():
    tasks = [asyncio.create_task(outer(), name=f"task-{i}") for i in range(50)]
    await asyncio.sleep(0)
    coros = [t.get_coro() for t in tasks]
    victims = tasks + coros + [c.cr_await for c in coros] + [asyncio.tasks, asyncio.Task]
    victims += [asyncio.tasks._scheduled_tasks, asyncio.tasks._scheduled_tasks.data]
    sizes = [(id(v), min(max(sys.getsizeof(v) - 16, 32), 400)) for v in victims]
    kept = [(a, ctypes.string_at(a, n)) for a, n in sizes]
    interesting = [0, 1, 7, 2**64 - 1, 2**63, 4096] + [a for a, _ in sizes] + [a + 8 for a, _ in sizes]
    print("ready", flush=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        wrong = []  # nothing may touch the tasks between here and their repair
        for _ in range(generator.choice([1, 3, 30, 300])):
            at, size = generator.choice(sizes)
            word = generator.randrange(0, size - 8, 8)
            value = generator.choice(interesting) if generator.random() < .7 \\
                else generator.getrandbits(64)
            wrong.append((at + word, value))
        for at, value in wrong:
            ctypes.c_uint64.from_address(at).value = value
        time.sleep(0.002)
        for at, data in kept:
            ctypes.memmove(at, data, len(data))
asyncio.run(main())
"""


@NEW
@pytest.mark.deadline(240)
def test_hostile(probe, python):
    """A victim that scribbles over its tasks and coroutines: errors or marked lines, soon."""
    target = python.run_source(SCRIBBLER, name="scribbler_tasks.py")
    marked, end = 0, time.monotonic() + 3
    while time.monotonic() < end or not marked:
        try:
            text = probe.read(target.pid, "tasks", timeout=10)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESRCH):  # it killed itself, or its minute is over
                if marked:
                    break
                target.close()
                target = python.run_source(SCRIBBLER, name="scribbler_tasks.py")
            else:
                assert error.errno in (errno.ETIMEDOUT, errno.EAGAIN)
            continue
        marked += "unreadable" in text or "torn" in text or "cut" in text
        assert len(text) < 1 << 20


@NEW
def test_blocked_loop(probe, python):
    """Whose task keeps the loop from its selector, where, and for how long."""
    target = python.run("blocked_loop.py")
    path = probe.path / str(target.pid) / "tasks"
    lines = (pathlib.Path(__file__).parent.parent / "targets" / "blocked_loop.py").read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if text.endswith("# BLOCKS"))
    said = 0  # lines, of which its tasks have their numbers

    def send(word):
        nonlocal said
        said += 1
        target.send(word)

    def place():
        return rf"in sync_call \(\S*blocked_loop.py:{line}\), by task handler-{said}\]$"

    def loop_line(form):
        return next((found for text in path.read_text().splitlines()
                     if (found := re.match(r"Loop 0x[0-9a-f]+ \(.*\) \[thread (\d+)" + form, text))), None)

    def busy():
        """Of a loop that was looked at within its first second: else once more."""
        send("block")
        found = eventually(lambda: loop_line(r", (busy|blocked for (?:at least )?[\d.]+ s) " + place()))
        if found[2] == "busy":
            return found
        send("go")
        assert target.readline().split()[0] == "done"
        return None
    assert int(eventually(busy, what="a loop that is busy")[1]) == target.pid
    eventually(lambda: loop_line(r", blocked for (?:at least )?[\d.]+ s " + place()))
    target.send("many")  # stands ready, and has no turn
    target.send("go")
    assert {target.readline().split()[0] for _ in range(2)} == {"done"}
    target.send("loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(asyncio.sleep(1000))))")
    target.expect("done")
    assert int(eventually(lambda: loop_line(r"\]$"))[1]) == target.pid


DAMAGES = """
import asyncio, ctypes, gc
gc.disable()  # it would follow what is broken

async def sleeper():
    await asyncio.Event().wait()

async def main():
    tasks = [asyncio.create_task(sleeper(), name=f"task-{i}") for i in range(3)]
    await asyncio.sleep(0)
    listed = asyncio.tasks._scheduled_tasks.data
    listed.add("not empty")
    head = object.__basicsize__  # then come fill, used, mask and where its table lies
    ctypes.c_uint64.from_address(id(listed) + head + 24).value = 8
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@NEW
def test_damaged_in_sql(probe, python):
    """The file says [torn], and so do the tables."""
    target = python.run_source(DAMAGES, name="damages_tasks.py")
    assert "\n[torn: " in "\n" + probe.read(target.pid, "tasks")
    query = probe.path / str(target.pid) / "query"
    *_, note = ask(query, "SELECT * FROM tasks")
    assert note.pop("name").startswith("[torn: ") and note.pop("state") == "unreadable"
    assert set(note.values()) == {""}
    assert ask(query, "SELECT * FROM task_edges")[-1] == {"task": "", "awaited_by": ""}
    assert not ask(query, "SELECT * FROM tasks JOIN task_edges ON id = task WHERE name LIKE '[%'")
    for table, says in ("locals", "value"), ("modules", "type"):  # of the same moment
        (note,) = ask(query, f"SELECT * FROM {table} WHERE name IS NULL AND (SELECT count(*) FROM tasks)")
        assert note.pop(says).startswith("[torn: ") and set(note.values()) == {""}
        assert not ask(query, f"SELECT * FROM {table} WHERE name IS NULL")
