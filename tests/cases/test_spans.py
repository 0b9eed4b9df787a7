"""What a program says it does: probing.span() and probing.event(), in a program that imports the module of the
agent. The rows are read from its rings."""
import json
import math

import pytest

import ring_file
from agents import ended, start

pytestmark = pytest.mark.python(minimum=(3, 10))

HEAD = """
import asyncio, contextlib, gc, os, sys, threading, time
import probing
from probing import event, span

def done():
    print("ready", flush=True)
    sys.stdin.readline()

"""


def run(python, source, **options):
    """A program that says done() somewhere."""
    import textwrap
    return start(python, HEAD + textwrap.dedent(source), **options)


def recorded(target, table="spans"):
    return ring_file.rows(target.pid, table)


def tree(rows):
    """[(name, name of the span around it), ...]"""
    names = {row.id: row.name for row in rows}
    return [(row.name, names.get(row.parent)) for row in rows]


def finish(target):
    target.send("")
    assert ended(target) == 0


def test_rows(python):
    target = run(python, """
        before = time.time()
        with span("outer", loss=0.5) as outer:
            with span("inner") as inner:
                time.sleep(0.02)
                assert inner.parent == outer.id and inner.name == "inner", inner.parent
                event("saved", path="a.pt")
        event("end")
        try:
            with span("bad"):
                1 / 0
        except ZeroDivisionError:
            pass
        hanging = span("hangs")
        hanging.__enter__()
        print(before, time.time(), threading.get_native_id(), outer.id, flush=True)
        done()
        hanging.__exit__(None, None, None)
        """, ready=False)
    before, after, tid, outer = map(float, target.readline().split())
    target.expect("ready")
    rows = recorded(target)
    assert tree(rows) == [("outer", None), ("inner", "outer"), ("bad", None), ("hangs", None)]
    assert rows[0].id == outer and len({row.id for row in rows}) == 4
    for row in rows:
        assert before - 0.001 <= row.start <= after and row.tid == tid and row.task is None
    assert [row.failed for row in rows] == [0, 0, 1, None]
    assert rows[3].duration is None
    assert 0.02 <= rows[1].duration <= rows[0].duration < after - before
    assert rows[0].attrs == '{"loss":0.5}' and rows[1].attrs is None
    first, second = recorded(target, "events")
    assert (first.name, first.kind, first.span, first.tid) == ("saved", "event", rows[1].id, tid)
    assert json.loads(first.attrs) == {"path": "a.pt"} and rows[1].start <= first.ts <= after
    assert (second.name, second.span, second.attrs) == ("end", None, None)
    finish(target)


def test_wrong_use(python):
    finish(run(python, """
        for wrong in (lambda: span(), lambda: span(1), lambda: span("a", "b"), lambda: span(name="a"),
                      lambda: event(None), lambda: event(), lambda: span("a")(3), lambda: span("a")(int),
                      lambda: span("a")(), lambda: span("a")(done, name=1), lambda: type(span("a"))()):
            try:
                wrong()
            except TypeError as error:
                assert str(error), wrong
            else:
                raise AssertionError(wrong.__code__.co_consts)
        import copy, pickle
        s = span("a")
        for wrong in (lambda: copy.copy(s), lambda: copy.deepcopy(s), lambda: pickle.dumps(s, 5),
                      lambda: pickle.dumps(s, 0), lambda: object.__new__(type(s)), lambda: type(s).__enter__(5),
                      lambda: type("Own", (type(s),), {}), lambda: setattr(s, "__class__", int)):
            try:
                wrong()
            except (TypeError, pickle.PicklingError):
                pass
            else:
                raise AssertionError(wrong.__code__.co_consts)
        s.__exit__(None, None, None)
        s.__exit__()
        with span("name", name="x", self=1, capsule=2) as s:
            assert s.name == "name"
        done()
        """))


def test_attributes(python):
    """Each value as it is, or as its type; nothing of the program is called."""
    target = run(python, r"""
        import decimal, enum

        @property
        def trap(self):
            raise AssertionError

        class Meta(type):
            def __getattribute__(self, name):
                raise AssertionError(name)
            __repr__ = __str__ = __hash__ = __eq__ = __getattribute__

        class Evil(metaclass=Meta):
            def __getattribute__(self, name):
                raise AssertionError(name)
            __repr__ = __str__ = __hash__ = __eq__ = __bool__ = __index__ = __float__ = __len__ = \
                __iter__ = __class__ = trap

        class Text(str):
            __str__ = __repr__ = __len__ = __iter__ = __getitem__ = encode = trap

        class Number(int):
            __str__ = __repr__ = __index__ = __int__ = bit_length = __abs__ = trap

        class Real(float):
            __str__ = __repr__ = __float__ = trap

        class Items(list):
            __iter__ = __len__ = __getitem__ = __repr__ = trap

        class Mapping(dict):
            __iter__ = __len__ = __getitem__ = __repr__ = items = keys = trap

        class Colour(enum.IntEnum):
            RED = 7

        evil = Evil()
        endless = []
        endless.append(endless)
        values = dict(
            none=None, yes=True, no=False, zero=0, big=2**64, negative=-2**63, long=-10**100, huge=1 << 100_000,
            real=0.1, small=5e-324, whole=1e16, nan=float("nan"), inf=float("inf"), minus=-float("inf"),
            text='q"b\\c\n\t\0\x7f/é€\U0001f600', lone="a\ud800b\udfff", empty="",
            items=[1, "a", None, [2.5]], pair=(1, 2), mapping={"a": 1, 2: "b"}, nothing=[[], {}, ()],
            endless=endless, bytes=b"x", decimal=decimal.Decimal(1), set={1}, evil=evil, evils=[evil, Evil],
            string=Text("own"), number=Number(5), long_number=Number(10**30), own_real=Real(2.5), own_items=Items([1]),
            own_mapping=Mapping(a=1), colour=Colour.RED, complex=1j, function=done, ключ=1)
        for name, value in values.items():
            with span("s", **{name: value}):
                pass
        event("e", evil=evil, a=[values["text"]])
        done()
        """)
    said = {}
    for row in recorded(target):
        said.update(json.loads(row.attrs))
        row.attrs.encode()
    assert said == {
        "none": None, "yes": True, "no": False, "zero": 0, "big": 2**64, "negative": -2**63, "long": -10**100,
        "huge": "<int of 100001 bits>", "real": 0.1, "small": 5e-324, "whole": 1e16, "nan": "NaN",
        "inf": "Infinity", "minus": "-Infinity", "text": 'q"b\\c\n\t\0\x7f/é€\U0001f600',
        "lone": "a\\ud800b\\udfff", "empty": "", "items": [1, "a", None, [2.5]], "pair": [1, 2],
        "mapping": {"a": 1, "<int>": "b"}, "nothing": [[], {}, []], "endless": [[["<list>"]]], "bytes": "<bytes>",
        "decimal": "<Decimal>", "set": "<set>", "evil": "<Evil>", "evils": ["<Evil>", "<Meta>"], "string": "own",
        "number": 5, "long_number": 10**30, "own_real": 2.5, "own_items": "<Items>", "own_mapping": "<Mapping>",
        "colour": 7, "complex": "<complex>", "function": "<function>", "ключ": 1}
    assert all(type(said[name]) is float for name in ("real", "small", "whole"))
    finish(target)


def test_attributes_that_are_too_long(python):
    target = run(python, r"""
        for many in 10, 200, 1000, 30_000:
            with span("many", **{f"key_{i}": i for i in range(many)}):
                pass
        for size in [*range(1960, 2060), 5000, 10**7]:
            with span("long", a="x" * size):
                pass
            with span("wide", b=2, c="€\n" * size):
                pass
            with span("deep", d=[["y" * (size // 2)] * 3], e=1):
                pass
        with span("key", **{"k" * 5000: 1}):
            pass
        with span("list", a=list(range(10**6)), b=2):
            pass
        done()
        """)
    rows = recorded(target)
    for row in rows:
        assert not row.cut and len(row.attrs.encode()) <= 2048
        said = json.loads(row.attrs)
        if row.name == "long":
            assert said["a"].rstrip(".").strip("x") == "" and len(said["a"]) > 1900
    assert json.loads(rows[0].attrs) == {f"key_{i}": i for i in range(10)}
    for row in rows[1:4]:
        said = json.loads(row.attrs)
        assert said.pop("...") is None and said == {f"key_{i}": i for i in range(len(said))}
        assert len(said) > 100
    assert json.loads(rows[4].attrs) == {"a": "x" * 1960}
    finish(target)


def test_names(python):
    target = run(python, r"""
        class Name(str):
            __str__ = __repr__ = __hash__ = __eq__ = encode = property(lambda self: 1 / 0)
        for name in "", "é€", "a\ud800", "nul\0", Name("own"), "x" * 5000, "€" * 2000:
            with span(name):
                event(name)
        done()
        """)
    for table in "spans", "events":
        *short, long, wide = recorded(target, table)
        assert [row.name for row in short] == ["", "é€", "a\\ud800", "nul\0", "own"]
        assert long.cut == wide.cut == {"name"}
        assert long.name == "x" * 2048 and wide.name == "€" * (2048 // 3)
    finish(target)


def test_threads(python):
    target = run(python, """
        def work(number):
            with span(f"t{number}"):
                barrier.wait()
                with span(f"u{number}"):
                    barrier.wait()
        barrier = threading.Barrier(8)
        with span("main"):
            threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        done()
        """)
    rows = recorded(target)
    assert sorted(tree(rows), key=str) == sorted([("main", None), *((f"t{i}", None) for i in range(8)),
                                                  *((f"u{i}", f"t{i}") for i in range(8))], key=str)
    tids = {row.name: row.tid for row in rows}
    assert all(tids[f"t{i}"] == tids[f"u{i}"] for i in range(8)) and tids["main"] == target.pid
    assert len(set(tids.values())) == 9 and all(row.failed == 0 for row in rows)
    finish(target)


def test_tasks(python):
    """A task begins in the span that it was created in, and the first ones in that around the loop."""
    target = run(python, """
        async def leaf(name):
            with span(name):
                await asyncio.sleep(0.01)
                with span(name + ".inner"):
                    await asyncio.sleep(0.01)
                    event(name)

        async def late():
            await asyncio.sleep(0.03)
            with span("late"):
                pass

        def blocking():
            with span("blocking"):
                with span("more"):
                    pass

        async def main():
            with span("main"):
                one = asyncio.create_task(leaf("a"), name="task a")
                with span("within"):
                    two = asyncio.create_task(leaf("b"), name="täsk b")
                    three = asyncio.create_task(late())
                await one
                await two
                await three
                loop = asyncio.get_running_loop()
                await asyncio.to_thread(blocking)
                await loop.run_in_executor(None, blocking)
            with span("second"):
                pass

        with span("around"):
            asyncio.run(main())
        asyncio.run(leaf("alone"))
        with span("after"):
            pass
        done()
        """)
    rows = recorded(target)
    assert sorted(tree(rows), key=str) == sorted([
        ("around", None), ("main", "around"), ("within", "main"), ("a", "main"), ("a.inner", "a"),
        ("b", "within"), ("b.inner", "b"), ("late", "within"), ("blocking", "main"), ("more", "blocking"),
        ("blocking", None), ("more", "blocking"), ("second", "around"), ("alone", None), ("alone.inner", "alone"),
        ("after", None)], key=str)
    tasks = {row.name: row.task for row in rows}
    assert tasks["a"] == tasks["a.inner"] == "task a" and tasks["b"] == "täsk b"
    assert tasks["around"] is tasks["after"] is tasks["blocking"] is None
    assert tasks["main"].startswith("Task-")
    events = {row.name: row for row in recorded(target, "events")}
    ids = {row.name: row.id for row in rows}
    assert events["a"].span == ids["a.inner"] and events["a"].task == "task a"
    assert all(row.failed == 0 and row.duration >= 0 for row in rows)
    finish(target)


def test_decorators(python):
    target = run(python, """
        import functools, inspect

        @span("plain", a=1)
        def plain(a, *, b=2):
            "Says it."
            event("in")
            if a:
                plain(a - 1)
            return a + b

        class Thing:
            @span("method")
            def method(self):
                return self
            @classmethod
            @span("class")
            def of_class(cls):
                return cls
            @span("static")
            @staticmethod
            def static():
                return 3

        @span("generator")
        def generator():
            got = yield 1
            yield got
            return 4

        def delegate():
            return (yield from generator())

        @span("coroutine")
        async def coroutine(n):
            await asyncio.sleep(0)
            return n

        @span("async generator")
        async def stream(n):
            for i in range(n):
                try:
                    got = yield i
                    while got:
                        got = yield got
                except KeyError:
                    yield "key"

        @span("raises")
        def raises():
            raise KeyError("x")

        assert plain(1) == 3 and plain.__name__ == "plain" and plain.__doc__ == "Says it."
        assert str(inspect.signature(plain)) == "(a, *, b=2)" and plain.__wrapped__
        thing = Thing()
        assert thing.method() is thing and Thing.of_class() is Thing and Thing.static() == 3
        g = generator()
        assert next(g) == 1 and g.send("x") == "x"
        try:
            next(g)
        except StopIteration as stop:
            assert stop.value == 4
        assert inspect.isgeneratorfunction(generator) and inspect.iscoroutinefunction(coroutine)
        assert inspect.isasyncgenfunction(stream)

        async def main():
            assert await asyncio.gather(*(coroutine(i) for i in range(3))) == [0, 1, 2]
            assert [i async for i in stream(3)] == [0, 1, 2]
            s = stream(2)
            assert await s.__anext__() == 0 and await s.asend("a") == "a"
            assert await s.athrow(KeyError) == "key"
            await s.aclose()
        asyncio.run(main())
        try:
            raises()
        except KeyError:
            pass
        try:
            span("x")(inspect.Signature)
        except TypeError:
            pass
        done()
        """)
    rows = recorded(target)
    counts = {}
    for row in rows:
        counts[row.name] = counts.get(row.name, 0) + 1
        expected = (1,) if row.name == "raises" else (0, 1) if row.name == "async generator" else (0,)
        assert row.failed in expected and row.duration is not None
    assert counts == {"plain": 2, "method": 1, "class": 1, "static": 1, "generator": 1, "coroutine": 3,
                      "async generator": 2, "raises": 1}
    assert tree(rows)[:2] == [("plain", None), ("plain", "plain")]
    assert rows[0].attrs == '{"a":1}'
    assert [row.span for row in recorded(target, "events")] == [rows[0].id, rows[1].id]
    finish(target)


def test_one_object_again(python):
    target = run(python, """
        s = span("s", a=1)
        assert s.id is None and s.parent is None
        for i in range(3):
            with s:
                pass
        with s:
            outer = s.id
            with s:
                assert s.parent == outer
                with s:
                    pass
        def deep(n):
            with s:
                if n:
                    deep(n - 1)
        deep(200)
        def hold():
            with s:
                entered.set()
                go.wait()
        entered, go = threading.Event(), threading.Event()
        thread = threading.Thread(target=hold)
        thread.start()
        entered.wait()
        with s:
            time.sleep(0.05)
            go.set()
            thread.join()
        s.__exit__(None, None, None)
        done()
        """)
    rows = recorded(target)
    assert all(row.failed == 0 and row.attrs == '{"a":1}' for row in rows)
    assert len(rows) == 3 + 3 + 201 + 2
    parents = [row.parent for row in rows]
    assert parents[:6] == [None, None, None, None, rows[3].id, rows[4].id]
    assert parents[6:207] == [None, *(row.id for row in rows[6:206])]
    assert parents[207:] == [None, None]
    finish(target)


def test_any_order(python):
    """Spans that end out of order, elsewhere, late, or never."""
    target = run(python, """
        a, b, c = span("a"), span("b"), span("c")
        for s in a, b, c: s.__enter__()
        for s in b, a, c: s.__exit__(None, None, None)
        with span("after"):
            pass

        def body(name):
            with span(name):
                yield
        generators = [body(f"g{i}") for i in range(5)]
        for g in generators: next(g)
        generators.pop(2).close()
        del generators[0]
        with span("between"):
            pass
        del generators, g
        gc.collect()
        with span("free"):
            pass

        moved = span("moved")
        moved.__enter__()
        thread = threading.Thread(target=moved.__exit__, args=(None, None, None))
        thread.start(); thread.join()
        with span("free again"):
            pass
        thread = threading.Thread(target=span("orphan").__enter__)
        thread.start(); thread.join()
        del thread
        kept = span("kept")
        thread = threading.Thread(target=kept.__enter__)
        thread.start(); thread.join()
        kept.__exit__(None, None, None)
        span("dropped").__enter__()
        gc.collect()

        async def agen(name):
            with span(name):
                yield 1
                yield 2

        async def crossing():
            x, y = span("x"), span("y")
            x.__enter__(); y.__enter__()
            x.__exit__(None, None, None); y.__exit__(None, None, None)
            with span("after x"):
                pass
            async for _ in agen("unfinished"):
                break
            async def other(s):
                s.__exit__(None, None, None)
            with span("ok"):
                s = span("ended elsewhere")
                s.__enter__()
                await asyncio.create_task(other(s))
            with span("last"):
                pass
            span("lost").__enter__()

        asyncio.run(crossing())
        asyncio.run(crossing())
        with span("end"):
            pass
        span("at exit").__enter__()
        at_exit = span("at exit, kept")
        at_exit.__enter__()
        done()
        """)
    rows = recorded(target)
    got = tree(rows)
    assert got[:4] == [("a", None), ("b", "a"), ("c", "b"), ("after", None)]
    by_name = dict(got)
    assert by_name["between"] == "g4" and by_name["free"] is None and by_name["free again"] is None
    assert by_name["after x"] is None and by_name["end"] is None
    for row in rows:
        assert row.duration is None or row.duration >= 0
        if row.name in ("orphan", "dropped", "lost", "at exit"):
            assert row.failed is None
        elif row.name not in ("at exit, kept", "unfinished"):
            assert row.failed == int(row.name.startswith("g") and row.name != "x"), row
    finish(target)


@pytest.mark.parametrize("loop", [False, True], ids=["thread", "loop"])
def test_no_leaks(python, loop):
    finish(run(python, f"""
        in_loop = {loop}
        async def run(f):
            f()
        """ + """
        names = [f"name {i}" for i in range(50)]
        marks = [object() for _ in range(3)]

        def once():
            for i in range(200):
                with span(names[i % 50], a=i, b=marks[0], c=[marks[1]]) as s:
                    with s:
                        event(names[i % 50], m=marks[2])
                    span("dropped").__enter__()
                    decorated(i)
                    list(generated())

        @span("decorated")
        def decorated(i):
            return i

        @span("generated")
        def generated():
            yield 1

        def measure():
            once()
            gc.collect()
            return (sys.getallocatedblocks(), [sys.getrefcount(o) for o in marks + names],
                    sys.getrefcount(type(span("x"))), len(gc.get_objects()), sys.getrefcount(None) % 2**31)

        def main():
            before = after = None
            for _ in range(8):
                before, after = after, measure()
            assert before[1] == after[1]
            assert before[2:4] == after[2:4], (before, after)
            for i in (0, 4):  # one that is lost each time is 200
                assert abs(before[i] - after[i]) < 150, (before[i], after[i])

        asyncio.run(run(main)) if in_loop else main()
        gc.collect()
        assert not gc.garbage
        done()
        """))


def test_wrap(python):
    """Spans whose rows were overwritten while they were open are written once more."""
    target = run(python, """
        with span("outer", loss=1) as outer:
            for i in range(100_000):
                with span("inner"):
                    pass
        with span("next"):
            pass
        print(outer.id, flush=True)
        done()
        """, ready=False)
    outer = int(target.readline())
    target.expect("ready")
    with ring_file.find(target.pid, "spans") as ring:
        rows, lost = ring.read()
        assert lost > 0 and ring.dropped == 0
    *inner, late, last = rows
    assert (late.id, late.name, late.attrs, late.failed, last.name) == (outer, "outer", '{"loss":1}', 0, "next")
    assert late.duration >= sum(row.duration for row in inner)
    assert all(row.parent == outer and row.failed == 0 for row in inner)
    assert [row.id for row in inner] == list(range(inner[0].id, inner[0].id + len(inner)))
    finish(target)


def test_signals(python):
    target = run(python, """
        import signal
        count = 0
        def handler(*_):
            global count
            with span("signal"):
                count += 1
                event("signal")
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        end = time.monotonic() + 0.5
        loops = 0
        while time.monotonic() < end or count < 20:
            with span("loop"):
                with span("inner"):
                    loops += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(count, loops, flush=True)
        done()
        """, ready=False)
    count, loops = map(int, target.readline().split())
    target.expect("ready")
    with ring_file.find(target.pid, "spans") as ring:
        rows, lost = ring.read()
        assert lost + len(rows) == count + 2 * loops and ring.dropped == 0
    assert count > 10 and all(row.failed == 0 and row.duration >= 0 for row in rows)
    known = {row.id: row.name for row in rows}
    for row in rows:
        if row.name == "inner":
            assert known.get(row.parent, "loop") == "loop"
    assert len(recorded(target, "events")) == count
    finish(target)


def test_fork(python):
    """A child has no agent: its spans do nothing, until it starts one."""
    target = run(python, """
        def child(status):
            pid = os.fork()
            if pid == 0:
                try:
                    status()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(pid, 0)[1] == 0

        def quiet():
            with span("child") as s:
                assert s.id is None
                event("child")
            outer.__exit__(None, None, None)

        def starts():
            probing.start()
            with span("own") as s:
                assert s.id is not None
            outer.__exit__(None, None, None)
            print("child", os.getpid(), threading.get_native_id(), flush=True)
            sys.stdin.readline()

        outer = span("outer")
        with outer:
            child(quiet)
            child(starts)
            with span("inner"):
                pass
        done()
        """, ready=False)
    word, child, tid = target.readline().split()
    assert word == "child" and child == tid
    own = ring_file.rows(int(child), "spans")
    assert [(row.name, row.tid) for row in own] == [("own", int(child))]
    target.send("")
    target.expect("ready")
    rows = recorded(target)
    assert tree(rows) == [("outer", None), ("inner", "outer")] and rows[0].failed == 0
    assert recorded(target, "events") == []
    finish(target)


def test_own_loops_and_tasks(python):
    """What asyncio lets a program bring along isn't asked, or may be anything."""
    target = run(python, """
        class Task(asyncio.Task):
            def get_name(self):
                raise AssertionError
            __repr__ = __str__ = get_name

        class Loop(asyncio.SelectorEventLoop):
            def __repr__(self):
                raise AssertionError

        async def main():
            with span("own"):
                print(asyncio.Task.get_name(asyncio.current_task()), flush=True)
            asyncio.current_task().set_name("né\\ud800")
            with span("renamed"):
                pass

        loop = Loop()
        loop.set_task_factory(lambda loop, coroutine, **options: Task(coroutine, loop=loop))
        loop.run_until_complete(main())
        loop.call_soon(lambda: span("callback").__enter__())
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        done()
        """, ready=False)
    name = target.readline()
    target.expect("ready")
    rows = recorded(target)
    assert [(row.name, row.task) for row in rows] == [
        ("own", name), ("renamed", "né\\ud800"), ("callback", None)]
    assert all(row.parent is None for row in rows)
    finish(target)


def test_other_tasks(python):
    """Trio's tasks and greenlets take turns on a thread like asyncio's, each in a context of its own."""
    target = run(python, """
        import contextvars, types
        with span("before"):
            sys.modules["greenlet"] = types.ModuleType("greenlet")
            one, two = contextvars.copy_context(), contextvars.copy_context()
            a, b, within = span("a"), span("b"), span("within a")
            for context, step in ((one, a.__enter__), (two, b.__enter__), (one, within.__enter__),
                                  (two, b.__exit__), (one, within.__exit__), (one, a.__exit__)):
                context.run(step)
            with span("direct"):
                pass
        with span("after"):
            pass
        done()
        """)
    assert tree(recorded(target)) == [("before", None), ("a", "before"), ("b", "before"), ("within a", "a"),
                                      ("direct", "before"), ("after", None)]
    finish(target)


def test_deep_nesting(python):
    finish(run(python, """
        def nest(depth):
            spans = [span("deep") for _ in range(depth)]
            for s in spans: s.__enter__()
            ids = [s.id for s in spans]
            for s in reversed(spans): s.__exit__(None, None, None)
            for _ in range(depth): span("dropped").__enter__()

        async def main():
            nest(30_000)
            with span("after") as s:
                assert s.parent is None or True
        nest(30_000)
        asyncio.run(main())
        gc.collect()
        with span("free") as s:
            assert s.parent is None
        done()
        """))
