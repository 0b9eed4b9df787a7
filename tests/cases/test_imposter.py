"""Processes that show something as their agent that is none: the daemon says no, and lives."""
import errno
import shutil
import socket

import pytest

from commands import Commands, write
from interpreters import eventually
from mount import build

pytestmark = [pytest.mark.attack, pytest.mark.python(minimum=(3, 10))]


@pytest.fixture
def imposter(probe, any_python):
    def start(mode, path=probe.path / "help"):
        library = any_python.directory / "probing-imposter.so"
        if not library.exists():
            shutil.copy(build() / "tests" / "targets" / library.name, library)
        target = any_python.run("imposter.py", mode, str(path))
        return target, Commands(probe, target.pid)
    return start


@pytest.mark.parametrize("mode, error", [
    ("pipe", errno.EIO),
    ("file", errno.EIO),     # of this very mount: waiting for it would be waiting for ourselves
    ("stream", errno.EIO),
    ("closed", errno.EBUSY),
    ("version", errno.EOPNOTSUPP),
    ("mute", errno.ETIMEDOUT),
    ("refuse", errno.EIO),
    ("descriptors", errno.EIO),
])
def test_no_agent(imposter, mode, error):
    _, commands = imposter(mode)
    assert commands.refused("ctl", "attach\n")[0] == error
    assert commands.refused("ctl", "attach\n")[0] == error


@pytest.mark.parametrize("mode, error", [
    ("garbage", errno.EIO),
    ("flood", errno.EIO),
    ("unknown", errno.EIO),
    ("consumed", errno.EIO),
])
def test_breaks_the_rules(imposter, mode, error):
    target, commands = imposter(mode)
    commands.attach()
    assert "\x1b" not in commands.ctl.read_text()
    assert commands.refused("eval", "1\n")[0] == error
    target.expect("over")  # the daemon has hung up


@pytest.mark.attack
def test_somebody_elses_service(imposter, tmp_path):
    """A service that the process has connected its channel with gets nothing of the daemon's, who may be root."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as service:
        service.bind(str(tmp_path / "service"))
        service.listen()
        target, commands = imposter("service", tmp_path / "service")
        assert commands.refused("ctl", "attach\n")[0] == errno.EIO
        target.close()
        with service.accept()[0] as connection:
            assert connection.recv(4096) == b""


def test_hangs_up(imposter):
    _, commands = imposter("hangs up")
    commands.attach()
    with pytest.raises(ProcessLookupError):
        write(commands.code, "1\n")


def test_speaks_after_the_end(imposter):
    target, commands = imposter("late")
    commands.attach()
    with open(commands.code, "r+b", buffering=0) as both:
        both.write(b"1\n")
        assert b"\x1b" not in both.read()
    target.expect("over")
    eventually(lambda: commands.state() == "running", what="a session that has ended")


def test_forged_handle(imposter):
    """What it says is its library's handle is not given to dlclose()."""
    target, commands = imposter("handle")
    commands.attach()
    assert target.process.poll() is None
