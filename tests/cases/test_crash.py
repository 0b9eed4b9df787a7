"""on-crash: what the agent records of exceptions that nobody caught and of fatal signals, and that the process ends as
it would have without it."""
import errno
import signal
import time

import pytest

import agents
import crashing
import ring_file
from agents import clients, connect  # noqa: F401, a fixture
from crashing import OFF, RECORD, STOP, begin, last, on_crash, ring_of, said, start, tell_seen
from interpreters import eventually, patience

pytestmark = [pytest.mark.python(minimum=(3, 10)), pytest.mark.harms]


def frames(rows):
    """As traceback.extract_tb() has them: co_name, before 3.13."""
    return [[row.func.rpartition(".")[2], row.file, row.lineno] for row in rows]


def check(rows, oracle):
    """The rows of one exception against what the program said of it."""
    exception, = [row for row in rows if row.kind == "exception"]
    assert exception.tid == oracle["tid"]
    assert exception.name.rpartition(".")[2] == oracle["type"]
    shown = [row for row in rows if row.kind == "frame"]
    assert frames(shown) == [[name.rpartition(".")[2], *rest] for name, *rest in oracle["frames"]]
    assert [row.depth for row in shown] == list(range(len(shown)))
    before = [row for row in rows if row.kind in ("cause", "context")]
    assert [row.name.rpartition(".")[2] for row in before][:1] == ([oracle["before"]] if oracle["before"] else [])


def hooked(python, **options):
    """With hooks of its own, which say what there was."""
    target = start(python, **options)
    target.send("do own_hooks()")
    target.expect("done")
    client = connect(target)
    assert on_crash(client).error == 0
    return target, client


def test_in_a_thread(python):
    target, client = hooked(python)
    ring = ring_of(client)
    for number, way in enumerate(("thread branch", "raw branch", "thread caused"), 1):
        target.send(way)
        lines = {target.readline(), target.readline()}
        oracle, = [crashing.json.loads(line) for line in lines - {"done"}]
        assert oracle["hook"] == ("unraisable" if "raw" in way else "threading")
        rows = last(ring)
        assert {row.crash for row in rows} == {number}
        check(rows, oracle)
    ring.close()


def test_in_the_main_thread(python):
    target, client = hooked(python)
    ring = ring_of(client)
    target.send("branch")
    oracle = said(target)
    assert target.process.wait(patience(30)) == 1
    check(last(ring), oracle)
    ring.close()


def test_values(python):
    """Bounded, as the daemon's, and nothing of the program is asked."""
    target, client = begin(python)
    ring = ring_of(client)
    target.send("thread branch")
    target.expect("done")
    exception, = last(ring, "exception")
    assert (exception.name, exception.value) == ("__main__.OwnError", "('too', 300)")
    local = {(row.depth, row.name): row.value for row in last(ring, "local")}
    assert local[0, "number"] == "300"
    assert local[0, "text"] == "'" + "x" * 200 + "'... 300 characters"
    angry = local[0, "angry"]
    assert angry.startswith("<__main__.Angry object at 0x")
    assert angry.endswith("> {calm=False, parts=[1, {2: (3,)}]}")
    assert local[0, "parts"] == f"{{'one': [1, 2.5, None], 'two': ({angry.partition(' {')[0]}, b'\\x00')}}"
    assert local[1, "angry"] == angry
    ring.close()


def test_nothing_lives_longer(python):
    """Not the exception, its frames, nor what they bind."""
    target, client = begin(python)
    for line in ("import weakref; living = weakref.WeakSet()",
                 "def fail(): angry = Angry(); living.add(angry); raise OwnError()"):
        target.send("do " + line)
        target.expect("done")
    target.send("do gc.disable(); t = threading.Thread(target=fail); t.start(); t.join(); put(len(living))")
    target.expect("0")
    with ring_of(client) as ring:
        assert last(ring, "local")[0].name == "angry"


def test_chain(python):
    target, client = begin(python)
    ring = ring_of(client)
    target.send("thread caused")
    target.expect("done")
    rows = [(row.kind, row.name or row.func) for row in last(ring, "exception", "cause", "context", "earlier")]
    assert rows == [("exception", "RuntimeError"), ("cause", "__main__.OwnError"), ("earlier", "leaf"),
                    ("earlier", "branch"), ("earlier", "caused"), ("context", "KeyError"), ("earlier", "branch")]
    ring.close()


def test_deep(python):
    """Of an endless recursion both ends."""
    target, client = begin(python)
    ring = ring_of(client)
    target.send("thread deep")
    target.expect("done")
    depths = [row.depth for row in last(ring, "frame")]
    assert depths[:96] == list(range(96)) and len(depths) == 128 and depths[127] - depths[96] == 31 and depths[96] > 500
    assert last(ring, "exception")[0].name == "RecursionError"
    ring.close()


def test_not_a_crash(python):
    """SystemExit ends a program as it wants to end."""
    for way, status in ("exit", 3), ("thread exit", 0):
        target, client = begin(python)
        ring = ring_of(client)
        target.send(way)
        if way == "thread exit":
            target.expect("done")
            target.stdin.close()
        assert target.process.wait(patience(30)) == status
        assert ring.rows == [] and target.stderr() == ""
        ring.close()


def test_interrupt_is_recorded_and_not_held(python):
    target, client = begin(python, mode=STOP)
    ring = ring_of(client)
    target.send("interrupt")
    assert target.process.wait(patience(30)) == -signal.SIGINT
    assert [row.name for row in last(ring, "exception")] == ["KeyboardInterrupt"]
    ring.close()


def test_off(python):
    """The hooks are those that were there."""
    target = start(python)
    client = connect(target)
    target.send("do own_hooks(); before = sys.excepthook, threading.excepthook, sys.unraisablehook")
    target.expect("done")
    hooks = "(sys.excepthook, threading.excepthook, sys.unraisablehook) == before"
    assert client.eval(hooks).text == "True\n"
    for _ in range(3):
        assert on_crash(client).error == 0
        assert client.eval(hooks).text == "False\n"
        assert on_crash(client).error == 0
        assert on_crash(client, OFF).error == 0
        assert client.eval(hooks).text == "True\n"
    assert on_crash(client, 7).error == errno.EINVAL
    assert on_crash(client).error == 0
    assert client.detach().error == 0
    target.send("do print(" + hooks + ", flush=True)")
    target.expect("True")


@pytest.mark.python(minimum=(3, 12))
def test_hooks_that_come_later(python):
    target, client = begin(python)
    ring = ring_of(client)
    target.send("do own_hooks()")
    target.expect("done")
    target.send("thread branch")
    oracle = said(target)
    target.expect("done")
    check(last(ring), oracle)
    assert ring.rows[-1].crash == 1
    # one that goes on to what it has found there
    target.send("do found = threading.excepthook; threading.excepthook = lambda args: found(args)")
    target.expect("done")
    target.send("thread branch")
    check_again = said(target)
    target.expect("done")
    check(last(ring), check_again)
    assert ring.rows[-1].crash == 2  # and not 3
    ring.close()


@pytest.mark.python(maximum=(3, 11))
def test_hooks_that_come_later_before_3_12(python):
    """It takes the order once more."""
    target, client = begin(python)
    ring = ring_of(client)
    target.send("do own_hooks()")
    target.expect("done")
    for recorded in False, True:
        target.send("thread branch")
        oracle = said(target)
        target.expect("done")
        assert bool(ring.rows) == recorded
        assert on_crash(client).error == 0
    check(last(ring), oracle)
    ring.close()


# ---- signals ----

SIGNALS = {"segv": signal.SIGSEGV, "abort": signal.SIGABRT, "bus": signal.SIGBUS, "fpe": signal.SIGFPE,
           "fault": signal.SIGSEGV}


@pytest.mark.parametrize("way", SIGNALS)
def test_signals(python, way):
    """The status is as without us; the daemon is waited for."""
    number = SIGNALS[way]
    target, client = begin(python)
    ring = ring_of(client)
    begun = time.monotonic()
    target.send(way)
    client.receive()
    (told, tid, address), = client.crashed
    assert (told, tid) == (number, target.pid)
    if way == "segv":
        assert address == 8
    row, = last(ring)
    assert (row.kind, row.name, row.tid) == ("signal", number.name, target.pid)
    if way == "segv":
        assert row.value == "at address 0x8"
    time.sleep(0.1)
    waits = target.process.poll() is None
    assert waits or time.monotonic() - begun > 1
    if waits:
        tell_seen(client)
    assert target.process.wait(patience(30)) == -number
    ring.close()


def test_daemon_that_is_gone_is_not_waited_for(any_python):
    target, client = begin(any_python)
    target.send("segv")
    client.receive()
    client.close()
    assert target.process.wait(patience(30)) == -signal.SIGSEGV
    target, client = begin(any_python)
    client.close()
    eventually(lambda: client.record.read().channel >= 0)
    target.send("abort")
    assert target.process.wait(patience(30)) == -signal.SIGABRT


def test_daemon_that_does_not_answer(any_python):
    target, client = begin(any_python)
    target.send("segv")
    client.receive()
    assert target.process.wait(patience(30)) == -signal.SIGSEGV


@pytest.mark.parametrize("later", [False, True])
def test_faulthandler(python, later):
    """Whoever came first: it says its traceback, and the process ends by the signal."""
    target = start(python)
    enable = "do faulthandler.enable()"
    client = connect(target)
    if not later:
        target.send(enable)
        target.expect("done")
    assert on_crash(client).error == 0
    if later:
        target.send(enable)
        target.expect("done")
        assert on_crash(client).error == 0  # again: not in front of one that goes on to ours
    ring = ring_of(client)
    target.send("segv")
    client.receive()
    tell_seen(client)
    assert target.process.wait(patience(30)) == -signal.SIGSEGV
    assert len(ring.rows) == 1 and len(client.crashed) == 1
    assert target.stderr().count("Fatal Python error: Segmentation fault") == 1
    ring.close()


def test_stack_overflow(python):
    """Seen where there is an alternate stack: faulthandler makes one."""
    for line in "do faulthandler.enable()", "do pass":
        target = start(python)
        client = connect(target)
        target.send(line)
        target.expect("done")
        assert on_crash(client).error == 0
        ring = ring_of(client)
        target.send("overflow")
        if "enable" in line:
            client.receive()
            tell_seen(client)
        assert target.process.wait(patience(30)) == -signal.SIGSEGV
        assert len(ring.rows) == (1 if "enable" in line else 0)
        ring.close()


def test_program_that_goes_on(python):
    """A handler of the program's that recovers is called each time, and only the first time anybody waits."""
    target = start(python)
    target.send("do caught = []; signal.signal(signal.SIGFPE, lambda *args: caught.append(args[0]))")
    target.expect("done")
    client = connect(target)
    assert on_crash(client).error == 0
    ring = ring_of(client)
    target.send("do [os.kill(os.getpid(), signal.SIGFPE) for _ in range(1000)]; print(len(caught), flush=True)")
    client.receive()
    tell_seen(client)
    target.expect("1000")
    target.expect("done")
    assert len(ring.rows) == 1
    on_crash(client, OFF)
    target.send("do os.kill(os.getpid(), signal.SIGFPE); print(len(caught), flush=True)")
    target.expect("1001")
    ring.close()


def test_fork(python):
    """A child has none of it, and fails as it would."""
    target, client = begin(python, mode=STOP)
    ring = ring_of(client)
    for way, status in (("os.abort()", signal.SIGABRT), ("branch(1)", 1 << 8)):
        target.send(f"do print(child({way!r}), flush=True)")
        target.expect(str(int(status)))
        target.expect("done")
    assert ring.rows == []
    ring.close()


@pytest.mark.parametrize("mode", [RECORD, STOP])
def test_detach(python, mode):
    """Nothing is left behind; nor is a thread that was held."""
    target, client = begin(python, mode=mode)
    target.send("do thread = threading.Thread(target=branch, args=(1,)); thread.start()")
    target.expect("done")
    if mode == STOP:
        eventually(lambda: client.record.read().stopped == 1, what="a thread that is held")
    assert client.detach().error == 0
    target.send("do thread.join(); print(sys.excepthook is sys.__excepthook__, "
                "threading.excepthook is threading.__excepthook__, flush=True)")
    target.expect("True True")
    target.expect("done")
    target.send("abort")
    assert target.process.wait(patience(30)) == -signal.SIGABRT


# ---- stop ----


def test_held(python):
    target, client = begin(python, mode=STOP)
    target.send("branch")
    record = eventually(lambda: (client.record.read().stopped == 1) and client.record, what="the thread is held")
    assert record.on_crash == STOP
    flags = 8  # EVAL_IN_CRASH
    assert client.eval("number, len(text)", flags=flags).text == "(300, 300)\n"
    assert client.eval("angry.calm = True; angry.calm", depth=1, flags=flags).text == "True\n"
    assert client.eval("angry.calm", depth=0, flags=flags).text == "True\n"
    assert client.eval("1", depth=9, flags=flags).error == errno.ENOENT
    assert client.eval("6 * 7").text == "42\n"
    row, = ring_file.rows(target.pid, "hits")
    assert (row.id, row.stopped, row.resumed, row.tid, row.captured) == (None, 1, None, target.pid, None)
    assert row.func == "leaf" and row.stack.split(";")[-1].startswith("leaf (")
    client.close()  # the daemon is gone: so is the reason to wait
    assert target.process.wait(patience(30)) == 1
    assert "OwnError" in target.stderr()


def test_held_no_longer_than_asked(python):
    target = start(python)
    client = connect(target)
    assert on_crash(client, STOP, 0.3).error == 0
    target.send("thread branch")
    target.expect("done")
    assert client.eval("1", flags=8).error == errno.ENOENT


INTERPRETERS = """
import probing, sys, threading
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
run = getattr(interpreters, "exec", None) or interpreters.run_string


def create():
    try:
        return interpreters.create(isolated=False)
    except TypeError:
        return interpreters.create("legacy")


def fail(which):
    run(which, "import threading\\ndef f(): 1 / 0\\nt = threading.Thread(target=f); t.start(); t.join()")


known, unknown = create(), create()
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


def test_interpreters(python):
    """Threads of all of them, those that nothing of ours was in as well."""
    target = agents.start(python, INTERPRETERS)
    client = connect(target)
    assert client.eval("1", interp=int(client.eval("int(known)").text)).text == "1\n"
    assert on_crash(client).error == 0
    for number, which in enumerate(("known", "unknown"), 1):
        target.send(f"fail({which})")
        target.expect("done")
        rows = [row for row in ring_file.rows(target.pid, "crash") if row.crash == number]
        assert [row.name for row in rows if row.kind == "exception"] == ["ZeroDivisionError"]
        assert [row.func for row in rows if row.kind == "frame"][0] == "f"
    target.send("interpreters.destroy(known)")
    target.expect("done")
    for mode in RECORD, OFF, STOP:
        assert on_crash(client, mode).error == 0
    assert client.detach().error == 0
    target.send("fail(unknown); interpreters.destroy(unknown)")
    target.expect("done")
    target.stdin.close()
    assert target.process.wait(patience(30)) == 0
