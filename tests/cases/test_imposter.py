"""Processes that show something as their agent that is none: the daemon says no, and lives."""
import errno
import shutil

import pytest

from commands import Commands, write
from interpreters import eventually
from mount import build

pytestmark = [pytest.mark.attack, pytest.mark.python(minimum=(3, 10))]


@pytest.fixture
def imposter(probe, any_python):
    def start(mode):
        library = any_python.directory / "probing-imposter.so"
        if not library.exists():
            shutil.copy(build() / "tests" / "targets" / library.name, library)
        target = any_python.run("imposter.py", mode, str(probe.path / "help"))
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
