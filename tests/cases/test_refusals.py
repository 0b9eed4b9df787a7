"""Where nobody can get in, or it isn't certain: the write fails with words, and the target goes on as
if nobody had tried. Where it only looks so, an agent gets in."""
import errno
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from commands import Commands, Refused
from interpreters import Interpreter, eventually, interpreters, patience
from stopping import reads_input
from victims import Victim

SECCOMP_EXEC = str(pathlib.Path(__file__).resolve().parent.parent / "seccomp-exec")
FORBIDDEN = ["memfd_create", "clone3", "clone", "clone,clone3", "socketpair", "sendmsg", "recvmsg",
             "tgkill", "ppoll"]

pytestmark = pytest.mark.python(minimum=(3, 10))


def refused(commands):
    """The error of an attach that must fail; with words."""
    with pytest.raises(Refused) as raised:
        commands.attach()
    assert raised.value.words.strip(), "it says why"
    return raised.value


def works(commands):
    """An agent is there, runs code, and goes."""
    commands.attach()
    assert commands.eval("6 * 7") == "42\n"
    commands.detach()


def works_or_refuses(commands):
    """The error, or None."""
    try:
        works(commands)
    except Refused as error:
        assert error.words.strip()
        return error
    return None


def test_stopped_by_a_signal(probe, python):
    with Victim(python, "sums, 4 threads") as victim:
        before = victim.footprint()
        commands = Commands(probe, victim.pid)
        victim.target.signal(signal.SIGSTOP)
        eventually(lambda: set(victim.target.states().values()) == {"T"}, what="the stop")
        error = refused(commands)
        assert error.errno == errno.ETIMEDOUT and "stop" in error.words
        eventually(lambda: set(victim.target.states().values()) == {"T"}, what="it stays stopped")
        victim.target.signal(signal.SIGCONT)
        victim.judge()
        eventually(lambda: not victim.footprint().leaked(before), what="all to be as before")
        works(commands)
        victim.end()


def test_stops_come_and_go(probe, any_python):
    """A shell's Ctrl-Z and fg while an agent comes and goes."""
    with Victim(any_python, "sums") as victim:
        commands = Commands(probe, victim.pid)
        script = f"while kill -STOP {victim.pid}; do sleep 0.02; kill -CONT {victim.pid}; sleep 0.02; done"
        with subprocess.Popen(["sh", "-c", script], stderr=subprocess.DEVNULL) as shell:
            try:
                for _ in range(20):
                    try:
                        commands.attach()
                        commands.detach()
                    except Refused as error:
                        assert error.errno in {errno.ETIMEDOUT, errno.EBUSY}, error
            finally:
                shell.kill()
        victim.target.signal(signal.SIGCONT)
        victim.judge()
        works(commands)
        victim.end()


@pytest.mark.parametrize("debugger", ["gdb", "strace"])
def test_already_traced(probe, any_python, debugger):
    if not shutil.which(debugger):
        pytest.skip(f"{debugger} is not installed")
    with Victim(any_python, "idle") as victim:
        commands = Commands(probe, victim.pid)
        arguments = {"gdb": ["-q", "-nx", "-p", str(victim.pid), "-ex", "echo it is there\\n", "-ex", "continue"],
                     "strace": ["-f", "-o", "/dev/null", "-p", str(victim.pid)]}
        tracer = subprocess.Popen([debugger, *arguments[debugger]], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                  env={**os.environ, "DEBUGINFOD_URLS": ""})
        try:
            if debugger == "gdb":  # one that is ended while it attaches leaves the process stopped
                assert any(line.endswith("it is there\n") for line in tracer.stdout)
            status = pathlib.Path(f"/proc/{victim.pid}/status")
            eventually(lambda: f"TracerPid:\t{tracer.pid}\n" in status.read_text(), what="the tracer")
            error = refused(commands)
            assert error.errno == errno.EBUSY and str(tracer.pid) in error.words
        finally:
            tracer.terminate()
            tracer.communicate(timeout=patience(30))
        eventually(lambda: "TracerPid:\t0\n" in status.read_text(), what="the tracer's going")
        victim.judge()
        works(commands)
        victim.end()


@pytest.mark.parametrize("names", FORBIDDEN)
@pytest.mark.parametrize("action", ["kill", "EPERM", "ENOSYS"])
def test_seccomp(probe, any_python, action, names):
    """A filter that kills at what an injection or an agent needs must never be met."""
    within = [sys.executable, SECCOMP_EXEC, action, names]
    with Victim(any_python, "sums", within=within) as victim:
        before = victim.footprint()
        error = works_or_refuses(Commands(probe, victim.pid))
        victim.judge()
        eventually(lambda: not victim.footprint().leaked(before), what="all to be as before")
        if error:
            assert error.errno == errno.EPERM and "seccomp" in error.words, error
        if names == "memfd_create" or (names, action) == ("clone,clone3", "kill"):
            assert error
        if (names, action) == ("clone3", "ENOSYS"):  # what containers do: clone() serves as well
            assert error is None
        victim.end()


@pytest.mark.parametrize("by", ["EPERM ptrace", "ENOSYS ptrace", "EPERM ptrace-others"])
def test_daemon_that_may_not_trace(probe, by):
    """What refuses is named, instead of a debugger that isn't there or a thread that didn't stop; reading goes on."""
    mounted = probe.mount(within=[sys.executable, SECCOMP_EXEC, *by.split()])
    for python in interpreters()[-1:] + tuple(i for i in interpreters() if i.source == "debian"):
        with Victim(python, "sums") as victim:
            before = victim.footprint()
            error = refused(Commands(mounted, victim.pid))
            assert error.errno == errno.EPERM and "debugger" not in error.words, error
            assert error.words.count("ptrace is refused: a seccomp filter refuses it; in a container") == 1, error
            assert "import probing" in error.words
            assert not victim.footprint().leaked(before)
            assert "(MainThread) [" in mounted.read(victim.pid, "backtrace")
            victim.judge()
            victim.end()


SMALL_FILES = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, getattr(signal, sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("disposition", ["SIG_DFL", "SIG_IGN"])  # of a program that embeds Python; python's own
def test_small_files_only(probe, any_python, disposition):
    """With `ulimit -f` a file that grows beyond it costs a program its life."""
    target = any_python.run_source(SMALL_FILES, disposition)
    commands = Commands(probe, target.pid)
    error = refused(commands)
    assert error.errno == errno.EFBIG and "ulimit -f" in error.words and "prlimit --pid" in error.words
    resource.prlimit(target.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    commands.attach()
    resource.prlimit(target.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    assert commands.eval("6 * 7") == "42\n"
    said = commands.detach()
    assert "the library stays: " in said and "ulimit -f" in said
    assert target.process.poll() is None


@pytest.mark.parametrize("how", ["noexec", "read-only", "pid", "user", "container", "net"])
def test_other_namespaces(probe, python, how):
    wrapper = {
        "noexec": ["unshare", "--mount", "sh", "-c",
                   "mount -t tmpfs -o noexec t /dev/shm && mount -o remount,noexec,bind /tmp "
                   "2>/dev/null; exec \"$@\"", "sh"],
        "read-only": ["unshare", "--mount", "sh", "-c", "mount --bind / / && mount -o "
                      "remount,ro,bind / && exec chroot / \"$@\"", "sh"],
        "pid": ["unshare", "--pid", "--fork", "--mount-proc"],
        "user": ["unshare", "--user", "--map-root-user"],
        "container": ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc",
                      "--net", "--ipc"],
        "net": ["unshare", "--net"],
    }[how]
    if how in {"noexec", "read-only"} and os.geteuid():
        pytest.skip("mounting needs root")
    tried = subprocess.run([*wrapper, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no such namespace can be made here: {tried.stderr[-200:]}")
    with Victim(python, "sums", within=wrapper) as victim:
        before = victim.footprint()
        eventually(lambda: os.path.isdir(probe.path / str(victim.pid)), what="its directory")
        commands = Commands(probe, victim.pid)
        if how == "read-only" and not os.path.isdir(python.root / "proc/self"):
            assert refused(commands).errno == errno.EACCES, "neither /proc nor a place for a file"
        else:
            works(commands)
        victim.judge()
        eventually(lambda: not victim.footprint().leaked(before), what="all to be as before")
        victim.end()


STATIC = """
#include <Python.h>
int main(int argc, char **argv) { return Py_BytesMain(argc, argv); }
"""


@pytest.fixture(scope="module")
def static_python(tmp_path_factory):
    """A CPython that is one file with its C library, as embedded systems have it."""
    debian = next((i for i in interpreters() if i.source == "debian"), None)
    if not debian or not shutil.which("cc"):
        pytest.skip("wants Debian's python and a C compiler")
    directory = tmp_path_factory.mktemp("static")
    directory.chmod(0o755)
    minor = "%d.%d" % debian.version[:2]
    archive = f"/usr/lib/python{minor}/config-{minor}-x86_64-linux-gnu/libpython{minor}.a"
    (directory / "main.c").write_text(STATIC)
    program = directory / "python-static"
    done = subprocess.run(["cc", "-static", "-o", program, directory / "main.c",
                           f"-I/usr/include/python{minor}", archive, "-lexpat", "-lz", "-lm"],
                          capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no static python can be linked: {done.stderr.strip().splitlines()[-1]}")
    return Interpreter("static", debian.version, str(program))


def test_without_a_loader(probe, static_python):
    """A fully static executable has no dlopen() that could be used, and exports nothing."""
    target = static_python.run_source(
        "import sys\nprint('ready')\nfor line in sys.stdin: print(eval(line))\n",
        env={"PYTHONHOME": "/usr"})
    error = refused(Commands(probe, target.pid))
    assert error.errno == errno.EOPNOTSUPP
    target.send("6 * 7")
    target.expect("42")


def test_another_c_library(probe):
    """One that is called as musl's is: it is looked at, and an agent refused, before anything is touched."""
    debian = next((i for i in interpreters() if i.source == "debian"), None)
    libc = next((line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines()
                 if "/libc.so.6" in line), None)
    loader = "/lib64/ld-linux-x86-64.so.2"
    if not debian or not libc:
        pytest.skip("wants Debian's python, and its own C library")
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        shutil.copy(libc, os.path.join(directory, "libc.musl-x86_64.so.1"))
        os.symlink("libc.musl-x86_64.so.1", os.path.join(directory, "libc.so.6"))
        process = subprocess.Popen(
            [loader, "--library-path", directory, debian.executable, "-uc",
             "print('ready')\nfor line in __import__('sys').stdin: print(eval(line))"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == "ready\n"
            assert "libc.musl" in pathlib.Path(f"/proc/{process.pid}/maps").read_text()
            assert "\nSupported: yes\n" in probe.read(process.pid, "status")
            eventually(lambda: reads_input(process.pid), what="that it reads")  # and maps nothing more
            before = pathlib.Path(f"/proc/{process.pid}/maps").read_text()
            for name, text in [("ctl", "attach\n"), ("eval", "6 * 7\n"), ("breakpoints", "log a.py:1\n")]:
                number, words = Commands(probe, process.pid).refused(name, text)
                assert number == errno.EOPNOTSUPP, words
                assert "its C library is musl: an agent needs glibc 2.34 or later" in words, words
            assert pathlib.Path(f"/proc/{process.pid}/maps").read_text() == before
            process.stdin.write("6 * 7\n")
            process.stdin.flush()
            assert process.stdout.readline() == "42\n"
        finally:
            process.kill()
            process.communicate()


def test_while_threading_is_imported(probe, python):
    """What others see of a module meanwhile has nothing in it yet."""
    target = python.run_source(
        "import sys, types\nsys.modules['threading'] = types.ModuleType('threading')\n"
        "print('ready')\nfor line in sys.stdin: print(eval(line))\n")
    works(Commands(probe, target.pid))
    target.send("vars(sys.modules['threading'])['__name__']")
    target.expect("threading")


def test_exiting(probe, python):
    """A program ends while an agent comes: neither waits for the other, nor fails by it."""
    for i in range(6):
        with Victim(python, "sums") as victim:
            commands = Commands(probe, victim.pid)
            if i % 2:
                commands.attach()
            script = f"while echo attach > {commands.directory}/ctl; do :; done"
            with subprocess.Popen(["bash", "-c", script], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as shell:
                time.sleep(0.002 * i)
                victim.end()
                shell.wait(patience(30))
            with pytest.raises(OSError) as raised:
                commands.attach()
            assert raised.value.errno in {errno.ENOENT, errno.ESRCH}
