"""Writing to a process's command files, and reading what they say, on one handle."""
import contextlib
import os
import threading

HANGS = 60  # seconds after which a command that has not returned never will


class Refused(OSError):
    """A write that failed. words: what the file said about it."""

    def __init__(self, error, words):
        super().__init__(error.errno, error.strerror, error.filename)
        self.words = words

    def __str__(self):
        return f"{self.strerror}: {self.words}"


class Commands:
    """The command files of one process in a mount. A daemon that doesn't answer any more is killed, so
    that the write fails: hung is set then."""

    def __init__(self, probe, pid):
        self.probe, self.pid = probe, pid
        self.directory = probe.path / str(pid)
        self.hung = False

    def _give_up(self):
        self.hung = True
        self.probe.process.kill()

    @contextlib.contextmanager
    def _watched(self, timeout):
        watchdog = threading.Timer(timeout, self._give_up)
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

    def attach(self, way=""):
        return self.run("ctl", f"attach {way}\n")

    def detach(self):
        return self.run("ctl", "detach\n")

    def status(self):
        """What `status` says of the agent: {key: value}."""
        return fields(self.run("ctl", "status\n"))

    def eval(self, text, **options):
        return self.run("eval", text + "\n", **options)


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
