"""backtrace and stacks.folded of parked victims, against what the victims say of themselves."""
import errno
import glob
import os
import re
import subprocess

import pytest

from interpreters import OLDEST, eventually
from sql import settle
from stacks import escape, parse_backtrace, parse_folded

PARKED = ["nested.py", "generators.py", "executed.py", "nonascii.py", "lines.py", "callbacks.py",
          "lockwait.py", "threads.py"]


def look(probe, target):
    return parse_backtrace(probe.read(target.pid, "backtrace"), target.pid)


def expected(frames):
    return [(escape(function), escape(file), line) for function, file, line in frames]


def check(seen, said):
    """Every thread that the victim knows of is there, with its name and exactly its frames."""
    for tid, thread in said.items():
        assert tid in seen.threads, f"thread {thread['name']} is missing"
        assert seen.threads[tid].name == escape(thread["name"])
        assert seen.threads[tid].unreadable == []
        assert seen.threads[tid].frames == expected(thread["frames"])
    assert len(seen.threads) == seen.count


@pytest.mark.python(minimum=OLDEST, free_threaded=True)
@pytest.mark.parametrize("script", PARKED)
def test_same_as_current_frames(probe, python, script):
    target = python.run(script)
    said = target.stacks()
    check(look(probe, target), said)
    # from the caches, too
    check(look(probe, target), said)


@pytest.mark.python(minimum=OLDEST)
@pytest.mark.parametrize("script", ["nested.py", "callbacks.py", "lines.py"])
def test_same_as_faulthandler(probe, python, script):
    target = python.run(script)
    said = target.traceback()
    main = target.stacks()[target.pid]["ident"]
    settle(target)  # faulthandler may be about to say it a second time
    seen = look(probe, target).threads[target.pid]
    assert [(line, function.rpartition(".")[2]) for function, _, line in seen.frames] == \
        [(line, function.rpartition(".")[2]) for _, line, function in said[main]]


@pytest.mark.python(minimum=OLDEST)
def test_heading(probe, python):
    target = python.run("nested.py", "an argument", "b")
    seen = look(probe, target)
    assert seen.command.endswith("nested.py an argument b")
    major_minor = "%d.%d" % python.version[:2]
    assert seen.version == major_minor or \
        seen.version == "%d.%d.%d" % python.version, seen.version
    assert seen.threads[target.pid].name == "MainThread"
    assert list(seen.threads)[0] == target.pid, "the main thread comes first"


def test_threads_and_their_states(probe, python):
    target = python.run("lockwait.py")
    seen = {thread.name: thread for thread in look(probe, target).threads.values()}
    assert seen["waiter"].state[:2] == ["idle", f"waits for lock held by {seen['holder'].tid}"]
    assert seen["holder"].state[0] == "idle"
    assert seen["holder"].state[1] in ("clock_nanosleep", "select", "pselect6")  # time.sleep()
    assert "GIL" in look(probe, target).gil


def test_one_thread(probe, python):
    target = python.run("threads.py", 3, 5)
    for tid, thread in target.stacks().items():
        text = probe.read(target.pid, "threads", tid, "backtrace")
        heads = re.findall(r"^Thread (\d+) ", text, re.M)
        assert heads == [str(tid)]
        body = text[text.index("Thread "):]
        frames = re.findall(r"^  #\d+ +(.*) \((.*):(\d+)\)$", body, re.M)
        assert [(f, file, int(line)) for f, file, line in frames] == expected(thread["frames"])


def test_deep_recursion_says_what_it_cut(probe, python):
    target = python.run("recursion.py", 10000)
    tid, said = next((tid, t) for tid, t in target.stacks().items() if t["name"] == "deep")
    deep = look(probe, target).threads[tid]
    assert deep.unreadable == []
    assert deep.cut > 0 and len(deep.frames) < 10000
    assert deep.cut + len(deep.lines) - 1 >= len(said["frames"]) > 10000
    wanted = expected(said["frames"])
    lines = [i for i, line in enumerate(deep.lines) if re.search(r"\d+ frames\b", line)]
    before = sum(1 for i, line in enumerate(deep.lines)
                 if i < lines[0] and "[native]" not in line)
    assert deep.frames[:before] == wanted[:before]
    after = len(deep.frames) - before
    assert after > 0 and deep.frames[before:] == wanted[-after:], "the outermost ones are shown"


def test_deep_recursion_just_below_the_limit(probe, python):
    target = python.run("recursion.py", 100)
    tid, said = next((tid, t) for tid, t in target.stacks().items() if t["name"] == "deep")
    assert look(probe, target).threads[tid].frames == expected(said["frames"])


def test_every_interpreter_of_the_process(probe, python):
    target = python.run("subinterpreters.py")
    settle(target)
    functions = [function for thread in look(probe, target).threads.values()
                 for function, _, _ in thread.frames]
    assert {"first", "second", "park"} <= set(functions)


WITHIN = """
import os, sys, threading
try:
    import _interpreters
    def enter(source): _interpreters.exec(_interpreters.create(), source)
except ImportError:
    import _xxsubinterpreters
    def enter(source): _xxsubinterpreters.run_string(_xxsubinterpreters.create(), source)
"""
NESTED = f"""
{WITHIN}
reads, tells = os.pipe()
waits, keeps = os.pipe()
INNER = f'''
import os, threading  # which takes this for its main thread
def innermost():
    os.write({{tells}}, b"x")
    os.read({{waits}}, 1)
innermost()
'''
MIDDLE = {WITHIN.replace("import os, sys, threading", "")!r} + f'''
def middle(): enter({{INNER!r}})
middle()
'''
def outermost(): enter(MIDDLE)
for i in range(2):
    threading.Thread(target=outermost, name=f"chain-{{i}}", daemon=True).start()
    os.read(reads, 1)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.python(free_threaded=True)
def test_interpreters_within_interpreters(probe, python):
    """One thread, with the frames of all, and the name by which one of them knows it."""
    target = python.run_source(NESTED, name="nested_interpreters.py")
    settle(target)
    threads = look(probe, target).threads.values()
    assert sorted(thread.name for thread in threads) == ["MainThread", "chain-0", "chain-1"]
    for thread in threads:
        functions = [function for function, _, _ in thread.frames]
        if thread.name != "MainThread":
            assert functions[:6] == ["innermost", "<module>", "enter", "middle", "<module>", "enter"]
            assert functions[6] == "outermost"


OWN_GIL = """
import _interpreters
def outer(): _interpreters.exec(_interpreters.create("isolated"), "def busy():\\n  while True: pass\\nbusy()")
print("ready", flush=True)
outer()
"""


@pytest.mark.python(minimum=(3, 13))
def test_busy_with_a_gil_of_its_own(probe, python):
    """The thread took both GILs last."""
    target = python.run_source(OWN_GIL, name="own_gil.py")

    def seen():
        thread = look(probe, target).threads[target.pid]
        functions = [function for function, _, _ in thread.frames]
        return not thread.unreadable and functions == ["busy", "<module>", "outer", "<module>"]
    eventually(seen, what="all of its frames")


def test_event_loop(probe, python):
    target = python.run("aio.py")
    settle(target)
    assert look(probe, target).threads[target.pid].frames[0][0].endswith("select")
    check(look(probe, target), target.stacks())


@pytest.mark.python(minimum=OLDEST)
def test_folded(probe, python):
    target = python.run("threads.py", 6, 4)
    said = target.stacks()
    folded = parse_folded(probe.read(target.pid, "stacks.folded"))
    text = probe.read(target.pid, "stacks.folded")
    # a line's number may be the pid's, and 0x may be in the directory's random name
    unnumbered = re.sub(r":\d+\)", ")", text.replace(python.path(""), ""))
    assert not re.search(rf"\b{target.pid}\b|(?<!\+)0x", unnumbered)  # modules' offsets are no addresses
    assert sum(count for _, count in folded) == len(said) + 1  # and the oracle's thread
    # from the root to the leaf: the functions of each thread, in that order
    stacks = [("|".join(frames), count) for frames, count in folded]
    for thread in said.values():
        pattern = ".*".join(re.escape(f) for f, _, _ in reversed(thread["frames"]))
        assert any(re.search(pattern, line) for line, _ in stacks), thread["name"]


def test_equal_stacks_fold_together(probe, any_python):
    one, other = any_python.run("nested.py"), any_python.run("nested.py")
    settle(one)
    settle(other)  # its oracle reads only after it has said "ready"
    assert probe.read(one.pid, "stacks.folded") == probe.read(other.pid, "stacks.folded")


def test_any_offset_and_size(probe, any_python):
    """`dd bs=7`, `tail -c`, and a file that stays what its open saw."""
    target = any_python.run("threads.py", 5, 10)
    path = probe.path / str(target.pid) / "backtrace"
    with open(path, "rb", buffering=0) as file:
        whole = b""
        while True:
            piece = file.read(7)
            whole += piece
            if not piece:
                break
        file.seek(100)
        assert file.read(50) == whole[100:150]
        file.seek(len(whole) + 10)
        assert file.read(10) == b""
        target.close()
        file.seek(0)
        assert file.read(len(whole)) == whole, "a file open on a dead process reads on"
    assert parse_backtrace(whole.decode(), target.pid).count == 7


@pytest.mark.long
def test_names_of_short_lived_threads(probe, python):
    """A thread never bears the name of one that was there before it."""
    target = python.run("churn.py")
    named = []

    def met():
        for tid, thread in look(probe, target).threads.items():
            if tid > 0 and any(function == "named" for function, _, _ in thread.frames):
                assert thread.name in (f"t{tid}", ) or not re.match(r"t\d+$", thread.name)
                named.extend([tid] * (thread.name == f"t{tid}"))
        return len(named) > 20
    for _ in range(150):
        met()
    eventually(met, what="threads that have named themselves")


LATE = """
import sys
sys.modules.pop("threading", None)  # what is installed beside this interpreter may have imported it
print("ready", flush=True)
sys.stdin.readline()
import threading
threading.main_thread().name = "me"
print("there", flush=True)
sys.stdin.readline()
"""


def test_names_while_somebody_keeps_looking(probe, python):
    """Also where they looked before there were any."""
    target = python.run_source(LATE, name="late.py")
    before = parse_backtrace(probe.read(target.pid, "backtrace"), target.pid)
    assert "me" not in {t.name for t in before.threads.values()}
    target.send("go")
    target.expect("there")

    def named():
        seen = parse_backtrace(probe.read(target.pid, "backtrace"), target.pid)
        return "me" in {t.name for t in seen.threads.values()}
    eventually(named, what="the names")


def test_state_and_native_stack_are_of_one_moment(probe, python):
    """A thread shown as waiting for the GIL stands in take_gil or drop_gil, and no other does."""
    if python.source != "pyenv":
        pytest.skip("the names of static functions are not in this build")
    target = python.run("legal.py", 4)
    waiting = 0

    def look_again():
        nonlocal waiting
        for thread in look(probe, target).threads.values():
            if thread.unreadable or not thread.native:
                continue
            if "gil" in thread.state: # it may wait for the mutex with which it gives the GIL up
                assert "gil-wait" not in thread.state, thread.lines
                continue
            names = [name for _, name, _ in thread.native]
            inside = "take_gil" in names or "drop_gil" in names
            if thread.state[0] == "gil-wait" or (thread.state[0] == "idle" and inside):
                assert thread.state[0] == "gil-wait" and inside, [thread.state, *thread.lines]
                waiting += 1
        return waiting > 20
    for _ in range(100):
        look_again()
    eventually(look_again, what="threads that wait for the GIL")


def test_version_that_is_not_supported(probe):
    """Python frames are refused in words; the native ones are there all the same."""
    found = glob.glob(os.path.expanduser("~/.pyenv/versions/3.7.*/bin/python3"))
    if not found:
        pytest.skip("no CPython 3.7 is installed")
    process = subprocess.Popen([found[0], "-c", "print('ready', flush=True); input()"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        text = probe.read(process.pid, "backtrace")
        assert "\nPython 3.7, 1 thread, native frames only: " in text
        assert re.search(r"^  #\d+  _start \(.*\) \[native\]$", text, re.M)
        with pytest.raises(OSError) as raised:
            probe.read(process.pid, "threads", process.pid, "locals")
        assert raised.value.errno == errno.EOPNOTSUPP
        assert "is not supported" in probe.read(process.pid, "errors")
    finally:
        process.kill()
        process.wait()
