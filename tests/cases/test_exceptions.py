"""record exceptions: what programs of tests/targets/raiser.py raise, against their own logs."""
import collections
import errno
import json
import os
import pathlib
import re
import signal
import sys
import textwrap
import time

import pytest

import agent_client as agent
import ring_file
import sql
from agents import QUIET, clients, connect, ended, library, start  # noqa: F401, a fixture
from commands import Commands
from interpreters import TARGETS, eventually, patience
from recording import switched

sys.path.append(str(TARGETS))
import raiser  # noqa: E402

pytestmark = pytest.mark.python(minimum=(3, 10))

ANY = "any"
TEXT_MAX = 2048


def record(client, action=agent.ON, **options):
    return client.switch("exceptions", action, **options)


def begin(python, **options):
    """The program with the agent, recording."""
    _, inside = library(python)
    target = python.run("raiser.py", "probing", env={"PYTHONPATH": inside, **QUIET}, **options)
    client = connect(target)
    answer = record(client)
    assert answer.error == 0, answer.words
    return target, client


def rows(target):
    """Those that the program's own file raised, in the logs' form."""
    path = target.path()
    return [r for r in ring_file.rows(target.pid, "exceptions")
            if r.file in (path, "<string>") or r.type == "asyncio.exceptions.CancelledError"]


def shown(row):
    return [row.type, row.message, row.func, row.lineno, row.handled]


def encoded(message):
    """As rows have it."""
    if message is None:
        return None
    data = message.encode("utf-8", "backslashreplace")
    return data[:TEXT_MAX].decode("utf-8", "surrogateescape")


def matches(row, wanted):
    return all(w == ANY or (w == g if i != 1 else encoded(w) == g)
               for i, (g, w) in enumerate(zip(row, wanted)))


def run(target, name, before=0):
    """The rows of a scenario, and its log."""
    target.send(name)
    log = json.loads(target.readline())
    return rows(target)[before:], log


def difference(found, log):
    """Words for what of both has no counterpart."""
    left, missing = [shown(r) for r in found], []
    for wanted in log:
        one = next((g for g in left if matches(g, wanted)), None)
        if one:
            left.remove(one)
        else:
            missing.append(wanted)
    return (f"missing {missing}" if missing else "") + (f" nobody raised {left}" if left else "")


def test_scenarios(python):
    target, client = begin(python)
    wrong, count = {}, 0
    for name in [n for n in raiser.scenarios if n != "recursion_in_c"]:
        found, log = run(target, name, count)
        count += len(found)
        words = difference(found, log)
        if words:
            wrong[name] = words
    assert not wrong, "\n".join(f"{name}: {words}" for name, words in wrong.items())
    assert ended(target) == 0


@pytest.mark.python(minimum=(3, 12))
def test_recursion_in_c(python):
    """At the limit a call of ours doesn't take the place of the program's own exceptions."""
    target, client = begin(python)
    on = run(target, "recursion_in_c")[1]
    assert record(client, agent.OFF).error == 0
    assert run(target, "recursion_in_c")[1] == on
    assert ended(target) == 0


HELPFUL = """
    import gc, json, sys, threading, time, weakref
    import probing

    def fail():
        raise ValueError("failed")

    def attempt(n=1):
        for _ in range(n):
            try:
                fail()
            except ValueError:
                pass

    def answer(value):
        print(json.dumps(value), flush=True)

    {more}

    print("ready", flush=True)
    for line in sys.stdin:
        answer(eval(line))
    """


def program(python, more="", **options):
    target = start(python, HELPFUL.replace("{more}", more.replace("\n", "\n    ")), **options)
    return target, connect(target)


def ask(target, expression):
    target.send(expression)
    return json.loads(target.readline())


def count(target):
    return len([r for r in ring_file.rows(target.pid, "exceptions") if r.func == "fail"])


def test_on_and_off(python):
    target, client = program(python, """
def once():
    code = compile("try: {}['gone']\\nexcept KeyError: pass", "<once>", "exec")
    once.code = weakref.ref(code)
    exec(code)
""")
    traces = ("sys.gettrace() is None and threading._trace_hook is None and "
              "[sys.monitoring.get_tool(i) for i in range(6)] if hasattr(sys, 'monitoring') else 0")
    before = ask(target, traces)
    for turn in range(1, 4):
        assert record(client).error == 0
        ask(target, "attempt(5)")
        ask(target, "once()")
        assert record(client).error == 0  # it is on already
        ask(target, "attempt(2)")
        assert count(target) == 7 * turn
        assert record(client, agent.OFF).error == 0
        ask(target, "attempt(5)")
        assert count(target) == 7 * turn
        assert ask(target, "gc.collect() and 0 or once.code() is None")
        assert ask(target, traces) == before
    assert record(client, agent.OFF).error == 0  # it is off already
    assert ended(target) == 0


def test_size_changes_while_it_records(python):
    target, client = program(python, """
def work():
    while not work.stop:
        attempt()
        work.count += 1
work.stop, work.count = False, 0
""")
    assert record(client).error == 0
    ask(target, "threading.Thread(target=work).start()")
    for size in (64 << 10, 1 << 20, 256 << 10, 2 << 20):
        answer = switched(client, "exceptions", size=size)
        assert answer.error == 0, answer.words
        time.sleep(0.02)
        for row in ring_file.rows(target.pid, "exceptions"):
            assert shown(row)[:3] == ["ValueError", "failed", "fail"] and row.handled in (1, None)
    done = ask(target, "setattr(work, 'stop', True) or work.count")
    assert record(client, agent.OFF).error == 0
    with ring_file.find(target.pid, "exceptions") as ring:
        found, lost = ring.read()
        assert abs(len(found) + lost + ring.dropped - done) <= 10
    assert ended(target) == 0


@pytest.mark.long
def test_detach_while_threads_raise(python):
    target, client = program(python, """
def work():
    count = 0
    while not (work.stop and count):
        try:
            try:
                fail()
            finally:
                count += 1
        except ValueError as error:
            assert str(error) == "failed"
    work.counts.append(count)
def begin():
    work.stop, work.counts = False, []
    work.threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in work.threads:
        thread.start()
def end():
    work.stop = True
    for thread in work.threads:
        thread.join()
    return len(work.counts), min(work.counts) > 0
""")
    ask(target, "begin()")
    for _ in range(3):
        assert record(client).error == 0
        with ring_file.find(target.pid, "exceptions") as ring:
            eventually(lambda: ring.head > 70, what="the ring goes round")
        assert client.detach().error == 0
        eventually(lambda: client.record.read().state == agent.ENDED)
        client.close()
        ask(target, "probing.start()")
        client = connect(target)
    assert ask(target, "end()") == [8, True]
    assert ended(target) == 0


def test_fork(python):
    target, client = program(python, """
import os
import pathlib
import re
def child():
    pid = os.fork()
    if pid == 0:
        attempt(1000)
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
""")
    assert record(client).error == 0
    ask(target, "attempt(3)")
    assert ask(target, "child()") == 7
    ask(target, "attempt(4)")
    assert count(target) == 7
    assert ended(target) == 0


def test_child_with_an_agent_of_its_own(python):
    target, client = program(python, """
import os
import pathlib
import re
def child():
    here, there = os.pipe()
    number = os.fork()
    if number == 0:
        probing.start()
        os.close(there)
        while not child.go:
            time.sleep(0.005)
        thread = threading.Thread(target=attempt, args=(2,))
        thread.start()
        time.sleep(1000)
    os.close(there)
    os.read(here, 1)
    return number
child.go = False
""")
    assert record(client).error == 0
    ask(target, "attempt(3)")
    child = ask(target, "child()")
    with connect(target, child) as own:
        assert record(own).error == 0
        assert own.eval("attempt(2)").error == 0  # on the agent's thread: that is none of the program's
        assert own.eval("child.go = True").error == 0
        own_rows = eventually(lambda: [r for r in ring_file.rows(child, "exceptions") if r.func == "fail"][1:])
        assert len(own_rows) == 1 and own_rows[0].tid not in (target.pid, child)
        assert record(own, agent.OFF).error == 0
    os.kill(child, signal.SIGKILL)
    assert count(target) == 3


def test_end_while_it_records(python):
    target, client = program(python, """
import atexit
def at_end():
    fail()
def leave():
    atexit.register(attempt, 2)
    threading.Thread(target=lambda: [attempt() or time.sleep(0.001) for _ in iter(int, 1)], daemon=True).start()
    raise SystemError("the end")
""")
    assert record(client).error == 0
    with ring_file.find(target.pid, "exceptions") as ring:
        target.send("leave()")
        assert target.process.wait(patience(30)) == 1
        assert target.stderr().endswith("SystemError: the end\n")
        end, = [r for r in ring.rows if r.type == "SystemError"]
        assert shown(end) == ["SystemError", "the end", "leave", end.lineno, 0]
        assert end.tid == target.pid


def test_iteration_that_nothing_handles(python):
    target, client = program(python)
    assert record(client).error == 0
    with ring_file.find(target.pid, "exceptions") as ring:
        target.send("next(iter([]))")
        assert target.process.wait(patience(30)) == 1
        end, = [r for r in ring.rows if r.type == "StopIteration"]
        assert shown(end) == ["StopIteration", "", "<module>", 1, 0]


def test_other_interpreters(python):
    target, client = program(python, """
for name in ("_interpreters", "_xxsubinterpreters"):
    try:
        interpreters = __import__(name)
        break
    except ImportError:
        pass
def other():
    made = interpreters.create()
    interpreters.run_string(made, "for _ in range(100):\\n try: 1 / 0\\n except Exception: pass")
    interpreters.destroy(made)
""")
    assert record(client).error == 0
    ask(target, "other()")
    ask(target, "attempt(2)")
    assert count(target) == 2
    assert record(client, agent.OFF).error == 0
    ask(target, "other()")
    assert ended(target) == 0


MONITORING = """
seen = []
def watch(tool):
    sys.monitoring.use_tool_id(tool, f"tool {tool}")
    sys.monitoring.register_callback(tool, sys.monitoring.events.RAISE, lambda *args: seen.append(tool))
    sys.monitoring.set_events(tool, sys.monitoring.events.RAISE)
"""


@pytest.mark.python(minimum=(3, 12))
def test_other_tools_of_monitoring(python):
    target, client = program(python, MONITORING)
    for tool in (3, 4, 5, 0, 1):
        ask(target, f"watch({tool})")
    assert record(client).error == 0
    ask(target, "attempt(10)")
    assert count(target) == 10
    tools = ask(target, "[sys.monitoring.get_tool(i) for i in range(6)]")
    assert tools == ["tool 0", "tool 1", "probefs", "tool 3", "tool 4", "tool 5"]
    assert ask(target, "sorted((t, seen.count(t)) for t in set(seen))") == [[t, 20] for t in (0, 1, 3, 4, 5)]
    assert record(client, agent.OFF).error == 0
    ask(target, "seen.clear() or attempt(10)")
    assert ask(target, "sorted((t, seen.count(t)) for t in set(seen))") == [[t, 20] for t in (0, 1, 3, 4, 5)]
    ask(target, "watch(2)")
    answer = record(client)
    assert answer.error == errno.EBUSY and "sys.monitoring" in answer.words
    ask(target, "attempt(10)")
    assert ended(target) == 0


@pytest.mark.python(minimum=(3, 12))
def test_tool_that_was_freed(python):
    """The program may do that: then nothing is recorded, and nothing is taken from who has the id now."""
    target, client = program(python, MONITORING)
    assert record(client).error == 0
    ask(target, "sys.monitoring.set_events(4, 0) or sys.monitoring.free_tool_id(4)")
    ask(target, "watch(4)")
    assert record(client, agent.OFF).error == 0
    assert ask(target, "sys.monitoring.get_tool(4)") == "tool 4"
    ask(target, "attempt(10)")
    assert ask(target, "len(seen)") == 20
    assert ended(target) == 0


def test_debuggers_and_profilers(python):
    """What the program's own tools see is the same."""
    target, client = program(python, """
import cProfile, pstats
def traced():
    events = []
    def trace(frame, event, arg):
        if frame.f_code.co_name in ("fail", "attempt"):
            events.append([frame.f_code.co_name, event, frame.f_lineno])
            return trace
    sys.settrace(trace)
    attempt(3)
    same = sys.gettrace() is trace
    sys.settrace(None)
    return [same, events]
def profiled():
    profile = cProfile.Profile()
    profile.enable()
    attempt(3)
    profile.disable()
    stats = pstats.Stats(profile).stats
    return sorted((name, *stats[file, line, name][:2]) for file, line, name in stats if name in ("fail", "attempt"))
""")
    tools = ("traced()", "profiled()")
    alone = [ask(target, tool) for tool in tools]
    assert alone[0][0] and len(alone[0][1]) > 20
    assert record(client).error == 0
    assert [ask(target, tool) for tool in tools] == alone
    assert record(client, agent.OFF).error == 0
    assert [ask(target, tool) for tool in tools] == alone
    assert ended(target) == 0


@pytest.mark.python(minimum=(3, 10), maximum=(3, 11))
def test_trace_functions(python):
    """Before 3.12 it takes one: threads that have their own keep it, and new threads are found."""
    target, client = program(python, """
ready, go, events = threading.Event(), threading.Event(), []
def trace(frame, event, arg):
    if event == "exception" and frame.f_code.co_name == "fail":
        events.append(event)
    return trace
def traced():
    sys.settrace(trace)
    ready.set()
    go.wait()
    attempt(5)
    events.append(sys.gettrace() is trace)
def begin():
    begin.thread = threading.Thread(target=traced)
    begin.thread.start()
    ready.wait()
def end():
    go.set()
    begin.thread.join()
    return events
def in_new_threads():
    threads = [threading.Thread(target=attempt, args=(3,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
def own():
    sys.settrace(trace)
    attempt(2)
    mine = sys.gettrace() is trace
    sys.settrace(None)
    return mine
""")
    ask(target, "begin()")
    answer = record(client)
    assert answer.error == 0 and "slows" in answer.words and "1 threads" in answer.words
    assert ask(target, "end()") == ["exception"] * 5 + [True]
    assert count(target) == 0
    ask(target, "in_new_threads()")
    assert count(target) == 15
    assert ask(target, "sys.gettrace() is None and threading._trace_hook is None")
    assert ask(target, "own()")
    ask(target, "attempt(1)")
    assert count(target) == 16  # the program has switched tracing off for this thread: its own
    assert ended(target) == 0


@pytest.mark.long
def test_library_leaves_while_threads_raise(probe, python):
    """A daemon puts it in, records, and takes it out, in the middle of everything."""
    target = python.run_source(textwrap.dedent("""
        import sys, threading
        def leaf(n):
            raise (ValueError if n % 2 else KeyError)(n)
        def work():
            count = 0
            while not (stop and count):
                try:
                    try:
                        leaf(count)
                    finally:
                        count += 1
                except (ValueError, KeyError) as error:
                    assert error.args == (count - 1,)
            counts.append(count)
        stop, counts = False, []
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        sys.stdin.readline()
        stop = True
        for thread in threads:
            thread.join()
        print(len(counts), min(counts) > 0)
        """))
    commands = Commands(probe, target.pid)
    for turn in range(2):
        commands.run("ctl", "attach")
        commands.run("ctl", "record exceptions on")
        with ring_file.find(target.pid, "exceptions") as ring:
            eventually(lambda: ring.head > 2, what="rows")
        if turn % 2:
            commands.run("ctl", "record exceptions off")
        commands.run("ctl", "detach")
        maps = pathlib.Path(f"/proc/{target.pid}/maps")
        eventually(lambda: "probe-agent" not in maps.read_text(), what="no mapping")
    target.send("")
    assert target.readline() == "8 True"
    assert ended(target) == 0


@pytest.mark.python(minimum=(3, 12))
def test_in_another_interpreter(python):
    target, client = program(python, """
import os
for name in ("_interpreters", "_xxsubinterpreters"):
    try:
        interpreters = __import__(name)
        break
    except ImportError:
        pass
def begin(go):
    made = interpreters.create()
    here, there = os.pipe()
    code = (f"import os; os.write({there}, b'x')\\nos.read({go}, 1)\\ndef fail(): raise KeyError('there')\\n"
            "for _ in range(100):\\n try: fail()\\n except KeyError: pass")
    begin.thread = threading.Thread(target=interpreters.run_string, args=(made, code))
    begin.thread.start()
    os.read(here, 1)  # until it runs there
    begin.made = made
    return int(made)
""")
    interp = ask(target, "setattr(begin, 'pipe', os.pipe()) or begin(begin.pipe[0])")
    answer = record(client, interp=interp)
    assert answer.error == 0, answer.words
    ask(target, "attempt(3)")
    ask(target, "os.write(begin.pipe[1], b'x') and begin.thread.join()")
    found = [shown(r) for r in ring_file.rows(target.pid, "exceptions") if r.func == "fail"]
    assert found == [["KeyError", "'there'", "fail", 3, 1]] * 100
    ask(target, "interpreters.destroy(begin.made)")
    assert record(client, agent.OFF).error == 0
    assert record(client).error == 0
    ask(target, "attempt(3)")
    assert count(target) == 103
    assert ended(target) == 0


def test_many_threads_at_once(python):
    """Each raise is one row, of its thread, whoever comes in between."""
    target, client = program(python, """
def deep(depth, number):
    if depth:
        return deep(depth - 1, number)
    raise ValueError(number)
def work(numbers):
    all_there.wait()  # before 3.12 a new thread is found by the next line of another one
    for number in numbers:
        try:
            try:
                deep(number % 7, number)
            finally:
                len("")
        except ValueError as error:
            assert error.args == (number,)
            if number % 5 == 0:
                try:
                    raise error
                except ValueError:
                    pass
    tids.append(threading.get_native_id())
tids, all_there = [], threading.Barrier(8)
def run():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=work, args=(range(i * 1000, i * 1000 + 1000),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)
    return tids
""")
    assert record(client, size=4 << 20).error == 0
    tids = ask(target, "run()")
    found = [r for r in ring_file.rows(target.pid, "exceptions") if r.func == "deep"]
    assert sorted(int(r.message) for r in found) == list(range(8000))
    assert all(r.handled == 1 for r in found)
    by_tid = {tid: {int(r.message) // 1000 for r in found if r.tid == tid} for tid in tids}
    assert sorted(n for numbers in by_tid.values() for n in numbers) == list(range(8))
    assert ended(target) == 0


def test_without_memory(python):
    """Whichever allocation fails, the program gets its own exception, or the MemoryError that it would get anyway."""
    target, client = program(python, """
import gc
gc.disable()  # a collection that gets no memory complains of it on standard error
try:
    import _testcapi
except ImportError:
    _testcapi = None
class Mine(Exception):
    pass
def once(number, text):
    _testcapi.set_nomemory(number, number + 1)
    try:
        raise Mine(text, 1, 2.5)
    except (Mine, MemoryError) as error:
        got = error
    finally:
        _testcapi.remove_mem_hooks()
    return type(got).__name__
def all_of_them():
    return sorted({once(number, text) for text in ("ascii", chr(0xe9), chr(0xdc80)) for number in range(60)})
""")
    if ask(target, "_testcapi is None"):
        pytest.skip("this interpreter has no _testcapi")
    before = ask(target, "all_of_them()")
    assert record(client).error == 0
    assert ask(target, "all_of_them()") == before
    assert [r for r in ring_file.rows(target.pid, "exceptions") if r.type == "__main__.Mine"]
    assert ended(target) == 0


@pytest.mark.python(minimum=(3, 10), maximum=(3, 11))
def test_audit_hook_that_comes_later(probe, python):
    """It forbids even that threads are no longer traced: then the library has to stay."""
    target = python.run_source(textwrap.dedent("""
        import sys
        def attempt():
            try:
                raise ValueError
            except ValueError:
                return 1
        def hook(event, args):
            if event == "sys.settrace":
                raise PermissionError(event)
        print("ready", flush=True)
        for line in sys.stdin:
            sys.addaudithook(hook)
            print(sum(attempt() for _ in range(1000)), flush=True)
        """))
    commands = Commands(probe, target.pid)
    commands.run("ctl", "attach")
    commands.run("ctl", "record exceptions on")
    target.send("")
    target.expect("1000")
    commands.run("ctl", "detach")
    target.send("")
    target.expect("1000")
    assert ended(target) == 0


@pytest.mark.python(minimum=(3, 10), maximum=(3, 11))
def test_audit_hook_that_forbids_tracing(python):
    target, client = program(python, """
def hook(event, args):
    if event == "sys.settrace":
        raise PermissionError(event)
sys.addaudithook(hook)
""")
    answer = record(client)
    assert answer.error == errno.EOPNOTSUPP and "forbids" in answer.words
    ask(target, "attempt(3)")
    assert count(target) == 0
    assert ended(target) == 0


# ---- stacks and variables ----

SCENE = """
import gc, json, os, sys, threading

class Counts:
    asked = 0
    def __repr__(self):
        Counts.asked += 1
        return "asked"
    __str__ = __hash__ = __repr__
    def __getattribute__(self, name):
        Counts.asked += 1
        return object.__getattribute__(self, name)

class Order:
    def __init__(self):
        self.number = 5

    def pay(self, amount, /, *rest, currency="EUR", **more):
        text = "a" * 300
        captured = [amount, "x"]
        never = 0
        del never
        def inner():
            deeper = {"k": captured}
            for i in range(3):
                if i == 2:
                    raise ValueError("no money", amount)
        inner()

def deep(n):
    if n:
        deep(n - 1)
    else:
        {}["missing"]

def unchanged():
    thing, before, counting = [object()], {}, [Counts()]
    seen = locals()
    later = "not yet in seen"
    said = dict(seen)
    before["thing"] = sys.getrefcount(thing)
    try:
        raise KeyError(thing)
    except KeyError as error:
        length, traceback = 0, error.__traceback__
        while traceback:
            length, traceback = length + 1, traceback.tb_next
        del error, traceback
    gc.collect()
    return {"same": sys.getrefcount(thing) == before["thing"], "length": length,
            "seen": list(seen) == list(said), "asked": Counts.asked}

def run(what):
    if what == "pay":
        try:
            Order().pay(7, 8, when=None)
        except ValueError:
            pass
    elif what == "deep":
        try:
            deep(50)
        except KeyError:
            pass
    elif what == "unchanged":
        return unchanged()
    elif what == "module":
        try:
            exec("a = 1\\nb = [a]\\nclass C:\\n    c = 2\\n    1 / 0", {})
        except ZeroDivisionError:
            pass
    elif what == "generator":
        def values(n):
            yield n
            raise LookupError(n)
        try:
            list(values(3))
        except LookupError:
            pass
    else:
        def one():
            number = 1
            try:
                raise RuntimeError
            except RuntimeError:
                pass
        for _ in range(int(what)):
            one()

print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(run(line.strip())), flush=True)
"""


def record_with(probe, target, words):
    path = probe.path / str(target.pid) / "ctl"
    path.write_text(f"record exceptions {words}\n")


def raised(probe, target, type_):
    rows = sql.ask(probe.path / str(target.pid) / "query",
                   f"SELECT * FROM exceptions WHERE type = '{type_}' ORDER BY ts")
    return [{**row, "locals": json.loads(row["locals"]) if row["locals"] else None} for row in rows]


def tell(target, what):
    target.send(what)
    return json.loads(target.readline())


def test_stack_and_locals(probe, python):
    target = python.run_source(SCENE, name="scene.py")
    alone = tell(target, "unchanged")
    assert alone["length"] == 1 and alone["seen"] and alone["asked"] == 0
    record_with(probe, target, "on locals")
    path = target.path()
    tell(target, "pay")
    (row,) = raised(probe, target, "ValueError")
    assert row["message"] == "('no money', 7)"
    names = ["inner", "pay", "run", "<module>"]
    frames = [re.fullmatch(r"(.*) \((.*):(\d+)\)", frame).groups() for frame in row["stack"].split(";")]
    assert [name.rpartition(".")[2] for name, _, _ in frames] == names[::-1]
    assert {file for _, file, _ in frames} == {path}
    lines = SCENE.splitlines()
    assert [lines[int(line) - 1].split("(")[0].split()[0] for _, _, line in frames] == \
        ["print", "Order", "inner", "raise"]
    assert row["locals"] == {"i": "2", "deeper": "{'k': [7, 'x']}", "amount": "7", "captured": "[7, 'x']"}
    assert row["left_out"] == "0"
    tell(target, "deep")
    (row,) = raised(probe, target, "KeyError")
    assert row["stack"].startswith("...;") and row["stack"].count(";") == 10 and row["locals"] == {"n": "0"}
    tell(target, "module")
    (row,) = raised(probe, target, "ZeroDivisionError")
    assert row["locals"] == {"c": "2"}
    tell(target, "generator")
    (row,) = raised(probe, target, "LookupError")
    assert row["locals"] == {"n": "3"} and "values" in row["stack"]
    assert tell(target, "unchanged") == alone
    row = raised(probe, target, "KeyError")[-1]
    assert row["locals"]["later"] == "'not yet in seen'" and row["locals"]["thing"].startswith("[<object object")
    assert row["locals"]["counting"].startswith("[<__main__.Counts object")
    # without the word, they are not recorded any more
    record_with(probe, target, "on")
    tell(target, "pay")
    row = raised(probe, target, "ValueError")[-1]
    assert row["locals"] is None and row["stack"]
    record_with(probe, target, "off")
    tell(target, "pay")
    assert len(raised(probe, target, "ValueError")) == 2


def test_stacks_are_limited(probe, python):
    """However much is raised, so many stacks and variables a second, and what was left out is counted."""
    target = python.run_source(SCENE, name="scene.py")
    record_with(probe, target, "on locals")
    tell(target, "8000")
    rows = raised(probe, target, "RuntimeError")
    assert len(rows) == 8000
    for column, most in (("stack", 100), ("locals", 10)):
        counted = collections.Counter(int(float(r["ts"]) * 10) for r in rows if r[column])
        assert counted and max(counted.values()) < 2 * most  # a row's time is rounded
    left = left_locals = 0
    for row in rows:
        assert row["stack"] or not (row["locals"] or row["left_out"])
        if row["locals"]:
            assert int(row["left_out"]) == left_locals
            left = left_locals = 0
        elif row["stack"]:
            assert int(row["left_out"]) == left
            left, left_locals = 0, left_locals + 1
        else:
            left, left_locals = left + 1, left_locals + 1
    assert sum(1 for r in rows if not r["stack"]) or len({int(float(r["ts"]) * 10) for r in rows}) >= 8000 / 100


def test_only_exceptions_have_locals(probe, any_python):
    if any_python.version < (3, 10):
        pytest.skip("the agent needs 3.10")
    target = any_python.run_source(SCENE, name="scene.py")
    path = probe.path / str(target.pid) / "ctl"
    number, words = sql.refused(path, "record gc on locals\n")
    assert number == errno.EINVAL and "only exceptions have locals" in words


TOP = r"(\d+) +(\d+) +(\d+) +(\S+) +(\S+) +(\S+) +(\S.*?:\d+ \S+)(?: +(.*))?"


def test_exceptions_top(probe, python):
    """By type and place, the last first, with what became of them; also of a process that has ended."""
    target = python.run_source("""
import sys, threading
def swallow(n):
    for i in range(n):
        try:
            raise ValueError(f"no {i}")
        except ValueError:
            pass
def lose():
    raise KeyError("lost\\nfor ever")
print("ready", flush=True)
for line in sys.stdin:
    if line == "swallow\\n":
        swallow(500)
    elif line == "lose\\n":
        thread = threading.Thread(target=lose)
        thread.start()
        thread.join()
    elif line == "many\\n":
        for i in range(150):
            code = compile("\\n" * i + "raise LookupError(1)", "many.py", "exec")
            try:
                exec(code)
            except LookupError:
                pass
    else:
        break
    print("null", flush=True)
""", name="top.py")
    top = probe.path / str(target.pid) / "exceptions.top"
    assert top.read_text().startswith("Record: exceptions off")
    record_with(probe, target, "on")
    for what in ("swallow", "lose", "swallow"):
        tell(target, what)

    def lines(path):
        first, empty, header, _, *rest = path.read_text().splitlines()
        assert first.startswith("Record: exceptions on") and not empty
        assert header.split() == ["count", "uncaught", "handled", "first", "last", "type", "place", "message"]
        found = [re.fullmatch(TOP, line.strip()) or pytest.fail(line) for line in rest]
        return [line.groups() for line in found]

    file = target.path()
    swallowed, lost = [line for line in lines(top) if file in line[6]]
    assert swallowed[:3] == ("1000", "0", "1000") and swallowed[5] == "ValueError" and swallowed[7] == "no 499"
    assert swallowed[6] == f"{file}:6 swallow"
    assert lost[:3] == ("1", "1", "0") and lost[5] == "KeyError" and lost[6] == f"{file}:10 lose"
    assert "lost" in lost[7]
    for line in lines(top):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", line[3]) and line[3] <= line[4]
    tell(target, "many")
    many = lines(top)
    assert len(many) == 100 and {line[5] for line in many} == {"LookupError"}
    assert [line[6] for line in many] == [f"many.py:{i} <module>" for i in range(150, 50, -1)]
    target.send("end")
    left = probe.path / "exited" / str(target.pid) / "exceptions.top"
    eventually(left.exists, what="its recording")
    assert "many.py:150" in left.read_text()
