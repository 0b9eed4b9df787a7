"""cores/<name>/: core files, against the same process read just before it was dumped."""
import re
import resource
import signal

import pytest

from cores import dumped, gcore, root_of, show
from sql import ask, rows, settle
from stacks import without_times

CRASH = """
import ctypes, os, signal, threading, time

def die(how):
    words = ["it", how]
    if how == "segv":
        ctypes.string_at(16)
    elif how == "kill":
        signal.pthread_kill(threading.get_ident(), signal.SIGBUS)
    os.abort()

def idle():
    ready.release()
    time.sleep(1000)

ready = threading.Semaphore(0)
threading.Thread(target=idle, name="idler", daemon=True).start()
ready.acquire()
print("ready", flush=True)
how, where = input().split()
if where == "thread":
    threading.Thread(target=die, args=(how,), name="dies").start()
    time.sleep(1000)
die(how)
"""


def body(text):
    """Of a backtrace: what stands behind its head, without what only a living process has."""
    return without_times(text).partition("\n\n")[2]


def status(top):
    return dict(line.split(": ", 1) for line in (top / "status").read_text().splitlines())


def table(top, name):
    return rows((top / "tables" / f"{name}.csv").read_text())


class Seen:
    """What the files of a directory say that a core file has too."""

    def __init__(self, top, version):
        files = ["backtrace", "stacks.folded", "stacks.python.folded", "globals/__main__"]
        files += [str(path.relative_to(top)) for path in (top / "threads").rglob("locals")]
        if version >= (3, 12):
            files.append("tasks")
        self.texts = {file: without_times((top / file).read_text()) for file in files}
        self.tables = {name: table(top, name) for name in ("locals", "modules", "backtrace")}
        self.threads = {row["tid"]: (row["thread"], row["state"], row["wchan"], row["depth"], row["interpreter"])
                        for row in table(top, "threads")}
        self.libraries = {row["path"] for row in table(top, "maps") if ".so" in row["path"]}
        self.status = {key: value for key, value in status(top).items()
                       if key in ("Pid", "PPid", "Python", "Threads", "GilHolder", "PythonThreads", "Interpreters")}


def threads_of(text):
    """{thread: its lines} of a backtrace, without the words in brackets."""
    return dict(re.fullmatch(r"Thread (\d+ \([^\n]*?\)) \[[^\n]*\](\n.*)", part, re.S).groups()
                for part in body(text).rstrip("\n").split("\n\n"))


@pytest.mark.long
def test_as_it_lived(probe, python, tmp_path):
    target = python.run("fixed.py")
    settle(target)
    before = Seen(probe.path / str(target.pid), python.version)

    path, lost = gcore(target, tmp_path)
    if not lost:
        mounted, top = show(probe, f"core={path}")
        now = Seen(top, python.version)
        assert body(now.texts["backtrace"]) == body(before.texts["backtrace"])
        del now.texts["backtrace"]
        assert now.texts == {name: before.texts[name] for name in now.texts}
        assert (now.tables, now.threads, now.status) == (before.tables, before.threads, before.status)
        assert before.libraries <= now.libraries
        said = status(top)
        assert said["Signal"] == "none, it was dumped alive" and "Truncated" not in said and "Missing" not in said

    target.signal(signal.SIGXCPU)
    mounted, top = show(probe, f"core={dumped(target)}", *root_of(target))
    now = Seen(top, python.version)
    assert threads_of(now.texts["backtrace"]) == threads_of(before.texts["backtrace"])
    del now.texts["backtrace"]
    assert now.texts == {name: before.texts[name] for name in now.texts}
    assert (now.tables, now.status) == (before.tables, before.status)
    before.threads[str(target.pid)] = ("MainThread", "faulted", "SIGXCPU", *before.threads[str(target.pid)][3:])
    assert now.threads == before.threads


@pytest.mark.harms
@pytest.mark.parametrize("how, where, died", [("segv", "thread", "SIGSEGV at 0x10 (nothing is mapped there)"),
                                                ("abort", "main", "SIGABRT"), ("kill", "thread", "SIGBUS")])
def test_died(probe, any_python, how, where, died):
    look_at_dead(probe, any_python, how, where, died)


@pytest.mark.long
@pytest.mark.harms
def test_died_under_every_version(probe, python):
    look_at_dead(probe, python, "segv", "thread", "SIGSEGV at 0x10 (nothing is mapped there)")


def look_at_dead(probe, python, how, where, died):
    target = python.run_source(CRASH, name="crash_of_cores.py")
    resource.prlimit(target.pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    target.send(f"{how} {where}")
    path = dumped(target)
    mounted, top = show(probe, f"core={path}", *root_of(target))
    name = "dies" if where == "thread" else "MainThread"
    said = status(top)
    assert said["Signal"] == died and said["Pid"] == str(target.pid)
    text = (top / "backtrace").read_text()
    assert f"\nDied of {died} in thread {said['Faulted']}\n" in text
    first = body(text).partition("\n\n")[0]
    assert first.startswith(f"Thread {said['Faulted']} ({name}) [{died}"), first
    frames = re.findall(r"^  #\d+  (\w+) \((.*):(\d+)\)$", first, re.M)
    line = {"segv": "ctypes.string_at(16)", "abort": "os.abort()", "kill": "signal.pthread_kill"}[how]
    number = 1 + next(n for n, text in enumerate(CRASH.splitlines()) if line in text)
    assert ("die", target.path("crash_of_cores.py"), str(number)) in frames
    native = re.findall(r"^  #\d+  (\S+) \(.*\) \[native\]$", first, re.M)
    assert native and "native frames" not in first
    assert f"Thread {target.pid} (MainThread) [" in text and " (idler) [" in text
    (row,) = ask(top / "query", "SELECT value FROM locals WHERE name = 'words'")
    assert row["value"] == f"['it', '{how}']"
    (row,) = ask(mounted.path / "all" / "query", f"SELECT thread FROM threads WHERE pid = {target.pid} AND state = 'faulted'")
    assert row["thread"] == name
