"""The agent and its program: how it starts, and what tools and other interpreters see of it."""
import errno
import shutil

import pytest

import agent_client as agent
from agents import LIBRARY, NAME, QUIET, clients, connect, ended, library, start  # noqa: F401, a fixture
from interpreters import eventually
from mount import REPOSITORY

pytestmark = pytest.mark.python(minimum=(3, 10))

SUBINTERPRETER = """
    import probing, sys, threading
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    run = getattr(interpreters, "exec", None) or interpreters.run_string
    {create}
    run(other, "import sys; where = 'in another'")
    print("ready", flush=True)
    print(int(other), flush=True)
    for line in sys.stdin:
        if line == "destroy\\n":
            interpreters.destroy(other)
            print("destroyed", flush=True)
        elif line == "create\\n":
            other = interpreters.create()
            print(int(other), flush=True)
    """


@pytest.mark.parametrize("own_gil", [False, pytest.param(True, marks=pytest.mark.python(
    minimum=(3, 13)))])
def test_subinterpreters(python, own_gil):
    if own_gil and python.version < (3, 13):
        pytest.skip("no interpreter with a GIL of its own can be made from Python")
    create = 'other = interpreters.create("isolated")' if own_gil else \
        'other = interpreters.create("legacy") if sys.version_info >= (3, 13) else interpreters.create()'
    target = start(python, SUBINTERPRETER.format(create=create))
    other = int(target.readline())
    client = connect(target)
    assert client.eval("where").error == errno.EIO
    assert client.eval("where", interp=other).text == "'in another'\n"
    assert client.eval("1", interp=999).error == errno.ENOENT
    for _ in range(5):
        number = client.start("while True: pass", interp=other)
        client.wait_started(number)
        client.cancel(number)
        assert client.wait(number).error == errno.EINTR
    client.eval("import threading; mine = threading.current_thread()", interp=other)
    assert client.eval("threading.enumerate() == [threading.main_thread()]",
                       interp=other).text == "True\n"
    # its end interrupts what runs there, and waits for it; up to 3.11 the module refuses to end an
    # interpreter that has more than one thread
    number = client.start("import time\nwhile True: time.sleep(0.0001)", interp=other)
    client.wait_started(number)
    if python.version < (3, 12):
        client.cancel(number)
        client.wait(number)
    target.send("destroy")
    target.expect("destroyed")
    assert client.wait(number).error == errno.EINTR
    assert client.eval("1", interp=other).error in (errno.ENOENT, errno.ESHUTDOWN)
    for _ in range(40):  # more than are remembered at once
        target.send("create")
        other = int(target.readline())
        assert client.eval("import sys; 6 * 7", interp=other).text == "42\n"
        target.send("destroy")
        target.expect("destroyed")
    target.send("create")
    other = int(target.readline())
    assert client.eval("6 * 7", interp=other).text == "42\n"
    assert client.detach().error == 0
    target.send("destroy")
    target.expect("destroyed")
    assert ended(target) == 0


def test_threading_is_right(python):
    """The agent may be the first to import threading, and is no thread of the program's."""
    target = start(python, """
        import probing, sys
        print("ready", flush=True)
        sys.stdin.readline()
        import _thread, os, threading
        main = threading.main_thread()
        assert main is threading.current_thread(), main
        assert main.ident == _thread.get_ident() and main.native_id == os.getpid()
        assert threading.enumerate() == [main], threading.enumerate()
        worker = threading.Thread(target=sys.stdin.readline)
        worker.start()
        waiter = threading.Thread(target=main.join)
        waiter.start()
        print("started", flush=True)
        worker.join()
        assert threading.enumerate() == [main, waiter], threading.enumerate()
        print("joined", flush=True)
        """)
    client = connect(target)
    answer = client.eval("import threading\nthreading.current_thread().name[:5]\n"
                         "threading.current_thread() is threading.main_thread()\n"
                         "len(threading.enumerate())")
    assert answer.text == "'Dummy'\nFalse\n2\n"
    assert client.eval("threading.enumerate()").text.count("<") == 1
    target.send("import")
    target.expect("started")
    assert client.eval("len(threading.enumerate())").text == "3\n"
    target.send("")
    target.expect("joined")
    assert ended(target) == 0


def test_tracing_tools_see_nothing(python):
    """Functions that the program set to trace or profile all its threads, and sys.monitoring's."""
    target = start(python, """
        import probing, sys, threading
        seen = []
        def trace(frame, event, argument):
            if threading.get_native_id() not in known:
                seen.append((event, frame.f_code.co_name))
        known = {threading.get_native_id()}
        print("ready", flush=True)
        sys.stdin.readline()
        if hasattr(threading, "settrace_all_threads"):
            threading.settrace_all_threads(trace)
            threading.setprofile_all_threads(trace)
        if hasattr(sys, "monitoring"):
            tool = sys.monitoring.PROFILER_ID
            sys.monitoring.use_tool_id(tool, "test")
            sys.monitoring.register_callback(tool, sys.monitoring.events.PY_START, lambda code, offset:
                threading.get_native_id() in known or seen.append(code.co_name))
            sys.monitoring.set_events(tool, sys.monitoring.events.PY_START)
        print("traced", flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    client.eval("1")
    target.send("trace")
    target.expect("traced")
    client.eval("def f(): pass\nf()\nsum(map(int, '123'))")
    assert client.eval("seen").text == "[]\n"
    target.close()


@pytest.mark.parametrize("asked", ["1", "0", None])
def test_startup(python, asked):
    """PROBING=1 starts it where the .pth file is."""
    directory, inside = library(python)
    site = directory / "site"
    site.mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / "contrib" / "probing.pth", site)
    (directory / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({inside + '/site'!r})\n")
    env = {"PYTHONPATH": inside, **QUIET}
    if asked:
        env["PROBING"] = asked
    try:
        target = python.run_source("import sys\nprint('ready', flush=True)\nsys.stdin.read()\n", env=env)
        if asked == "1":
            client = connect(target)
            assert client.hello["origin"] == agent.STARTUP
            assert client.eval("6 * 7").text == "42\n"
            # what the program itself may have of that name comes first
            assert client.eval("import sys; 'probing' in sys.modules").text == "False\n"
            said = client.eval("import probing\nwith probing.span('s') as s: pass\n\ns.id")
            assert said.text == "1\n", said.text
        else:
            assert len(target.tids()) == 1
            with pytest.raises(LookupError):
                connect(target)
        assert ended(target) == 0
    finally:
        (directory / "sitecustomize.py").unlink()


def test_two_copies(python):
    """`import probing` where a daemon has put an agent in starts no second one."""
    directory, inside = library(python)
    shutil.copy(LIBRARY, directory / "injected.so")
    target = start(python, """
        import ctypes, struct, sys
        library = ctypes.PyDLL(sys.argv[1])
        library.probe_agent_start(struct.pack("=QII", 0, 1, 0))
        import probing
        probing.start()
        print("ready", flush=True)
        sys.stdin.read()
        """, inside + "/injected.so")
    assert agent.Record(target.pid, LIBRARY, NAME).read().state == agent.IDLE
    client = agent.Client(target.pid, LIBRARY, "injected.so")
    assert client.eval("1").text == "1\n"
    assert len(target.tids()) == 3
    assert ended(target) == 0


def test_starts_at_once(python):
    """Starting a running agent does nothing, from many threads too."""
    target = start(python, """
        import probing, sys, threading
        threads = [threading.Thread(target=probing.start) for _ in range(20)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print("ready", flush=True)
        sys.stdin.read()
        """)
    # one that has been joined may not be gone yet
    eventually(lambda: len(target.tids()) == 2, what="one thread of the agent")
    assert connect(target).eval("1").text == "1\n"
    assert ended(target) == 0
