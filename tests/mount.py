"""One running daemon and its mount, for a test."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import harm
from interpreters import eventually, patience, written

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# the mode that all mounts are in, unless a case says its own
CONTAIN = [f"contain={os.environ['PROBEFS_TEST_CONTAIN']}"] if "PROBEFS_TEST_CONTAIN" in os.environ else []
SANITIZER = re.compile(r"(Address|Leak|Memory|Thread|UndefinedBehavior)Sanitizer|runtime error:")


def build():
    return pathlib.Path(os.environ.get("PROBEFS_BUILD", REPOSITORY / "build")).resolve()


class Probe:
    """options: for -o; at: an empty directory to mount on; user: who runs the daemon; within: a command that runs
    it."""

    def __init__(self, *options, at=None, user=None, within=()):
        self.within = list(within)
        self.executable = build() / "fs" / "probefs"
        assert self.executable.exists(), f"{self.executable} is not built"
        self.options = options
        self.user = user
        self.extra = []  # further mounts, closed after each test
        self.closed = False
        self._own = at is None
        self.path = pathlib.Path(at or tempfile.mkdtemp(prefix="probefs-mount-"))
        if self._own and user:
            shutil.chown(self.path, user, None)
        self._log = tempfile.TemporaryFile()
        harm.daemons.append(self)
        self.start()

    def start(self):
        arguments = [*self.within, str(self.executable), "-f"]
        options = [*self.options, *CONTAIN] if not any("contain" in o for o in self.options) else self.options
        if options:
            arguments += ["-o", ",".join(options)]
        who = {}
        if self.user:
            import pwd
            entry = pwd.getpwnam(self.user)
            who = dict(user=entry.pw_uid, group=entry.pw_gid, extra_groups=[])
        self.process = subprocess.Popen(
            [*arguments, str(self.path)], stdin=subprocess.DEVNULL, stdout=self._log,
            stderr=self._log, cwd="/", **who,
            env={"UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
                 # who may not ptrace can't look for leaks
                 "ASAN_OPTIONS": f"detect_leaks={0 if self.within else 1}", **os.environ})
        try:
            eventually(lambda: self.process.poll() is not None or os.path.ismount(self.path), 20,
                       "the mount")
            assert self.process.poll() is None, f"the daemon said: {self.log()}"
        except BaseException:
            self.close(check=False)
            raise

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def log(self):
        """What the daemon wrote to its standard output and error."""
        return written(self._log).decode(errors="replace")

    def children(self):
        """The pids of its child processes, and what they are called: {pid: name}."""
        found = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):  # a thread's list misses some while another one ends
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                name, _, fields = (process / "stat").read_text().partition("(")[2].rpartition(")")
                if int(fields.split()[1]) == self.pid:
                    found[int(process.name)] = name
        return found

    def owners(self):
        """The pids of its processes that read others (-o contain)."""
        return [pid for pid, name in self.children().items() if name == "probefs-owner"]

    def read(self, *parts, timeout=30):
        """The text of a file below the mount, as `cat` reads it: OSError where open or read
        fails, AssertionError where it hangs (a hanging reader can only be killed from outside)."""
        path = self.path.joinpath(*map(str, parts))
        cat = subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={"PATH": os.environ["PATH"], "LC_ALL": "C"})
        try:
            out, err = cat.communicate(timeout=patience(timeout))
        except subprocess.TimeoutExpired:
            cat.kill()
            raise AssertionError(f"cat {path} hung for {timeout} s") from None
        if cat.returncode:
            words = err.decode().strip().rpartition(": ")[2]
            number = next((n for n in range(1, 134) if os.strerror(n) == words), 0)
            raise OSError(number, words, str(path))
        return out.decode()

    def mount(self, *options, **more):
        """A further daemon with its own mount, closed at the end of the test."""
        other = Probe(*options, **more)
        self.extra.append(other)
        return other

    def kill(self):
        """kill -9, as at the worst moment; the dead mount is removed."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(patience(10))
        self._unmount(lazy=True)

    def _unmount(self, lazy=False):
        flags = ["-l"] if lazy else []
        tool = ["umount", *flags] if os.geteuid() == 0 else \
            ["fusermount3", "-u", *(["-z"] if lazy else [])]
        return subprocess.run([*tool, str(self.path)], capture_output=True).returncode == 0

    def close(self, check=True):
        """Unmounts and ends it; asserts that it lived until now, and ended in peace."""
        if self.closed:
            return
        self.closed = True
        harm.daemons.remove(self)
        for other in self.extra:
            other.close(check)
        self.extra.clear()
        lived = self.alive()
        if os.path.ismount(self.path) or not lived:
            end = time.monotonic() + 5
            while not self._unmount() and os.path.ismount(self.path) and time.monotonic() < end:
                time.sleep(0.05)
        try:
            self.process.wait(patience(5))
        except subprocess.TimeoutExpired:
            # a mount namespace made meanwhile, of somebody's container, may hold a copy of the mount
            self.process.terminate()
        try:
            self.process.wait(patience(10))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(patience(30))
            self._unmount(lazy=True)
        if self._own:
            try:
                self.path.rmdir()
            except OSError:
                self._unmount(lazy=True)
                self.path.rmdir()
        log = self.log()
        self._log.close()
        if check:
            assert lived, f"the daemon had died ({self.process.returncode}): {log}"
            assert self.process.returncode == 0, \
                f"the daemon ended with {self.process.returncode}: {log}"
            assert not SANITIZER.search(log), log

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(check=kind is None)
