"""Processes that live elsewhere: other pid, user and mount namespaces, other roots, executables
that are renamed or gone, children of a fork. The files say the same of them as of any other."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from interpreters import DEADLINE, eventually, interpreters
from stacks import parse_backtrace


class Inside:
    """A victim started by a wrapper such as unshare(1); the victim is the wrapper's child."""

    def __init__(self, wrapper, python, script, *args):
        self.process = subprocess.Popen(
            [*wrapper, *python.command("-u", python.path(script), *args)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"})

    def __enter__(self):
        line = self.process.stdout.readline()
        if line != "ready\n":
            self.__exit__()
            pytest.skip(f"no such namespace can be made here: {self.process.args[:4]}")
        return self

    def __exit__(self, *_):
        for pid in self.children():
            os.kill(pid, 9)
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def children(self):
        pid = self.process.pid
        return [int(child) for child in
                pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    @property
    def pid(self):
        return self.children()[0] if self.children() else self.process.pid


def functions(seen, tid):
    return [function.rpartition(".")[2] for function, _, _ in seen.threads[tid].frames]


@pytest.mark.parametrize("wrapper", [
    ["unshare", "--pid", "--fork", "--mount-proc"],
    ["unshare", "--user", "--map-root-user"],
    ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--net", "--ipc"],
], ids=["pid", "user", "container"])
def test_other_namespaces(probe, python, wrapper):
    with Inside(wrapper, python, "threads.py", 3, 5) as inside:
        eventually(lambda: os.path.isdir(probe.path / str(inside.pid)), DEADLINE, "its directory")
        seen = parse_backtrace(probe.read(inside.pid, "backtrace"), inside.pid)
        tids = {int(tid) for tid in os.listdir(f"/proc/{inside.pid}/task")}
        assert set(seen.threads) == tids, "threads by the numbers of the reader's namespace"
        named = {thread.name: tid for tid, thread in seen.threads.items()}
        assert {"MainThread", "worker-0", "worker-1", "worker-2", "oracle"} <= set(named)
        assert functions(seen, inside.pid) == ["forever", "park", "<module>"]
        assert functions(seen, named["worker-0"]).count("descend") == 5
        status = probe.read(inside.pid, "threads", named["worker-1"], "status")
        assert f"Tid: {named['worker-1']}\n" in status and "State: idle, futex\n" in status


def test_a_busy_one_in_another_pid_namespace(probe, python):
    """The GIL's holder must be found by its number here, not by the one it knows itself by."""
    with Inside(["unshare", "--pid", "--fork", "--mount-proc"], python, "spinner.py") as inside:
        eventually(lambda: os.path.isdir(probe.path / str(inside.pid)), DEADLINE, "its directory")

        def held():
            seen = parse_backtrace(probe.read(inside.pid, "backtrace"), inside.pid)
            marked = any(thread.unreadable for thread in seen.threads.values())
            return not marked and any("gil" in thread.state for thread in seen.threads.values())

        for _ in range(10):
            eventually(held, what="the holder of the GIL")


@pytest.mark.parametrize("how", ["renamed", "deleted"])
def test_executable_gone(probe, how):
    """Found by its memory: neither the name of the executable nor the file is needed."""
    python = next((i for i in interpreters() if i.source == "debian"), None)
    if python is None:
        pytest.skip("no static python executable")
    with tempfile.TemporaryDirectory() as directory:
        copy = os.path.join(directory, "service")
        shutil.copy(os.path.realpath(python.executable), copy)
        process = subprocess.Popen([copy, "-u", python.path("nested.py")], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, cwd="/",
                                   env={"PATH": "/usr/bin:/bin", "PYTHONHOME": "/usr"})
        try:
            assert process.stdout.readline() == "ready\n"
            if how == "renamed":
                os.rename(copy, os.path.join(directory, "x"))
            else:
                os.unlink(copy)
            assert str(process.pid) in os.listdir(probe.path)
            def seen():
                return parse_backtrace(probe.read(process.pid, "backtrace"), process.pid)
            eventually(lambda: functions(seen(), process.pid)[0] == "forever", what="the stack")
            assert seen().threads[process.pid].name == "MainThread"
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


FORKED = """
import os, threading, time
def child():
    time.sleep(100)
def other():
    time.sleep(100)
threading.Thread(target=other, daemon=True).start()
pid = os.fork()
if pid == 0:
    child()
print(pid, flush=True)
print("ready", flush=True)
time.sleep(100)
"""


def test_child_of_a_fork(probe, python):
    """A fork's child has one thread, the one that forked, under a new number."""
    target = python.run_source(FORKED, name="forked.py", ready=False)
    child = int(target.readline())
    target.expect("ready")
    try:
        eventually(lambda: functions(parse_backtrace(probe.read(child, "backtrace"), child),
                                     child)[:1] == ["child"], DEADLINE, "the child's stack")
        seen = parse_backtrace(probe.read(child, "backtrace"), child)
        assert list(seen.threads) == [child]
        assert functions(seen, child) == ["child", "<module>"]
    finally:
        os.kill(child, 9)
