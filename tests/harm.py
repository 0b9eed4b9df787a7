"""What is kept of a harm to a target, and where.

A target that crashed, hangs or got a wrong result is what probefs promises never to make: the run ends
there, and leaves a directory with all that tells how it came about: the words, the core file, the
backtraces of all threads, what the target and the daemons said. It outlives the run.
"""
import contextlib
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile

ENDS_THE_RUN = {"crash", "hang", "wrong"}
STATUS = 86  # with which such a run ends
CRASHES = {-number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE,
                                  signal.SIGTRAP, signal.SIGSYS)}
GDB = 120  # seconds

expected = False  # set for a case that harms its victims itself: nothing is kept
kept = []         # (kind, words, directory)
daemons = []      # every mount.Probe that runs


def allow_core(pid):
    """Core files of that process, into its working directory where the kernel's pattern is relative."""
    if not expected:
        most = resource.RLIM_INFINITY if os.geteuid() == 0 else resource.getrlimit(resource.RLIMIT_CORE)[1]
        with contextlib.suppress(OSError):  # it has ended already
            resource.prlimit(pid, resource.RLIMIT_CORE, (most, most))


def keep(kind, words, target, pid=None):
    """Makes the directory. target: interpreters.Target, alive or not; pid: of it or the child that is meant."""
    if expected:
        return
    parent = os.environ.get("PROBEFS_TEST_KEPT") or tempfile.gettempdir()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="probefs-harm-", dir=parent))
    kept.append((kind, words, directory))
    (directory / "words").write_text(f"{kind}: {words}\n")
    shutil.copyfile(target.path_seen(target.script), directory / pathlib.Path(target.script).name)
    (directory / "target.log").write_text(target.stderr())
    for number, daemon in enumerate(daemons):
        (directory / f"daemon-{number}.log").write_text(daemon.log())
        if daemon.alive():
            _look(daemon.pid, directory, f"daemon-{number}")
    if target.process.poll() is None:
        _look(pid or target.pid, directory, "target", core=True)
    else:
        _keep_core(target, directory)


def _keep_core(target, directory):
    found = sorted(target.cwd.glob("core*"))
    if not found:
        pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
        (directory / "no-core").write_text(
            f"The target ended with {target.process.returncode} and left no core file in its working directory; "
            f"kernel.core_pattern is {pattern!r}.\n")
    for core in found:
        shutil.copyfile(core, directory / core.name)
        _gdb(directory / f"{core.name}.backtrace", target.interpreter, target.executable(), core)


def _look(pid, directory, name, core=False):
    """One that lives: as the kernel sees its threads, and as gdb does, unless it is traced."""
    with open(directory / f"{name}.threads", "w") as out, contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for file in "status", "wchan", "syscall", "stack":
                with contextlib.suppress(OSError):
                    print(f"{task.name} {file}: {(task / file).read_text()}", file=out)
    more = ["-ex", f"generate-core-file {directory}/core"] if core else []
    _gdb(directory / f"{name}.backtrace", None, "-p", pid, *more)


def _gdb(out, interpreter, *arguments):
    root = ["-iex", f"set sysroot {interpreter.root}"] if interpreter else []
    command = ["gdb", "-q", "-nx", "-batch", "-iex", "set debuginfod enabled off", *root, "-ex", "info threads",
               "-ex", "thread apply all backtrace", *map(str, arguments)]
    with open(out, "w") as file:
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=GDB)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(error, file=file)


def report():
    """Lines for a person."""
    for kind, words, directory in kept:
        yield f"harm: {kind}: {words.splitlines()[0][:300]}"
        yield f"harm: kept in {directory}: {' '.join(sorted(os.listdir(directory)))}"
