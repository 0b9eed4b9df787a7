"""The table gc: each run of the collector, whatever the program does with gc.callbacks."""
import errno
import time

import pytest

import ring_file
from agents import clients, connect, ended, start  # noqa: F401, a fixture
from interpreters import patience
from recording import AGAIN, MINIMUM, again, off, on
from test_breakpoints import do, program

pytestmark = pytest.mark.python(minimum=(3, 10))


def test_gc(python):
    """Each run, against what collect() returns and what the interpreter counts itself."""
    target, client = program(python, "")
    client.eval("import gc, threading; gc.disable(); gc.collect()")
    client.eval("def cycles(n):\n    for _ in range(n):\n        x = []\n        x.append(x)\n")
    on(client, "gc")
    before = time.time()
    expected = []
    for i in range(12):
        expected.append((i % 3, int(client.eval(f"cycles({i * 10}); gc.collect({i % 3})").text)))
    rows = ring_file.rows(target.pid, "gc")
    assert [(row.generation, row.collected) for row in rows] == expected
    assert any(collected >= 100 for _, collected in expected)
    assert all(row.uncollectable == 0 and 0 < row.duration < patience(1) for row in rows)
    assert all(before - 0.1 < row.ts < time.time() for row in rows)
    assert [row.ts for row in rows] == sorted(row.ts for row in rows)
    assert {row.tid for row in rows} == {client.status()["python_tid"]}

    stats = "[s['collections'] for s in gc.get_stats()]"
    counted = eval(client.eval(stats).text)
    client.eval("def run():\n"
                "    gc.enable()\n"
                "    threads = [threading.Thread(target=lambda: [cycles(300) for _ in range(100)]) for _ in range(4)]\n"
                "    for t in threads: t.start()\n"
                "    for t in threads: t.join()\n"
                "    gc.disable()\n")
    do(target, "run()")  # where the agent's thread makes nothing that the collector could begin at
    more = [b - a for a, b in zip(counted, eval(client.eval(stats).text))]
    rows = ring_file.rows(target.pid, "gc")[len(expected):]
    by_generation = [sum(row.generation == g for row in rows) for g in range(3)]
    assert sum(more) > 10 and by_generation == more
    assert client.status()["python_tid"] not in {row.tid for row in rows}
    off(client, "gc")
    client.eval("gc.collect()")
    assert len(ring_file.rows(target.pid, "gc")) == len(expected) + len(rows)
    assert client.eval("gc.callbacks").text == "[]\n"
    assert ended(target) == 0


def test_gc_callbacks_of_the_program(python):
    """The list is the program's: it may clear it, replace it, call what is in it."""
    target = start(python, AGAIN)
    client = connect(target)
    client.eval("import gc; gc.disable(); mine = gc.callbacks; seen = []\n"
                "def program(phase, info): seen.append(phase)\n"
                "mine.append(program)")
    on(client, "gc")
    client.eval("gc.collect()")
    client.eval("for args in [(), ('stop',), ('stop', 1), (None, None), ('stop', {}), ('start', {}),\n"
                "             ('stop', {'generation': 'x', 'collected': 2**80})]:\n"
                "    assert mine[1](*args) is None\n")
    assert [row.generation for row in ring_file.rows(target.pid, "gc")][0] == 2
    client.eval("mine.clear(); gc.collect()")
    off(client, "gc")
    on(client, "gc")
    client.eval("mine.clear()")
    on(client, "gc")  # it is put there again
    assert client.eval("len(mine)").text == "1\n"
    client.eval("mine.append(mine[0]); gc.callbacks = None")
    off(client, "gc")  # everywhere it is
    assert client.eval("mine").text == "[]\n"
    answer = client.switch("gc")
    assert answer.error == errno.EIO and "replaced gc.callbacks" in answer.words
    client.eval("gc.callbacks = mine")
    on(client, "gc")
    client.eval("del gc.callbacks")
    assert client.detach().error == 0
    assert again(target).eval("mine").text == "[]\n"
    assert ended(target) == 0


def test_gc_kept_function(python):
    """Whoever keeps our function has one that does nothing."""
    target = start(python, AGAIN)
    client = connect(target)
    client.eval("import gc")
    on(client, "gc")
    client.eval("kept = gc.callbacks[0]")
    assert client.detach().error == 0
    client = again(target)
    client.eval("gc.callbacks.append(kept); gc.collect(); kept('stop', {})")
    assert ring_file.find(target.pid, "gc") is None
    on(client, "gc")
    assert client.eval("_ = gc.collect(); len(gc.callbacks)").text == "2\n"
    assert ended(target) == 0


def test_gc_subinterpreter(python):
    """Where it was asked for; and it is taken out everywhere."""
    target = start(python, """
        import probing, sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        if sys.version_info >= (3, 13):
            all = [interpreters.create("legacy"), interpreters.create("isolated")]
        else:
            all = [interpreters.create()]
        print("ready", flush=True)
        print(*map(int, all), flush=True)
        for line in sys.stdin:
            probing.start()
            while line == "destroy\\n" and all:
                interpreters.destroy(all.pop())
            if not all:
                print("destroyed", flush=True)
        """)
    others = [int(number) for number in target.readline().split()]
    client = connect(target)
    for other in others:
        client.eval("import gc; gc.disable(); gc.collect()", interp=other)
        on(client, "gc", interp=other)
        for generation in (2, 1):
            client.eval(f"gc.collect({generation})", interp=other)
    assert [row.generation for row in ring_file.rows(target.pid, "gc")] == [2, 1] * len(others)
    for size in (1 << 20, MINIMUM) * 2:
        on(client, "gc", interp=others[-1], size=size)
    off(client, "gc")
    for other in others:
        assert client.eval("gc.callbacks", interp=other).text == "[]\n"
        on(client, "gc", interp=other)
    assert client.detach().error == 0
    client = again(target)
    for other in others:
        assert client.eval("gc.callbacks", interp=other).text == "[]\n"
        on(client, "gc", interp=other)
    target.send("destroy")
    target.expect("destroyed")
    off(client, "gc")
    assert ended(target) == 0
