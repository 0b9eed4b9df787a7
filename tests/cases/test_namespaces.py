"""Processes that live elsewhere: other pid, user and mount namespaces, other roots, executables
that are renamed or gone, children of a fork. The files say the same of them as of any other."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from commands import Commands
from interpreters import DEADLINE, eventually, interpreters, patience
from stacks import parse_backtrace


# a container as an ordinary user makes one: all namespaces, no rights, pid 1
ROOTLESS = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "bwrap", "--unshare-all", "--as-pid-1",
            "--die-with-parent", "--dev-bind", "/", "/", "--proc", "/proc", "--"]


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


def test_rootless_container(probe, any_python):
    with Inside(ROOTLESS, any_python, "threads.py", 3, 5) as inside:
        eventually(lambda: os.path.isdir(probe.path / str(inside.pid)), DEADLINE, "its directory")
        seen = parse_backtrace(probe.read(inside.pid, "backtrace"), inside.pid)
        assert functions(seen, inside.pid) == ["forever", "park", "<module>"]
        commands = Commands(probe, inside.pid)
        assert commands.value("(__import__('os').getpid(), __import__('os').getuid())") == "(1, 65534)"
        commands.detach()
        assert commands.state() == "none"


@pytest.fixture
def pod():
    """Containers that share a pid namespace, as those of a pod may: pod() is what runs a command in it; with words of
    shell, in a container with mounts of its own, which these words make; more: options of unshare(1)."""
    if os.geteuid():
        pytest.skip("making pods needs root")
    first = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sleep", "1000"])
    children = pathlib.Path(f"/proc/{first.pid}/task/{first.pid}/children")
    pid = int(eventually(lambda: children.read_text().split(), what="the pod")[0])

    def within(words=None, *more):
        enter = ["nsenter", f"--pid=/proc/{pid}/ns/pid"]
        return enter if words is None else [*enter, "unshare", "--mount", *more, "bash", "-c", f'{words} && exec "$@"',
                                            "bash"]
    try:
        yield within
    finally:
        first.kill()
        first.wait(patience(DEADLINE))


@pytest.fixture
def shared_mountpoint(tmp_path):
    """A directory in which what other mount namespaces mount is to be seen."""
    subprocess.run(["mount", "--bind", tmp_path, tmp_path], check=True)
    subprocess.run(["mount", "--make-shared", tmp_path], check=True)
    (tmp_path / "probe").mkdir()
    yield tmp_path / "probe"
    subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.parametrize("users", [[], ["--user", "--map-root-user"]], ids=["root", "user"])
def test_pod(probe, any_python, pod, shared_mountpoint, users):
    """A daemon in one container of a pod sees what runs in another, by the pod's numbers, and nothing else."""
    outside = any_python.run("nested.py")
    private, proc = "mount -t tmpfs none /var/tmp", "mount -t proc none /proc"
    with Inside(pod(private, *users), any_python, "threads.py", 3, 5) as inside, \
         probe.mount(at=shared_mountpoint, within=pod(f"{private} && {proc}", "--propagation", "unchanged")):
        pid = int(pathlib.Path(f"/proc/{inside.pid}/status").read_text().partition("\nNSpid:\t")[2].split()[1])

        def run(script):
            """What it says to a shell of the pod."""
            return subprocess.run([*pod(), "bash", "-ec", script], cwd=shared_mountpoint, capture_output=True,
                                  text=True, timeout=patience(DEADLINE), check=True).stdout
        assert pid != outside.pid
        eventually(lambda: run("echo [0-9]*") == f"{pid}\n", what="that one alone")
        assert functions(parse_backtrace(run(f"cat {pid}/backtrace"), pid), pid) == ["forever", "park", "<module>"]
        says = run(f"echo \"__import__('os').listdir('/var/tmp')\" > {pid}/eval; cat {pid}/eval")
        assert says == "[]\n"
        run(f"echo detach > {pid}/ctl")
        assert run(f"cat {pid}/ctl").startswith("Agent: none\n")


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
