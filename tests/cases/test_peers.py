"""What the tests of pystack, py-spy and CPython's _remote_debugging ask of their readers, asked of ours: those of their
cases that no other file here has. contrib/doc/peers.md says which case answers which."""
import re
import subprocess

import pytest

from interpreters import OLDEST, eventually
from sql import settle
from stacks import parse_backtrace
from stopping import reads_input
from test_locals import function, parse


def look(probe, target):
    return parse_backtrace(probe.read(target.pid, "backtrace"), target.pid)


def functions(thread):
    return [name.rpartition(".")[2] for name, _, _ in thread.frames]


CALLS_C = """
import _thread, sys, time
_thread.start_new_thread(time.sleep, (1e6,))
print("ready")
sys.stdin.read()
"""


def test_thread_without_python_frames(probe, python):
    """A thread that the interpreter knows, and that has run nothing but C."""
    target = python.run_source(CALLS_C, name="calls_c.py")

    def asleep():
        threads = look(probe, target).threads
        return all(thread.native and thread.state[0] == "idle" for thread in threads.values()) and threads
    threads = eventually(asleep, what="threads that sleep")
    assert functions(threads.pop(target.pid)) == ["<module>"]
    (other,) = threads.values()
    assert other.frames == [] and not other.unreadable
    assert probe.read(target.pid, "threads", other.tid, "locals") == ""


AT_EXIT = """
import atexit, sys, time
atexit.register(time.sleep, 1e6)
print("ready")
"""


def test_no_frames_at_exit(probe, python):
    """The program is over, and what it has left to be called at its end is C."""
    target = python.run_source(AT_EXIT, name="at_exit.py")
    seen = eventually(lambda: target.state() == "S" and (s := look(probe, target)).threads[target.pid].native
                      and not s.threads[target.pid].frames and s, what="its end")
    assert seen.count == 1 and seen.threads[target.pid].state[0] == "idle"


MAPPED_AGAIN = """
import mmap, os, sys, sysconfig
kept, library = [], os.path.join(*map(sysconfig.get_config_var, ("LIBDIR", "INSTSONAME")))
for path in sys.executable, library:
    if os.path.exists(path):
        with open(path, "rb") as file:
            kept.append(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ))
print("ready")
sys.stdin.readline()
"""


@pytest.mark.python(minimum=OLDEST)
def test_interpreter_mapped_twice(probe, python):
    """The second one has a runtime in which nothing was ever started."""
    target = python.run_source(MAPPED_AGAIN, name="mapped_again.py")
    settle(target)
    seen = look(probe, target)
    assert functions(seen.threads[target.pid]) == ["<module>"]
    assert probe.read(target.pid, "status")


LONG = """
import sys
lines = int(sys.argv[1])
source = "def long(wait):\\n" + "    x = 1\\n" * lines + "    return wait()\\n"
names = {}
exec(compile(source, "long.py", "exec"), names)
print("ready")
names["long"](sys.stdin.readline)
"""


@pytest.mark.parametrize("lines", [1500, 20000])
def test_large_line_table(probe, python, lines):
    """Of more than a page, and of more than 64 KiB from 3.11 on."""
    target = python.run_source(LONG, lines, name="long_function.py")
    frame = "long", "long.py", lines + 2
    eventually(lambda: frame in look(probe, target).threads[target.pid].frames, what="its line")


LONG_NAMES = """
import sys
name, file, names = "f" * 1100, "/" + "x" * 1500 + ".py", {}
exec(compile(f"def {name}(wait):\\n    return wait()\\n", file, "exec"), names)
print("ready")
names[name](sys.stdin.readline)
"""


def test_long_names_are_cut(probe, python):
    target = python.run_source(LONG_NAMES, name="long_names.py")
    frame = ("f" * 1024 + "...", "/" + "x" * 1023 + "...", 2)
    eventually(lambda: look(probe, target).threads[target.pid].frames[:1] == [frame],
               what="a frame whose names are cut")


MOVES = """
import sys
def step():
    sys.stdin.readline()
def deeper():
    step()
def inner():
    step(); x = 1
    step(); x = 2
    deeper()
def outer():
    inner()
    step()
print("ready")
outer()
"""


def test_moves_on(probe, python):
    """What a look before has left in the caches is never shown in place of what is there: in the same frame, one call
    deeper, and after returns."""
    target = python.run_source(MOVES, name="moves.py")
    for names, lines in ((["step", "inner", "outer", "<module>"], [4, 8, 12, 15]),
                         (["step", "inner", "outer", "<module>"], [4, 9, 12, 15]),
                         (["step", "deeper", "inner", "outer", "<module>"], [4, 6, 10, 12, 15]),
                         (["step", "outer", "<module>"], [4, 13, 15])):
        def there():
            thread = look(probe, target).threads[target.pid]
            return (functions(thread), [line for _, _, line in thread.frames]) == (names, lines)
        eventually(lambda: there() and reads_input(target.pid), what=f"{names} at {lines}")
        for _ in range(3):
            assert there()
        target.send("on")


TRASHED = """
import ctypes, gc, os, sys
gc.disable()
def word(object, offset):
    return ctypes.c_size_t.from_address(id(object) + offset)
def main():
    items = tuple.__basicsize__
    item, null = tuple([4, 5, 6]), tuple([7, 8, 9])
    kind, no_room = tuple([1, 2, 3]), [0, 1, 2]
    keep = 5, 8
    word(item, items + 8).value = 0xba8
    word(null, items + 8).value = 0
    word(kind, 8).value = 0xde8
    word(no_room, 24).value = 0
    print("ready", flush=True)
    sys.stdin.readline()
    os._exit(0)
main()
"""


def test_trashed_objects(probe, python):
    """Pointers to nothing within values: they alone can't be read."""
    target = python.run_source(TRASHED, name="trashed.py")
    settle(target)
    text = probe.read(target.pid, "threads", target.pid, "locals")
    shown = next(names for head, names in parse(text) if names is not None and function(head) == "main")
    assert shown["item"] == "(4, <unreadable: 0xba8>, 6)"
    assert shown["null"] == "(7, <unreadable: 0x0>, 9)"
    assert re.fullmatch(r"<unreadable: 0x[0-9a-f]+>", shown["kind"])
    assert shown["no_room"] == "[<unreadable>]"
    assert shown["keep"] == "(5, 8)"


NUMPY = """
import sys
import numpy as np
def main():
    real, double = np.longdouble(1.5), np.clongdouble(1 - 2j)
    print("ready", flush=True)
    sys.stdin.readline()
main()
"""


def test_numpy_without_a_value(probe, any_python):
    """Numbers whose width depends on the machine are shown as objects."""
    if subprocess.run(any_python.command("-c", "import numpy"), capture_output=True).returncode:
        pytest.skip(f"{any_python} has no numpy")
    target = any_python.run_source(NUMPY, name="wide_numbers.py")
    settle(target)
    text = probe.read(target.pid, "threads", target.pid, "locals")
    shown = next(names for head, names in parse(text) if names is not None and function(head) == "main")
    for name in "real", "double":
        assert re.fullmatch(r"<numpy\.\w+ object at 0x[0-9a-f]+>", shown[name])


RECURSES = """
import asyncio, sys
async def rec(n):
    await (rec(n - 1) if n else asyncio.Event().wait())
async def main():
    tasks = [asyncio.create_task(rec(n), name=name) for n, name in ((3, "near"), (1600, "far"))]
    await asyncio.sleep(0)
    print("ready", flush=True)
    await asyncio.gather(*tasks)
sys.setrecursionlimit(5000)
asyncio.run(main())
"""


@pytest.mark.python(minimum=(3, 12))
def test_recursive_coroutines(probe, python):
    """The same coroutine function again and again is not taken for a circle, and of 1,600 the outermost are shown."""
    target = python.run_source(RECURSES, name="recurses.py")
    settle(target)
    tasks = {}
    for task in re.split(r"^ *Task ", probe.read(target.pid, "tasks"), flags=re.M)[1:]:
        head, *frames = task.splitlines()
        tasks[re.search(r"\((.*?)\)", head)[1]] = [line.split()[0] for line in frames]
    assert tasks["near"][:5] == ["rec"] * 4 + ["Event.wait"]
    assert tasks["far"] == ["rec"] * 256 + ["..."]
