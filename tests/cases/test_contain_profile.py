"""-o contain: what is sampled is read by a process with the target's own rights, one for each that is profiled; the
mount's process is told samples and names. That process may be killed, stopped or taken over by whom it belongs to."""
import contextlib
import os
import pathlib
import pwd
import re
import signal

import pytest

import sql
from interpreters import eventually, patience
from mount import REPOSITORY
from puppet import Puppet
from test_contain import contained, debian, status as rights_of  # noqa: F401
from test_contain_acts import told
from test_contain_sql import crash
from test_profile import samples, status
from test_profile_inside import allowed  # noqa: F401
from test_profile_kernel import descriptors

pytestmark = pytest.mark.attack

NO_EVENTS = [REPOSITORY / "tests" / "seccomp-exec", "EPERM", "perf_event_open"]

SPINS = """
import mmap, time
kept = []
def spins():
    kept.append(bytearray(300000))
    with mmap.mmap(-1, 1 << 16) as fresh:
        fresh.write(bytes(1 << 16))
    for _ in range(20000):
        pass
def main():
    print("ready", flush=True)
    while True:
        spins()
        time.sleep(0.001)
        del kept[:-5]
main()
"""


def profile(mount, pid, line, some=3):
    """Has it sampled, and waits until there is something."""
    before = samples(mount, pid)
    sql.reply(mount.path / str(pid) / "ctl", f"profile {line}\n")
    eventually(lambda: samples(mount, pid) >= before + some, patience(60), f"samples of {line}")


def sampler_of(mount, pid, line="cpu 97hz"):
    """The process that samples it from now on."""
    before = set(mount.owners())
    profile(mount, pid, line)
    uid = rights_of(pid)["Uid"]

    def found():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return [new for new in set(mount.owners()) - before if rights_of(new)["Uid"] == uid
                    and any("probefs-sample" in (task / "comm").read_text()
                            for task in pathlib.Path(f"/proc/{new}/task").iterdir())]

    (sampler,) = eventually(found, patience(30), "who samples it")
    return sampler


@pytest.mark.parametrize("within", [(), NO_EVENTS], ids=["kernel", "timer"])
def test_daemon_is_told_of_samples(probe, debian, nobody, within):
    """It reads nothing of a process that is sampled, nor of its files, and opens no interpreter for it."""
    mount = probe.mount("allow_other", "contain=yes", within=within)
    victim = debian.run_source(SPINS, user=nobody)
    directory = mount.path / str(victim.pid)
    assert str(victim.pid) in os.listdir(mount.path)

    def act():
        for line in "cpu 97hz native", "wall 97hz children", "faults", "alloc":
            if within and line == "faults":
                continue
            profile(mount, victim.pid, line)
            eventually(lambda: "spins" in (directory / "profile" / "top").read_text(), patience(60), f"spins of {line}")
            for file in "folded", "lines", "flamegraph.svg", "pprof", "speedscope.json", "gecko.json", "status":
                if (directory / "profile" / file).exists():
                    assert (directory / "profile" / file).read_bytes()
            sql.reply(directory / "ctl", "profile mark here\n")
            sql.reply(directory / "ctl", "profile off\n")
            sql.reply(directory / "ctl", "profile clear\n")

    assert not told(mount.pid, act)


def test_daemon_is_told_of_the_agents_samples(contained, debian, nobody, allowed):  # noqa: F811
    """It puts the agent's handler in place and sends signals; what the handler takes down it doesn't read."""
    victim = debian.run_source(SPINS, user=nobody)
    directory = contained.path / str(victim.pid)

    def act():
        profile(contained, victim.pid, "cpu 97hz inside")
        assert status(contained, victim.pid)["Source"] == "inside"
        eventually(lambda: "spins" in (directory / "profile" / "top").read_text(), patience(60), "spins")
        sql.reply(directory / "ctl", "profile off\n")

    assert not told(contained.pid, act)
    assert victim.process.poll() is None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["kill", "stop"])
def test_who_reads_the_agents_samples_is_killed(contained, debian, nobody, allowed, how):  # noqa: F811
    """Nothing sends signals any more."""
    victim = debian.run_source(SPINS, user=nobody)
    sampler = sampler_of(contained, victim.pid, "cpu 97hz inside")
    os.kill(sampler, how)
    eventually(lambda: status(contained, victim.pid)["State"] == "off", patience(30), "its end")
    assert re.search("was stopped" if how == signal.SIGSTOP else "has crashed, or was killed",
                     status(contained, victim.pid)["Note"])
    eventually(lambda: not descriptors(contained.pid, "[perf_event]"), patience(30), "the end of its events")
    profile(contained, victim.pid, "cpu 97hz inside")
    assert victim.process.poll() is None


def test_rights_of_who_samples(contained, debian, nobody):
    victim = debian.run_source(SPINS, user=nobody)
    sampler = sampler_of(contained, victim.pid)
    said = rights_of(sampler)
    entry = pwd.getpwnam(nobody)
    assert said["Uid"] == [str(entry.pw_uid)] * 4 and said["Gid"] == [str(entry.pw_gid)] * 4
    assert said["CapPrm"] == ["0" * 16] and said["NoNewPrivs"] == ["1"] and said["Seccomp"] == ["2"]
    sql.reply(contained.path / str(victim.pid) / "ctl", "profile off\n")
    eventually(lambda: sampler not in contained.owners(), patience(30), "its end")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP, crash()], ids=["kill", "stop", "crash"])
def test_who_samples_is_killed(contained, debian, nobody, how):
    """That profile ends and says so, with what was sampled until then; others go on, and it may be begun again."""
    theirs, mine = debian.run_source(SPINS, user=nobody), debian.run_source(SPINS)
    profile(contained, mine.pid, "cpu 97hz")
    sampler = sampler_of(contained, theirs.pid)
    before = samples(contained, theirs.pid)
    os.kill(sampler, how)
    eventually(lambda: status(contained, theirs.pid)["State"] == "off", patience(30), "its end")
    said = status(contained, theirs.pid)
    assert re.search("was stopped" if how == signal.SIGSTOP else "has crashed, or was killed", said["Note"])
    assert samples(contained, theirs.pid) >= before
    assert "spins" in contained.read(theirs.pid, "profile", "top")
    assert status(contained, mine.pid)["State"] == "running"
    had = samples(contained, mine.pid)
    eventually(lambda: samples(contained, mine.pid) > had, patience(30), "the other's samples")
    profile(contained, theirs.pid, "cpu 97hz")
    assert status(contained, theirs.pid)["State"] == "running" and "Note" not in status(contained, theirs.pid)


def test_who_samples_lies(contained, debian, nobody):
    """What no such process says ends the profile, and nothing else."""
    victim = debian.run_source(SPINS, user=nobody)
    sampler = sampler_of(contained, victim.pid)
    with contextlib.suppress(AssertionError, ProcessLookupError), Puppet(sampler) as puppet:  # it is killed for it
        puppet.call("sendto", 3, b"\1\0\0\0\377\377\377\377", 8, 0, 0, 0)
    eventually(lambda: status(contained, victim.pid)["State"] == "off", patience(30), "its end")
    assert re.search("said what can't be|was stopped", status(contained, victim.pid)["Note"])
    assert "spins" in contained.read(victim.pid, "profile", "top")
