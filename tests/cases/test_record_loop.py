"""The table loop: who blocked a loop of asyncio, where and for how long, and that the loop is none the wiser."""
import errno
import json
import math
import pathlib

import pytest

import ring_file
from agents import QUIET, clients, connect, ended, library, start  # noqa: F401, a fixture
from commands import Commands
from interpreters import eventually, patience
from recording import AGAIN, again, off, on, places
from sql import ask

pytestmark = pytest.mark.python(minimum=(3, 10))

SCRIPT = "blocked_loop.py"
LINES = (pathlib.Path(__file__).parent.parent / "targets" / SCRIPT).read_text().splitlines()


def line_of(word):
    return next(n for n, line in enumerate(LINES, 1) if line.endswith("# " + word))


@pytest.fixture
def loops(python):
    """A program with a loop, and the conversation with its agent."""
    def begin(*args):
        _, inside = library(python)
        target = python.run(SCRIPT, *args, env={"PYTHONPATH": inside, **QUIET})
        do(target, "import probing")
        return target, connect(target)
    return begin


def do(target, line):
    target.send(line)
    target.expect("done")


def lasting(pid, known=()):
    """The row of a block that has not ended."""
    return next((row for row in ring_file.rows(pid, "loop") if row.duration is None and row.ts not in known), None)


def ended_row(pid, ts):
    """That of a block that began then, once it has."""
    return next((row for row in ring_file.rows(pid, "loop") if row.ts == ts and row.duration is not None), None)


def block(target, word="block"):
    """Its row while it lasts, and what it has become, and for how long the program says that it was. A loop that gets
    no processor for so long is blocked elsewhere: then once more."""
    def once():
        known = {row.ts for row in ring_file.rows(target.pid, "loop")}
        target.send(word)
        during = eventually(lambda: lasting(target.pid, known), what="a row")
        target.send("go")
        took = float(target.readline().split()[1])
        row = eventually(lambda: ended_row(target.pid, during.ts), what="its end")
        return during.func == "sync_call" and (during, row, took)
    return eventually(once, what="a block in sync_call()")


def test_blocked(loops):
    """A row as soon as the limit is over, whose duration comes at the end."""
    target, client = loops()
    on(client, "loop", rate=0.1)
    for n in (1, 2):
        during, row, took = block(target)
        assert row.duration >= took
        assert (during.task, during.coro) == (row.task, row.coro) and row.coro == "run"
        assert row.task.startswith("handler-") and row.tid == during.tid == target.pid
        assert row.func == "sync_call" and row.lineno == line_of("BLOCKS") and row.file.endswith(SCRIPT)
        functions = [part.partition(" (")[0] for part in row.stack.split(";")]
        assert functions[0] == "<module>" and functions[-3:] == ["run", "handler", "sync_call"]
        assert row.stack.endswith(f"{SCRIPT}:{row.lineno})")
    assert target.process.poll() is None


def test_blocked_by_a_callback(loops):
    """Where no task runs."""
    target, client = loops()
    on(client, "loop", rate=0.02)
    _, row, took = block(target, "callback")
    assert (row.task, row.coro, row.func) == (None, None, "sync_call") and row.duration >= took


def test_blocked_with_the_gil(loops):
    """C code that keeps the GIL is told from what follows it. The agent's thread may get no processor in time."""
    target, client = loops()
    on(client, "loop", rate=0.02)

    def held():
        target.send("hold")
        assert target.readline().startswith("done ")
        return next((row for row in ring_file.rows(target.pid, "loop") if row.func == "keep_gil"), None)
    row = eventually(held, what="a row with its place")
    assert row.lineno == line_of("KEEPS") and row.coro == "run"


def test_not_blocked(loops):
    """One that waits, or has much to do and goes round, is not."""
    target, client = loops()
    on(client, "loop", rate=3600)
    for word, result in ("serve", "200"), ("many", str(sum(range(300)))):
        target.send(word)
        assert target.readline().split() == ["done", result]
    target.send("block")
    target.send("go")
    target.readline()
    assert ring_file.rows(target.pid, "loop") == []


def test_on_and_off(loops):
    """The classes are as they were, at once, whether the loop works or not; and it works all the same."""
    target, client = loops()
    for n in range(20):
        on(client, "loop", rate=0.01 + n / 100)
        assert client.eval("len(changed())").text == "3\n"
        target.send("serve")
        target.send("raise")
        target.send("many")
        said = sorted(target.readline() for _ in range(2 if n % 2 else 3))
        off(client, "loop")
        said = sorted([*said, *(target.readline() for _ in range(1 if n % 2 else 0))])
        assert [line.strip() for line in said] == ["done 200", f"done {sum(range(300))}",
                                                   "failed ValueError('of the program')"]
        assert client.eval("changed()").text == "[]\n"
    rows = len(ring_file.rows(target.pid, "loop"))
    target.send("block")
    target.send("go")
    target.readline()
    assert len(ring_file.rows(target.pid, "loop")) == rows
    on(client, "loop", rate=0.1)
    assert block(target)


def test_what_the_program_sees(loops):
    """Functions that it takes from the classes, and what it puts there itself."""
    target, client = loops()
    on(client, "loop", rate=0.02)
    do(target, "assert all(getattr(asyncio.SelectorEventLoop, n) is f for n, f in BEFORE.items())")
    do(target, "assert loop._run_once.__func__ is BEFORE['_run_once'] and loop._run_once.__self__ is loop")
    do(target, "loop._process_events = loop._process_events")  # an instance's own comes first
    do(target, "kept = vars(asyncio.BaseEventLoop)['_run_once']")
    do(target, "asyncio.BaseEventLoop._run_once = theirs = lambda self: BEFORE['_run_once'](self)")
    off(client, "loop")
    do(target, "assert vars(asyncio.BaseEventLoop)['_run_once'] is theirs")
    do(target, "asyncio.BaseEventLoop._run_once = kept; del loop._process_events")  # it still gives what it gave
    target.send("serve")
    assert target.readline().split() == ["done", "200"]


def test_debug(loops):
    """asyncio's own look at slow callbacks sees what it would see."""
    target, client = loops("debug")
    on(client, "loop", rate=0.02)
    assert block(target)
    assert eventually(lambda: "Executing <Task" in target.stderr(), what="asyncio's warning")


def test_without_asyncio(python):
    target = start(python)
    client = connect(target)
    answer = client.switch("loop")
    assert answer.error == errno.ENOENT and "hasn't imported asyncio" in answer.words
    assert not places(client)["loop"]["on"]
    for rate in (-1.0, math.nan, 3601.0):
        answer = client.switch("loop", rate=rate)
        assert answer.error == errno.EINVAL and answer.words
    assert ended(target) == 0


def test_many_loops(loops):
    """More than are looked after, each in a thread, which come and go."""
    target, client = loops()
    on(client, "loop", rate=0.02)
    do(target, "said = []; work = lambda: said.append(asyncio.run(many(20)))")
    do(target, "every = [threading.Thread(target=work) for _ in range(40)]")
    do(target, "[t.start() for t in every]; [t.join() for t in every]")
    do(target, "assert said == [sum(range(20))] * 40, said")
    assert block(target)


def test_run_again_and_again(loops):
    """Between two runs a loop isn't blocked."""
    target, client = loops()
    on(client, "loop", rate=0.02)
    do(target, "other = asyncio.new_event_loop(); other.run_until_complete(asyncio.sleep(0))")
    _, own, _ = block(target)
    do(target, "other.run_until_complete(asyncio.sleep(0)); other.close()")
    others = [row for row in ring_file.rows(target.pid, "loop") if row.tid != target.pid]
    assert all(row.ts + row.duration <= own.ts or own.ts + own.duration <= row.ts for row in others), (own, others)


def test_fork(python):
    """In a child nothing is recorded, its loops run, and it may have an agent of its own."""
    target = start(python, """
        import asyncio, os, probing, sys, time
        async def work(seconds):
            await asyncio.sleep(0)
            time.sleep(seconds)
            return "worked"
        print("ready", flush=True)
        sys.stdin.readline()
        child = os.fork()
        if child == 0:
            print(os.getpid(), asyncio.run(work(0.1)), flush=True)
            sys.stdin.readline()
            probing.start()
            print("started", flush=True)
            sys.stdin.readline()
            print(asyncio.run(work(0.1)), flush=True)
            sys.stdin.readline()
            os._exit(0)
        os.waitpid(child, 0)
        print(asyncio.run(work(0.1)), flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    on(client, "loop", rate=0.02)
    target.send("fork")
    child, said = target.readline().split()
    assert said == "worked" and ring_file.rows(target.pid, "loop") == []
    target.send("start")
    target.expect("started")
    other = connect(target, int(child))
    on(other, "loop", rate=0.02)
    target.send("work")
    target.expect("worked")
    assert ring_file.wait_rows(int(child), "loop", 1)[0].tid == int(child)
    other.close()
    target.send("end")
    target.expect("worked")
    assert ring_file.wait_rows(target.pid, "loop", 1)[0].tid == target.pid
    assert ended(target) == 0


def test_detach(python):
    """Nothing of it is left, also where the loop waits."""
    target = start(python, AGAIN.replace("import probing", "import asyncio, threading, probing"))
    client = connect(target)
    client.eval("loop = asyncio.new_event_loop(); threading.Thread(target=loop.run_forever, daemon=True).start()")
    client.eval("before = vars(asyncio.BaseEventLoop)['_run_once']")
    on(client, "loop", rate=0.02)
    client.eval("asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()")
    assert client.detach().error == 0
    client = again(target)
    assert client.eval("vars(asyncio.BaseEventLoop)['_run_once'] is before").text == "True\n"
    assert ended(target) == 0


SUBINTERPRETER = r"""
import _interpreters, probing, sys, threading
other = _interpreters.create()
_interpreters.run_string(other, "import asyncio, time")
print("ready", flush=True)
print(int(other), flush=True)
WORK = '''
async def work():
    for _ in range(5):
        await asyncio.sleep(0)
        time.sleep(0.1)
asyncio.run(work())
'''
for line in sys.stdin:
    thread = threading.Thread(target=_interpreters.run_string, args=(other, WORK))
    thread.start()
    thread.join()
    print("ran", flush=True)
"""


@pytest.mark.python(minimum=(3, 14))
def test_subinterpreter(python):
    """Whoever's GIL that is. Before 3.14 asyncio itself doesn't survive there."""
    target = start(python, SUBINTERPRETER)
    other = int(target.readline())
    client = connect(target)
    on(client, "loop", interp=other, rate=0.02)

    def placed():
        target.send("run")
        target.expect("ran")
        return any(row.func == "work" and row.task for row in ring_file.rows(target.pid, "loop"))
    eventually(placed, what="a row with its place")
    assert client.detach().error == 0
    target.send("run")
    target.expect("ran")


@pytest.mark.parametrize("how", ["pass", "sys.exit(3)", "os._exit(3)", "raise ValueError"])
def test_exit(python, how):
    """The interpreter ends as ever, from within a loop that is being looked at and with another one that runs."""
    target = start(python, f"""
        import asyncio, os, probing, sys, threading, time
        async def work():
            for _ in range(20):
                await asyncio.sleep(0)
                time.sleep(0.012)
            {how}
        print("ready", flush=True)
        sys.stdin.readline()
        threading.Thread(target=asyncio.run, args=(work(),), daemon=True).start()
        asyncio.run(work())
        """)
    client = connect(target)
    on(client, "loop", rate=0.01)
    target.send("go")
    target.stdin.close()
    assert target.process.wait(patience(60)) == {"pass": 0, "raise ValueError": 1}.get(how, 3)


def test_daemon_killed(probe, any_python):
    """The recorder records, as any; the next daemon has it all, and ends it."""
    target = any_python.run(SCRIPT)
    mounted = probe.mount()
    Commands(mounted, target.pid).run("ctl", "record loop on 50ms\n")
    mounted.kill()
    block(target)
    mounted.start()
    commands = Commands(mounted, target.pid)
    assert "limit=50ms" in commands.run("ctl", "record loop\n")
    assert {"func": "sync_call"} in ask(commands.directory / "query", "SELECT func FROM loop")
    commands.run("ctl", "record loop off\n")
    assert commands.value("changed()") == "[]"


@pytest.mark.parametrize("end", ["on", "off"])
def test_unloaded(probe, python, end):
    """The library goes with the last hook, without a run of the collector, also where the loop just waits."""
    target = python.run_source("""
import asyncio, gc, sys, threading
gc.disable()
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
print("ready", flush=True)
sys.stdin.read()
""")
    for _ in range(3):
        commands = Commands(probe, target.pid)
        commands.run("ctl", "record loop on\n")
        assert commands.value("asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01, 5), loop).result()") == "5"
        if end == "off":
            commands.run("ctl", "record loop off\n")
        said = commands.detach()
        assert "Agent: none" in said, said
        maps = pathlib.Path(f"/proc/{target.pid}/maps")
        eventually(lambda: "memfd:probe" not in maps.read_text(), what="no mapping")
    assert ended(target) == 0


def test_mounted(probe, any_python):
    """`record loop on 500ms`, the table, and the line in events as soon as the limit is over."""
    target = any_python.run(SCRIPT)
    commands = Commands(probe, target.pid)
    assert "loop on 4194304 rows=0 lost=0 limit=500ms\n" in commands.run("ctl", "record loop on 500ms\n")
    assert "limit=500ms\n" in commands.run("ctl", "record loop 1M\n")  # as it was
    events = open(commands.directory / "events")
    target.send("block")
    for said in filter(lambda line: line["kind"] == "blocked" and line["duration"] is None, map(json.loads, events)):
        if said["func"] == "sync_call":
            break
        target.send("go")  # it had no processor for so long before it got there: once more
        target.readline()
        target.send("block")
    assert (said["duration"], said["func"], said["lineno"]) == (None, "sync_call", line_of("BLOCKS"))
    assert said["task"].startswith("handler-") and said["coro"] == "run" and said["tid"] == target.pid
    query = commands.directory / "query"
    assert [row["func"] for row in ask(query, "SELECT * FROM loop WHERE duration IS NULL")] == ["sync_call"]
    target.send("go")
    took = float(target.readline().split()[1])
    its = f"abs(ts - {said['ts']}) < 0.001"
    (row,) = eventually(lambda: ask(query, f"SELECT * FROM loop WHERE {its} AND duration IS NOT NULL"))
    assert float(row["duration"]) >= took
    events.close()
    assert "loop off" in commands.run("ctl", "record loop off\n")
    target.send("serve")
    assert target.readline() == "done 200"
