"""`import probing` in a process that an agent was put into, and in one that has none."""
import textwrap
import time

import pytest

import ring_file
from agents import clients, connect, ended, library, start  # noqa: F401, a fixture
from commands import Commands, Refused
from interpreters import eventually, patience
from mount import REPOSITORY
from sql import ask
from stopping import hogs_gil
from test_attach import agent_threads, images

FALLBACK = REPOSITORY / "contrib" / "probing.py"

# runs each line that it is told, and says what it evaluates to, or what it raised
WORKER = """
import os, sys, threading, time
scope = {"__name__": "__main__"}
def answer(line):
    try:
        try:
            return repr(eval(line, scope))
        except SyntaxError:
            return exec(line, scope)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
print("ready", flush=True)
for line in sys.stdin:
    print(answer(line), flush=True)
"""


def tell(target, line):
    target.send(line)
    return target.readline()


def names(target, table="spans"):
    return [row.name for row in ring_file.rows(target.pid, table)]


@pytest.fixture
def worker(python):
    return python.run_source(WORKER)


@pytest.fixture
def commands(probe, worker):
    return Commands(probe, worker.pid)


def place(python, name, source):
    """Puts a module where the victim finds it: beside its script."""
    (python.directory / name).write_text(source)
    return python.directory / name


def wait_importable(target):
    eventually(lambda: "<probefs>" in tell(target, "[f.__name__ for f in __import__('sys').meta_path if "
                                                   "type(f) is type(__import__('sys'))]"), what="the finder")


def gone(pid):
    """The thread that unloaded the library takes itself out a moment after detach."""
    eventually(lambda: not images(pid), what="no library")


@pytest.mark.python(minimum=(3, 10))
def test_after_attach(worker, commands):
    assert tell(worker, "import probing").startswith("ModuleNotFoundError")
    before = (tell(worker, "sorted({*__import__('sys').modules} - {'atexit'})"),
              tell(worker, "__import__('sys').meta_path"))
    commands.attach()
    wait_importable(worker)
    assert tell(worker, "sorted({*__import__('sys').modules} - {'atexit'})") == before[0]
    assert tell(worker, "import nothing_of_that_name").startswith("ModuleNotFoundError")
    commands.detach()
    gone(worker.pid)
    assert (tell(worker, "sorted({*__import__('sys').modules} - {'atexit'})"),
            tell(worker, "__import__('sys').meta_path")) == before
    commands.attach()
    wait_importable(worker)
    assert tell(worker, "import probing; s = probing.span('s', a=1); event = probing.event") == "None"
    assert tell(worker, "[s.__enter__() is s, event('e'), s.__exit__(None, None, None)]") == "[True, None, None]"
    assert names(worker) == ["s"] and names(worker, "events") == ["e"]
    assert tell(worker, "import importlib; importlib.reload(probing) is probing") == "None"
    assert tell(worker, "probing.__spec__.origin, probing.__name__") == "('probefs', 'probing')"


@pytest.mark.python(minimum=(3, 14))
def test_after_remote_exec(worker, commands):
    commands.attach("remote-exec")
    assert tell(worker, "import probing; before = len(__import__('sys').meta_path)") == "None"
    assert tell(worker, "with probing.span('s'): pass") == "None"
    assert names(worker) == ["s"]
    commands.detach()
    assert tell(worker, "before - len(__import__('sys').meta_path)") == "1"


@pytest.mark.python(minimum=(3, 10))
def test_kept_after_detach(worker, commands):
    """What the program has of it does nothing without an agent, and records with the next one."""
    commands.eval("1")
    said = tell(worker, "from probing import span, event; import probing; s = span('kept', a=1); "
                        "f = span('decorated')(lambda: 5); open_one = span('open'); open_one.__enter__()")
    assert said == "None"
    assert tell(worker, "f()") == "5"
    assert sorted(names(worker)) == ["decorated", "open"]
    for _ in range(3):
        commands.detach()
        eventually(lambda: not agent_threads(worker.pid), what="the end of its threads")
        assert images(worker.pid)
        assert ring_file.rings(worker.pid) == {}
        assert tell(worker, "[s.__enter__() is s, s.id, event('x'), s.__exit__(), f()]") == \
            "[True, None, None, None, 5]"
        assert tell(worker, "span('new').__enter__().id, open_one.__exit__(None, None, None)") == "(None, None)"
        assert tell(worker, "import probing as again; again is probing") == "None"
        assert tell(worker, "again is probing") == "True"
        commands.attach()
        tell(worker, "s.__enter__(); event('y'); s.__exit__(None, None, None); f(); open_one.__enter__()")
        assert names(worker) == ["kept", "decorated", "open"] and names(worker, "events") == ["y"]
    assert len(images(worker.pid)) == 1
    tell(worker, "open_one.__exit__(None, None, None)")


@pytest.mark.python(minimum=(3, 10))
def test_own_module_of_the_program(probe, python):
    """One that the program has, or imports only later, is not replaced."""
    module = place(python, "probing.py", "mine = 1\n")
    try:
        target = python.run_source(WORKER)
        commands = Commands(probe, target.pid)
        commands.eval("1")
        assert tell(target, "import probing; probing.mine") == "None"
        assert tell(target, "probing.mine, hasattr(probing, 'span')") == "(1, False)"
        commands.detach()
        gone(target.pid)
        assert tell(target, "probing.mine") == "1"
    finally:
        module.unlink()


@pytest.mark.python(minimum=(3, 10))
def test_fallback(probe, python):
    """contrib/probing.py: nothing happens until an agent comes in, then everything does, also by what was taken out
    of it before."""
    module = place(python, "probing.py", FALLBACK.read_text())
    try:
        target = python.run_source(WORKER)
        commands = Commands(probe, target.pid)
        assert tell(target, "from probing import span, event; import probing, types") == "None"
        assert tell(target, "s = span('early', a=1); f = span('decorated')(lambda: 5); event('before')") == "None"
        assert tell(target, "[s.__enter__() is s, s.id, s.parent, s.name, s.__exit__(None, None, None), f()]") == \
            "[True, None, None, 'early', None, 5]"
        assert tell(target, "probing.start()").startswith("OSError: there is no agent")
        assert tell(target, "span(1)").startswith("TypeError") and tell(target, "event()").startswith("TypeError")
        assert tell(target, "late = span('late'); late.__enter__() is late") == "None"
        tell(target, "late.__enter__()")
        commands.attach()
        eventually(lambda: tell(target, "probing._probefs_agent is not None") == "True", what="the agent's module")
        assert tell(target, "[s.__enter__() is s, s.id, event('e', b=2), f(), s.__exit__(None, None, None)]") == \
            "[True, 1, None, 5, None]"
        assert tell(target, "late.__exit__(None, None, None)") == "None"
        assert tell(target, "span('new').__enter__().id") == "3"
        assert [(row.name, row.parent, row.attrs) for row in ring_file.rows(target.pid, "spans")] == [
            ("early", None, '{"a":1}'), ("decorated", 1, None), ("new", None, None)]
        assert [(row.name, row.span) for row in ring_file.rows(target.pid, "events")] == [("e", 1)]
        # one that is imported while the agent is there
        assert tell(target, "import sys; first = sys.modules.pop('probing'); import probing") == "None"
        assert tell(target, "probing._probefs_agent is first._probefs_agent") == "True"
        commands.detach()
        assert tell(target, "probing._probefs_agent") == "None"
        assert tell(target, "with span('gone'): pass") == "None"
    finally:
        module.unlink()


@pytest.mark.python(minimum=(3, 9))
def test_fallback_alone(python):
    """It wants nothing of the interpreter: each kind of function, unchanged."""
    source = FALLBACK.read_text()
    module = place(python, "probing.py", source)
    try:
        target = python.run_source(textwrap.dedent("""
            import asyncio, probing

            @probing.span("f", a=1)
            def f(x):
                return x

            @probing.span("g")
            def g():
                return (yield 1)

            @probing.span("c")
            async def c():
                return 3

            @probing.span("a")
            async def a():
                yield 4

            class C:
                @classmethod
                @probing.span("m")
                def m(cls):
                    return cls

            async def main():
                assert await c() == 3
                assert [x async for x in a()] == [4]

            assert f(2) == 2 and list(g()) == [1] and C.m() is C
            asyncio.run(main())
            with probing.span("outer") as s:
                with s:
                    probing.event("e")
            try:
                with probing.span("fails"):
                    1 / 0
            except ZeroDivisionError:
                print("ready", flush=True)
            """))
        assert target.process.wait(patience(30)) == 0 and target.stderr() == ""
    finally:
        module.unlink()


@pytest.mark.python(minimum=(3, 10))
def test_installed_while_a_daemons_agent_is_there(probe, python):
    """The module of another copy of the library gives way to that of the agent."""
    _, inside = library(python)
    target = python.run_source(WORKER)
    commands = Commands(probe, target.pid)
    commands.attach()
    tell(target, f"import sys; sys.path.append({inside!r})")
    assert tell(target, "import probing") == "None"
    assert tell(target, "with probing.span('s'): pass") == "None"
    assert names(target) == ["s"]
    assert tell(target, "probing.start()") == "None"
    eventually(lambda: len(agent_threads(target.pid)) == 2, what="the channel's thread, and Python's")


@pytest.mark.python(minimum=(3, 10))
def test_installed_where_no_agent_can_start(python):
    """No threads, no agent: the program runs on, and start() says why."""
    _, inside = library(python)
    target = python.run_source(textwrap.dedent("""
        import errno, os, resource, sys
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))  # a channel wants two descriptors
        import probing
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        with probing.span("s", a=1) as s:
            assert s.id is None
            probing.event("e")
        probing.span("f")(lambda: 1)()
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
        try:
            probing.start()
        except OSError as error:
            assert error.errno == errno.EMFILE
        else:
            raise AssertionError
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        probing.start()
        with probing.span("s") as s:
            assert s.id == 1
        print("ready", flush=True)
        sys.stdin.readline()
        """), env={"PYTHONPATH": inside})
    assert names(target) == ["s"]


@pytest.mark.python(minimum=(3, 10))
def test_detach_while_the_gil_is_kept(probe, python):
    """Nothing of Python's was touched yet: that doesn't have to wait for it."""
    target = python.run("gil_hog.py")
    eventually(lambda: hogs_gil(target.pid), what="the GIL held")
    commands = Commands(probe, target.pid)
    commands.attach()
    eventually(lambda: len(agent_threads(target.pid)) == 2, what="Python's thread")
    time.sleep(0.6)  # more than it is waited for
    commands.detach()
    assert commands.status()["Agent"] == "loaded, not running"


def blocks(target, table):
    """How many blocks of its ring have been written."""
    ring = ring_file.find(target.pid, table)
    if ring is None:
        return 0
    with ring:
        return ring.head


BUSY = """
import asyncio, sys, threading, time
stop, errors, turns = False, [], [0]

def work(span, event):
    while not stop:
        with span("outer", a=[1, {"b": turns[0]}]) as s:
            with s, span("inner"):
                event("e", t=time.monotonic())
            decorated[0]()
            list(generated[0]())
        turns[0] += 1

async def task(span, event):
    while not stop:
        with span("in a task", x=1):
            await asyncio.sleep(0)
            with span("nested"):
                event("in a task")
                await asyncio.sleep(0)

def loop(span, event):
    async def main():
        await asyncio.gather(*(task(span, event) for _ in range(3)))
    asyncio.run(main())

def begin():
    import probing
    decorated.append(probing.span("decorated")(lambda: 1))
    def generated_():
        yield 1
    generated.append(probing.span("generated")(generated_))
    for function in (work, work, loop, churn):
        threads.append(threading.Thread(target=guard, args=(function, probing)))
        threads[-1].start()

def churn(span, event):
    while not stop:
        thread = threading.Thread(target=lambda: span("short").__enter__())
        thread.start()
        thread.join()

def guard(function, probing):
    try:
        function(probing.span, probing.event)
    except BaseException as error:
        errors.append(repr(error))

decorated, generated, threads = [], [], []
print("ready", flush=True)
for line in sys.stdin:
    if line == "begin\\n":
        begin()
    elif line == "end\\n":
        stop = True
        for thread in threads:
            thread.join()
    print(errors, turns[0], flush=True)
"""


def further(target, turns):
    """How many turns BUSY has made, if that is more."""
    said, _, now = tell(target, "how").rpartition(" ")
    assert said == "[]"
    return int(now) if int(now) > turns else None


def resized(commands, size):
    """Whether its ring has that size now: it hasn't where a thread that just wrote there had no processor to end it."""
    try:
        commands.run("ctl", f"record spans on {size}\n")
    except Refused as error:
        assert "didn't get on" in error.words, error
        return False
    return True


@pytest.mark.long
@pytest.mark.python(minimum=(3, 10))
def test_agents_come_and_go(probe, python):
    """Under threads, tasks and generators that are in spans all the time."""
    target = python.run_source(BUSY)
    commands = Commands(probe, target.pid)
    commands.eval("1")
    tell(target, "begin")
    turns = 0
    for number in range(10):
        eventually(lambda: blocks(target, "spans") > 2 and blocks(target, "events"), what="rows")
        commands.detach()
        turns = eventually(lambda: further(target, turns), what="a turn of a thread")
        commands.attach()
        if number % 3 == 0:
            commands.run("ctl", "record spans off\n")
            eventually(lambda: resized(commands, "1M"), what="that nobody is in the midst of a row")
        elif number % 3 == 1:
            commands.eval("1")
    assert tell(target, "end").startswith("[] ")
    for row in ring_file.rows(target.pid, "spans"):
        assert row.duration is None or row.duration >= 0
    assert len(images(target.pid)) == 1
    commands.detach()
    target.stdin.close()
    assert target.process.wait(patience(30)) == 0 and target.stderr() == ""


@pytest.mark.python(minimum=(3, 10))
def test_off_and_on(probe, python):
    target = python.run_source(WORKER)
    commands = Commands(probe, target.pid)
    commands.eval("1")
    tell(target, "from probing import span, event; a, b, c = span('a'), span('b'), span('c')")
    tell(target, "a.__enter__()")
    commands.run("ctl", "record spans off\n")
    assert tell(target, "b.__enter__().id, event('e')") == "(None, None)"
    commands.run("ctl", "record spans on 256K\n")
    assert tell(target, "c.__enter__().parent") == "1"  # what isn't recorded is around nothing
    tell(target, "[s.__exit__(None, None, None) for s in (c, b, a)]")
    assert [(row.name, row.parent, row.failed) for row in ring_file.rows(target.pid, "spans")] == [
        ("a", None, 0), ("c", 1, 0)]
    assert names(target, "events") == ["e"]


SUBINTERPRETERS = """
    import probing, sys
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    run = getattr(interpreters, "exec", None) or interpreters.run_string
    others = [interpreters.create("legacy"), interpreters.create("isolated")] if sys.version_info >= (3, 13) else \
        [interpreters.create()]
    print("ready", flush=True)
    print(*map(int, others), flush=True)
    for line in sys.stdin:
        if line == "destroy\\n":
            for other in others:
                interpreters.destroy(other)
            others = []
        elif others:
            for other in others:
                run(other, line)
        else:
            exec(line)
        print("done", flush=True)
    """


@pytest.mark.python(minimum=(3, 10))
def test_subinterpreters(python):
    """Each has a module of its own; all write into the same rings."""
    target = start(python, SUBINTERPRETERS)
    others = [int(number) for number in target.readline().split()]
    client = connect(target)
    for other in others:
        assert client.eval("import sys; sys.path[:] = [p for p in sys.path if p[-6:] != '/agent']",
                           interp=other).error == 0
    tell(target, "import probing, threading; s = probing.span('s', a=1); f = probing.span('f')(lambda: 1)")
    tell(target, "with s, probing.span('inner'): f(); probing.event('e')")
    rows = ring_file.rows(target.pid, "spans")
    assert [row.name for row in rows] == ["s", "inner", "f"] * len(others)
    assert len({row.id for row in rows}) == len(rows) and all(row.failed == 0 for row in rows)
    tell(target, "s.__enter__()")
    tell(target, "destroy")
    assert len(ring_file.rows(target.pid, "spans")) == len(rows) + len(others)
    tell(target, "with probing.span('main'): probing.event('x')")
    assert ring_file.rows(target.pid, "spans")[-1].name == "main"
    assert ended(target) == 0


@pytest.mark.python(minimum=(3, 10))
def test_extension_in_subinterpreters(python):
    """The same library, whether or not they share the GIL."""
    target = start(python, SUBINTERPRETERS)
    others = [int(number) for number in target.readline().split()]
    tell(target, "import probing; f = probing.span('f')(lambda: 1); f(); s = probing.span('s'); s.__enter__()")
    tell(target, "destroy")
    assert names(target) == ["f", "s"] * len(others)
    assert tell(target, "with probing.span('main'): pass") == "done"
    assert names(target)[-1] == "main"
    assert ended(target) == 0


@pytest.mark.python(minimum=(3, 10))
def test_exit_within_spans(python):
    """Threads, tasks and generators that are in spans when the interpreter ends."""
    target = start(python, """
        import asyncio, atexit, gc, probing, sys, threading, time, weakref

        def forever():
            while True:
                with probing.span("daemon", a=1):
                    time.sleep(0)

        def generator():
            with probing.span("generator"):
                yield

        class Last:
            def __del__(self):
                with probing.span("last"):
                    event("last")

        event = probing.event
        for _ in range(3):
            threading.Thread(target=forever, daemon=True).start()
        kept = generator()
        next(kept)
        last = Last()
        last.me = last
        sys.last_one = Last()
        open_one = probing.span("open")
        open_one.__enter__()
        finalizer = weakref.finalize(open_one.__class__, lambda: None)
        atexit.register(lambda: probing.span("at exit").__enter__())

        @probing.span("function")
        def function():
            return 1

        async def main():
            probing.span("task").__enter__()
            asyncio.create_task(asyncio.sleep(100))
            function()

        asyncio.run(main())
        print("ready", flush=True)
        sys.stdin.readline()
        """)
    client = connect(target)
    client.eval("1")
    target.send("")
    assert target.process.wait(patience(30)) == 0 and target.stderr() == ""


SAYS = """probing.step(), probing.step(42), probing.step(micro_batches=4)
probing.set_role(dp=1, tp=0)
probing.set_role(dp=-1, tp=3)
probing.set_role(tp=None)
probing.nothing
table = probing.table(type('Loss', (), {'__annotations__': {'value': float, 'step': int}}))
table(0.5, 7).save()
from probing import step, table; step()
""".splitlines()


def says(target):
    return [tell(target, line) for line in SAYS]


def judge_says(said):
    assert said == ["(1, 42, 43)", "None",
                    "ValueError: set_role() wants numbers from 0 on: set_role(dp=1, tp=0), not dp=-1", "None",
                    "AttributeError: module 'probing' has no attribute 'nothing'", "None", "None", "None"]


@pytest.mark.python(minimum=(3, 10))
def test_steps_roles_and_tables(probe, worker, commands):
    commands.attach()
    wait_importable(worker)
    assert tell(worker, "import probing") == "None"
    judge_says(says(worker))
    rows = ask(probe.path / str(worker.pid) / "query",
               "SELECT name, attrs->>'step' AS step, attrs->>'micro_batches' AS micro, attrs->>'value' AS value FROM "
               "events")
    assert [tuple(row.values()) for row in rows] == [("step", "1", "", ""), ("step", "42", "", ""),
                                                     ("step", "43", "4", ""), ("Loss", "7", "", "0.5"),
                                                     ("step", "44", "", "")]
    query = probe.path / str(worker.pid) / "query"
    for name in "Loss", "python.Loss":
        assert [tuple(row.values())[2:] for row in ask(query, f"SELECT * FROM {name}")] == [("0.5", "7")]
    assert ask(query, "SELECT a.value + b.step AS sum FROM Loss a JOIN python.Loss b USING (ts)") == [{"sum": "7.5"}]
    assert list(ask(probe.path / "all/query", "SELECT * FROM Loss")[0].values())[1] == str(worker.pid)
    for name in "Other", "loss":
        with pytest.raises(OSError):
            ask(query, f"SELECT * FROM {name}")
        assert "one of the program's own is there once it has a row" in query.read_text()
    assert tell(worker, "import os") == "None"
    assert tell(worker, "[os.environ.get(f'PROBING_{part}_RANK') for part in ('DP', 'TP')]") == "['1', None]"
    commands.detach()
    assert tell(worker, "step(), table(type('Other', (), {}))().save()") == "(45, None)"


@pytest.mark.python(minimum=(3, 9))
def test_steps_roles_and_tables_without_an_agent(python, worker):
    file = place(python, "probing.py", FALLBACK.read_text())
    said = tell(worker, "import probing")
    file.unlink()  # other victims are there, too
    assert said == "None"
    judge_says(says(worker))
