"""Where Yama restricts ptrace: who may write. This kernel need not have it: what the daemon reads of it stands in
/proc/sys/kernel, and what the kernel would refuse the daemon itself, a filter does."""
import errno
import os
import pathlib
import subprocess

import pytest

import interpreters as machine
from agents import QUIET, library
from commands import Commands
from mount import REPOSITORY, build
from test_access import DENIED, answer, run_as

pytestmark = pytest.mark.attack

SECCOMP_EXEC = REPOSITORY / "tests" / "seccomp-exec"
SETTING = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
# starts a program, and then does what is written to it, as its ancestor: prints what came of it
PARENT = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert child.stdout.readline() == b"ready\\n"
print(child.pid, flush=True)
for path in iter(sys.stdin.readline, ""):
    try:
        with open(path.strip(), "r+b", 0) as file:
            file.write(b"6 * 7\\n")
            print(file.read(1000).decode().strip(), flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
child.kill()
"""


@pytest.fixture
def yama(tmp_path):
    """Sets it, as far as it is read: yama(1)."""
    if not machine.alone() or os.geteuid():
        pytest.skip("covering /proc/sys wants namespaces of its own (tests/alone, as root)")
    (tmp_path / "yama").mkdir()
    for name in "core_pattern", "perf_event_paranoid", "pid_max", "randomize_va_space":
        (tmp_path / name).write_text(pathlib.Path("/proc/sys/kernel", name).read_text())
    tmp_path.chmod(0o755)
    subprocess.run(["mount", "--bind", tmp_path, "/proc/sys/kernel"], check=True)
    yield lambda scope: SETTING.write_text(f"{scope}\n")
    subprocess.run(["umount", "/proc/sys/kernel"], check=True)


def refused(user, mount, pid, name, text):
    """The errno of a user's write that must fail, and the last words of `errors`."""
    directory = mount.path / str(pid)
    error = answer(run_as(user, "bash", "-c", 'echo "$1" > "$2"', "bash", text, directory / name))
    assert error is not None, f"{name} took {text!r}"
    return error, run_as(user, "cat", directory / "errors").stdout.splitlines()[-1]


@pytest.mark.parametrize("scope, whom", [(1, "only an ancestor control this process"),
                                         (2, "only root control processes"), (3, "nobody control processes")])
def test_writers(probe, any_python, nobody, yama, scope, whom):
    """Looking is as it was; a user writes to their own processes as far as they could attach a debugger."""
    mounted = probe.mount("allow_other")
    target = any_python.run("nested.py", user=nobody)
    yama(scope)
    assert "(MainThread) [" in run_as(nobody, "cat", mounted.path / str(target.pid) / "backtrace").stdout
    for name, text in [("eval", "6 * 7"), ("ctl", "attach"), ("breakpoints", "log nested.py:1")]:
        error, words = refused(nobody, mounted, target.pid, name, text)
        assert error == errno.EPERM and f"Yama (kernel.yama.ptrace_scope is {scope}) lets {whom}: " in words, words
        assert "`import probing`" in words and "PROBING=1" in words and ("sudo" in words) == (scope < 3), words
    commands = Commands(mounted, target.pid)
    assert commands.state() == "none"
    assert commands.eval("6 * 7") == "42\n"  # the kernel judges of the daemon's own user
    commands.detach()


@pytest.mark.parametrize("scope", [1, 2])
def test_ancestor(probe, any_python, nobody, yama, scope):
    mounted = probe.mount("allow_other")
    yama(scope)
    parent = any_python.run_source(PARENT, *any_python.command("-u", any_python.path("nested.py")), user=nobody,
                                   name="parent_of_yama.py", ready=False)
    pid = int(parent.readline())
    parent.send(str(mounted.path / str(pid) / "eval"))
    assert parent.readline() == ("42" if scope == 1 else "Operation not permitted"), parent.stderr()
    error, words = refused(nobody, mounted, pid, "eval", "6 * 7")
    assert error == errno.EPERM and "Yama" in words


def test_invited(probe, any_python, nobody, yama):
    """A program that imports probing lets its user write whatever Yama says of debuggers, and only them."""
    mounted = probe.mount("allow_other")
    _, inside = library(any_python)
    target = any_python.run_source("import probing, sys\nprint('ready')\nsys.stdin.read()\n", user=nobody,
                                   name="invites_of_yama.py", env={"PYTHONPATH": inside, **QUIET})
    yama(3)
    path = mounted.path / str(target.pid) / "eval"
    said = run_as(nobody, "bash", "-c", 'echo "6 * 7" > "$1" && cat "$1"', "bash", path)
    assert said.stdout == "42\n", said
    said = run_as("daemon", "bash", "-c", 'echo "6 * 7" > "$1" && cat "$1"', "bash", path)
    assert answer(said) in DENIED | {errno.ENOENT}


@pytest.mark.parametrize("scope", [1, 2, 3])
def test_daemon_of_a_user(nobody, yama, scope):
    """What the kernel refuses a user's daemon then, --check says by its name."""
    yama(scope)
    filtered = ["/usr/bin/python3", "-", "EPERM", "ptrace-others,process_vm_readv"]
    done = run_as(nobody, "env", "ASAN_OPTIONS=detect_leaks=0", *filtered, build() / "fs" / "probefs", "--check",
                  stdin=SECCOMP_EXEC.read_text())
    assert done.stderr == ""
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    for name in "Read", "Act", "Yama":
        assert said[name].startswith(f"no: ptrace is refused: kernel.yama.ptrace_scope is {scope}; "), said
        assert ("after a restart with a lower one" if scope == 3 else "or set it to 0") in said[name]
    assert done.returncode == 1
