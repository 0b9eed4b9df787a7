"""Threads that are held: what they do meanwhile, and what sets them free."""
import errno
import json
import os
import signal
import time

import pytest

import agent_client as agent
from agents import LIBRARY, NAME, clients, connect, ended, start  # noqa: F401, a fixture
from interpreters import eventually, patience
from ring_file import wait_rows
from stopping import done, paused, reads_input, tell, wait_stopped

pytestmark = pytest.mark.python(minimum=(3, 10))

# its main thread counts once it has been told so, and says how far at a line that begins with "?"
COUNTS = """
import os, probing, sys, threading

def count(n):
    total = 0
    for i in range(n):
        total += i
    return total

print("ready", flush=True)
os.read(0, 100)
x = count(3)
print(x, flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""

# a thread for each argument's count, which work until "stop" is read
WORKERS = """
import probing, sys, threading, time
count = [0] * int(sys.argv[1])
working = True

def work(number):
    while working:
        count[number] += 1
        time.sleep(0.002)

threads = [threading.Thread(target=work, args=(i,), daemon=sys.argv[2] == "daemon") for i in range(len(count))]
for thread in threads:
    thread.start()
while not all(count):  # one that is only starting may be held with a lock that others wait for
    time.sleep(0.001)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
working = False
"""


def workers(python, n, kind="plain"):
    target = start(python, WORKERS, str(n), kind)
    return target, connect(target)


def pause(client, n, **options):
    """Pauses all, while the main thread waits for standard input, and waits until n threads are held."""
    eventually(lambda: reads_input(client.pid))
    done(client.order(agent.PAUSE, **options))
    return eventually(lambda: held if len(held := client.record.threads()) == n else None, what=f"{n} held threads")


def go_on(client):
    client.eval("before = list(count)")
    eventually(lambda: client.eval("all(map(int.__ne__, before, count))").text == "True\n", what="that all go on")


def test_held(python):
    """It waits where it is, and goes on as if nothing had been."""
    target, client = paused(python, COUNTS)
    assert set(client.record.threads()) == {target.pid}
    stop = client.record.threads()[target.pid]
    assert stop["why"] == agent.BY_PAUSE and stop["line"] == 12 and stop["id"] == 0
    assert abs(stop["since_ns"] / 1e9 - time.time()) < 60
    assert round((stop["until_ns"] - stop["since_ns"]) / 1e9) == 300
    assert target.pid in target.tids()
    done(client.order(agent.CONTINUE, target.pid))
    target.expect("3")
    eventually(lambda: client.record.read().stopped == 0)
    assert client.record.threads() == {}
    answer = client.order(agent.CONTINUE, target.pid)
    assert answer.error == errno.ESRCH and "isn't stopped" in answer.words
    assert client.order(agent.STEP, target.pid).error == errno.ESRCH
    assert ended(target) == 0


def test_wrong_orders(any_python):
    target, client = paused(any_python, COUNTS)
    assert client.order(77, target.pid).error == errno.EINVAL
    assert client.order(agent.STEP, 1).error == errno.ESRCH
    assert client.order(agent.JUMP, target.pid, line=-5).error == errno.EINVAL
    assert client.order(agent.JUMP, target.pid, line=700).error == errno.EINVAL  # behind its end
    assert client.record.threads()[target.pid]["line"] == 12
    done(client.order(agent.JUMP, target.pid, line=7))  # a line of another function: the next one that is this one's
    assert client.record.threads()[target.pid]["line"] == 10
    done(client.order(agent.JUMP, target.pid, line=12))
    done(client.order(agent.CONTINUE))
    target.expect("3")


def test_many(python):
    """All of them are held, and go on together; the main thread waits in C and isn't."""
    target, client = workers(python, 200)
    held = pause(client, 200)
    assert target.pid not in held
    assert client.eval("before = list(count)").error == 0
    time.sleep(0.1)  # in which one that isn't held would go on
    assert client.eval("before == count").text == "True\n"
    one = min(held)
    tell(client, one, "next")
    done(client.order(agent.CONTINUE, one))
    eventually(lambda: client.eval("sum(map(int.__ne__, before, count))").text == "1\n")
    done(client.order(agent.CONTINUE))
    eventually(lambda: client.eval("all(map(int.__ne__, before, count))").text == "True\n")
    assert client.record.read().stopped == 0
    assert ended(target) == 0


def test_loops_on_one_line(python):
    """They begin their line again at each turn."""
    target = start(python, """
        import probing, sys, threading, time
        def spin():
            begun.append(1)
            while True: time.sleep(0.001)
        def draws():
            begun.append(1)
            for i in (time.sleep(0.001) for i in iter(int, 1)): pass
        def asks():
            begun.append(1)
            any(time.sleep(0.001) for i in iter(int, 1))
        begun = []
        for each in spin, draws, asks:
            threading.Thread(target=each, daemon=True).start()
        while len(begun) < 3:
            time.sleep(0.001)
        print("ready", flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    held = pause(client, 3)
    assert sorted(stop["line"] for stop in held.values()) == [5, 8, 11]
    for tid, stop in held.items():
        for command in "step", "next", "step":
            assert tell(client, tid, command)["line"] == stop["line"]
    done(client.order(agent.CONTINUE))
    assert ended(target) == 0


def test_deadline(python):
    target, client = workers(python, 2)
    eventually(lambda: reads_input(client.pid))
    done(client.order(agent.PAUSE, seconds=2))
    over = wait_rows(client.pid, "events", 2)  # whoever looks may be too late to see them held
    assert len({row.tid for row in over} - {target.pid}) == 2
    assert {(row.kind, row.name) for row in over} == {("continue", "deadline")}
    assert all(json.loads(row.attrs)["held"] > 1.99 for row in over)
    eventually(lambda: client.record.read().stopped == 0)
    go_on(client)
    assert ended(target) == 0


def test_daemon_gone(python):
    """Steps that are under way are forgotten, too."""
    target, client = workers(python, 3)
    one = min(pause(client, 3))
    done(client.order(agent.STEP, one))
    client.close()
    record = agent.Record(target.pid, LIBRARY, NAME)
    eventually(lambda: record.read().stopped == 0)
    with connect(target) as client:
        go_on(client)
        assert client.record.read().stopped == 0
    assert ended(target) == 0


@pytest.mark.parametrize("n", [1, 100])
def test_detach(python, n):
    target, client = workers(python, n)
    tell(client, min(pause(client, n)), "next")
    running = client.start("while True: pass", thread=0)
    client.wait_started(running)
    done(client.detach())
    assert client.answers[running].error == errno.EINTR
    eventually(lambda: client.record.read().state == agent.ENDED)
    assert client.record.stopped == 0
    target.send("list(count)")
    before = json.loads(target.readline())
    eventually(lambda: target.send("list(count)") or all(map(int.__ne__, before, json.loads(target.readline()))),
               what="that all go on")
    assert ended(target) == 0


def test_interrupt(python):
    """SIGINT reaches the program at the line where it is held."""
    target, client = paused(python, """
        import os, probing, sys
        print("ready", flush=True)
        os.read(0, 100)
        try:
            os.getpid()
            os.getpid()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        sys.stdin.readline()
        """)
    tell(client, target.pid, "next")
    os.kill(target.pid, signal.SIGINT)
    target.expect("interrupted")
    assert client.record.threads() == {}
    assert ended(target) == 0


def test_signal_handler(python):
    """Handlers run while the main thread is held."""
    target, client = paused(python, """
        import os, probing, signal, sys
        signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
        print("ready", flush=True)
        os.read(0, 100)
        os.getpid()
        print("end", flush=True)
        sys.stdin.readline()
        """)
    os.kill(target.pid, signal.SIGUSR1)
    target.expect("handled")
    assert target.pid in client.record.threads()
    done(client.order(agent.CONTINUE))
    target.expect("end")
    assert ended(target) == 0


@pytest.mark.parametrize("kind", ["plain", "daemon"])
def test_exit(python, kind):
    """The process ends when it wants to: before its threads are joined those that are held go on, for good."""
    target, client = workers(python, 3, kind)
    pause(client, 3)
    target.stdin.close()
    wait_stopped(client, target.pid)
    eventually(lambda: client.record.read().stopped == 4, what="that it is counted")
    done(client.order(agent.CONTINUE, target.pid))
    assert target.process.wait(patience(30)) == 0
    assert target.stderr() == ""


def test_exit_of_executor(python):
    """Executors join their threads at the same moment, in the opposite order of their imports."""
    target = start(python, """
        import probing, sys, threading, time
        def work():
            begun.append(1)
            while working:
                time.sleep(0.002)
        working, begun = True, []
        print("ready", flush=True)
        thread = threading.Thread(target=work)
        thread.start()
        sys.stdin.readline()
        from concurrent.futures import ThreadPoolExecutor
        pools = [ThreadPoolExecutor(1) for _ in range(3)]
        futures = [pool.submit(work) for pool in pools]
        while len(begun) < 4:  # one that is only starting may be held with a lock that others wait for
            time.sleep(0.001)
        print("begun", flush=True)
        sys.stdin.readline()
        working = False
        """)
    client = connect(target)
    pause(client, 1)
    done(client.order(agent.CONTINUE))
    target.send("")
    target.expect("begun")
    pause(client, 4)
    target.stdin.close()
    wait_stopped(client, target.pid)
    done(client.order(agent.CONTINUE, target.pid))
    assert target.process.wait(patience(30)) == 0
    assert target.stderr() == ""


def test_fork(python):
    """A child has no agent, and holds nobody."""
    target, client = workers(python, 3)
    pause(client, 3)
    assert client.eval("""
import os
pid = os.fork()
if not pid:
    os._exit(7)
os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
""").text == "7\n"
    assert client.record.read().stopped == 3
    one = client.record.threads()[min(client.record.threads())]
    assert one["why"] == agent.BY_PAUSE
    done(client.order(agent.CONTINUE))
    eventually(lambda: client.record.read().stopped == 0)
    assert ended(target) == 0


# ---- evaluating where it is held ----

FRAMES = """
import os, probing, sys, threading
lock = threading.RLock()
ident = threading.get_ident()
seen = []

def inner(x):
    y = x + 1
    z = y + 1
    return z

def outer():
    name = "outer"
    value = inner(4)
    seen.append((name, value))

print("ready", flush=True)
os.read(0, 100)
with lock:
    outer()
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@pytest.fixture
def framed(python):
    """Held in inner(), at `z = y + 1`."""
    target, client = paused(python, FRAMES)
    for _ in range(5):
        tell(client, target.pid, "step")
    assert client.record.threads()[target.pid]["line"] == 9
    client.ident = int(client.eval("ident").text)
    return target, client


def here(client, text, flags=agent.ON_THREAD, **options):
    return client.eval(text, thread=client.ident, flags=flags, **options)


def test_eval(framed):
    target, client = framed
    assert here(client, "x, y, name").text == "(4, 5, 'outer')\n"
    assert here(client, "x, y", flags=agent.IN_FRAME).text == "(4, 5)\n"
    assert here(client, "name", flags=agent.IN_FRAME, depth=1).text == "'outer'\n"
    assert here(client, "x", flags=agent.IN_FRAME, depth=1).error == errno.EIO
    answer = here(client, "x", flags=agent.IN_FRAME, depth=9)
    assert answer.error == errno.ENOENT and "3 now" in answer.words
    assert here(client,
                "threading.get_ident() == ident, threading.current_thread().name").text == "(True, 'MainThread')\n"
    assert here(client, "print('caught'); lock.acquire(blocking=False)").text == "caught\nTrue\n"
    assert here(client, "lock.release(); 1 / 0").error == errno.EIO
    assert here(client, "[a + y for a in range(2)]").text == "[5, 6]\n"
    done(client.order(agent.CONTINUE))
    target.send("seen, threading.current_thread() is threading.main_thread(), lock.acquire(blocking=False)")
    target.expect("([('outer', 6)], True, True)")
    assert ended(target) == 0


def test_assignment(framed):
    target, client = framed
    assert here(client, "y = 40").error == 0
    assert here(client, "y, x").text == "(40, 4)\n"
    assert here(client, "name = 'changed'", flags=agent.IN_FRAME, depth=1).error == 0
    assert tell(client, target.pid, "next")["line"] == 10
    assert here(client, "z").text == "41\n"
    done(client.order(agent.CONTINUE))
    target.send("seen")
    target.expect("[('changed', 41)]")
    assert ended(target) == 0


def test_eval_interrupted(framed):
    """Only the code that was evaluated ends."""
    target, client = framed
    running = client.start("while True: pass", thread=client.ident, flags=agent.ON_THREAD)
    client.wait_started(running)
    client.cancel(running)
    assert client.wait(running).error == errno.EINTR
    assert here(client, "y").text == "5\n"
    assert client.record.threads()[target.pid]["line"] == 9
    assert tell(client, target.pid, "next")["line"] == 10
    done(client.order(agent.CONTINUE))
    target.send("seen")
    target.expect("[('outer', 6)]")
    assert ended(target) == 0


def test_eval_goes_on(framed):
    """What is told to go on meanwhile does so once the code has ended."""
    target, client = framed
    os.mkfifo(target.cwd / "gate")
    running = client.start("open('gate').read(); y = 50", thread=client.ident, flags=agent.ON_THREAD)
    client.wait_started(running)
    done(client.order(agent.CONTINUE))
    open(target.cwd / "gate", "w").close()
    assert client.wait(running).error == 0
    target.send("seen")
    target.expect("[('outer', 51)]")
    assert ended(target) == 0


def test_eval_forks(framed):
    """The child of a fork in such code ends there: the program's own course is the parent's."""
    target, client = framed
    assert here(client, "import os; pid = os.fork()").error == 0
    assert client.eval("os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])").text == "0\n"
    done(client.order(agent.CONTINUE))
    target.send("seen")
    target.expect("[('outer', 6)]")
    assert ended(target) == 0


def test_await(python):
    """A loop that is held can't run what is awaited."""
    target, client = paused(python, """
        import asyncio, os, probing, sys, threading
        async def main():
            os.read(0, 100)
            x = 1
            return x
        print("ready", flush=True)
        print(asyncio.run(main()), flush=True)
        sys.stdin.readline()
        """)
    client.ident = int(client.eval("threading.main_thread().ident").text)
    answer = here(client, "await asyncio.sleep(0)")
    assert answer.error == errno.EIO and "nothing can be awaited" in answer.text
    done(client.order(agent.CONTINUE))
    target.expect("1")
    assert ended(target) == 0


def test_other_interpreter(python):
    """Threads of all interpreters are held, and step where they are."""
    target = start(python, """
        import probing, sys, threading, time
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        CODE = '''
        import os, time
        os.mkdir("begun")
        def double(x):
            y = 2 * x
            return y
        for i in range(1000000):
            i = double(i)
            time.sleep(0.001)
            if os.access("over", os.F_OK):
                break
        '''
        number = interpreters.create()
        thread = threading.Thread(target=getattr(interpreters, "exec", interpreters.run_string), args=(number, CODE))
        thread.start()
        print("ready", flush=True)
        sys.stdin.readline()
        open("over", "w").close()
        thread.join()
        interpreters.destroy(number)
        print("end", flush=True)
        sys.stdin.readline()
        """)
    client = connect(target)
    eventually((target.cwd / "begun").exists, what="the other interpreter")
    tid = min(pause(client, 1))
    lines = [tell(client, tid, "step")["line"] for _ in range(10)]
    assert {5, 6, 7, 8, 9, 10} >= set(lines) >= {5, 6, 8, 9}
    ident = int(client.eval("thread.ident").text)
    answer = client.eval("y, __name__", thread=ident, flags=agent.ON_THREAD) if lines[-1] == 6 else None
    assert answer is None or answer.error == 0
    tell(client, tid, "next")
    done(client.order(agent.CONTINUE))
    target.send("")
    target.expect("end")
    done(client.detach())
    assert ended(target) == 0
