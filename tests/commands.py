"""Writing to a process's command files, and reading what they say."""
import contextlib
import os
import pathlib
import subprocess
import threading

from interpreters import patience

HANGS = 60  # seconds after which a command that has not returned never will


class Refused(OSError):
    """A write that failed. words: what the file said about it."""

    def __init__(self, error, words):
        super().__init__(error.errno, error.strerror, error.filename)
        self.words = words

    def __str__(self):
        return f"{self.strerror}: {self.words}"

    def __repr__(self):
        return f"Refused({self.errno}, {self.words!r})"


def shell(script, *args, program="bash", **options):
    """A script that finds its arguments in $1 and on."""
    return subprocess.run([program, "-c", script, program, *map(str, args)], text=True,
                          capture_output=True, timeout=patience(60),
                          env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, **options)


def write(path, text):
    """One write(2)."""
    fd = os.open(path, os.O_WRONLY)
    try:
        return os.write(fd, text.encode())
    finally:
        os.close(fd)


def failure(function, *args):
    """The errno of a call that must fail."""
    try:
        function(*args)
    except OSError as error:
        return error.errno
    raise AssertionError(f"{function.__name__}{args} did not fail")


class Commands:
    """The command files of one process in a mount. Each command has a handle of its own. A daemon that doesn't
    answer any more is killed, so that the write fails: hung is set then."""

    def __init__(self, probe, pid):
        self.probe, self.pid = probe, pid
        self.directory = probe.path / str(pid)
        self.ctl, self.code = self.directory / "ctl", self.directory / "eval"
        self.hung = False

    def _give_up(self):
        self.hung = True
        self.probe.process.kill()

    @contextlib.contextmanager
    def _watched(self, timeout):
        watchdog = threading.Timer(patience(timeout), self._give_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()

    def run(self, name, text, timeout=HANGS):
        """What the file says after this was written to it."""
        path = self.directory / name
        with self._watched(timeout):
            fd = os.open(path, os.O_RDWR)
            try:
                try:
                    os.write(fd, text.encode())
                except OSError as error:
                    error.filename = str(path)
                    raise Refused(error, _said(fd)) from None
                return _said(fd)
            finally:
                os.close(fd)

    def refused(self, name, text):
        """The errno and the words of what must fail."""
        try:
            said = self.run(name, text)
        except Refused as error:
            return error.errno, error.words
        raise AssertionError(f"{name}: {text!r} was not refused: {said}")

    def attach(self, way=""):
        return self.run("ctl", f"attach {way}\n")

    def detach(self):
        return self.run("ctl", "detach\n")

    def status(self):
        """What `status` says of the agent: {key: value}."""
        return fields(self.run("ctl", "status\n"))

    def state(self):
        """Of the agent, without asking it: "none", "running", "running, connected", "loaded, not running"."""
        return next(line.partition(": ")[2] for line in self.ctl.read_text().splitlines()
                    if line.startswith("Agent: "))  # not in the reply behind it

    def eval(self, text, **options):
        return self.run("eval", text + "\n", **options)

    def value(self, expression):
        return self.eval(expression).strip()


def _said(fd):
    text = b""
    try:
        while True:
            part = os.read(fd, 1 << 20)
            if not part:
                break
            text += part
    except OSError as error:
        text += f"({error})".encode()
    return text.decode(errors="replace")


def fields(said):
    """{key: value} of `Key: value` lines."""
    return {key: value.strip() for key, _, value in
            (line.partition(":") for line in said.splitlines())}


def stops(pid):
    """How often the kernel took the main thread from its processor: as one that sleeps is stopped, too."""
    status = fields(pathlib.Path(f"/proc/{pid}/status").read_text())
    return int(status["voluntary_ctxt_switches"])
