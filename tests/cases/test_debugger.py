"""A debugger from the start of a run, as the environment asks: pdb over a Unix socket, which a real nc talks to, on the
terminal, or the files. IPDB_DEBUG, IPDB_MODE, PROBING_ON_CRASH; probing.Debugger, attach_on_error() and
breakpoint()."""
import pathlib
import random
import re
import shutil
import subprocess

import pytest

from agents import QUIET, clients, connect, library  # noqa: F401, a fixture
from commands import Commands
from interpreters import eventually, patience
from test_torch import torch_python  # noqa: F401

pytestmark = pytest.mark.python(minimum=(3, 10))

RAISED = "[rank 0] ZeroDivisionError: division by zero"
PROMPT = re.compile(r"\(rank-\d+-pdb\) ")


def starter(python, request):
    """Starts debug_one.py; its sockets are in its own `sockets`, as seen from here."""
    sockets = python.directory / f"sockets-{random.randrange(1 << 30)}"
    sockets.mkdir(mode=0o700)
    request.addfinalizer(lambda: shutil.rmtree(sockets, ignore_errors=True))

    def run(*args, mode=None, script="debug_one.py", **env):
        _, inside = library(python)
        if mode:
            env.update(IPDB_DEBUG="1", IPDB_MODE=mode)
        return python.run(script, *args,
                          env={"PYTHONPATH": inside, "TMPDIR": python.path(sockets.name), **QUIET, **env})
    run.sockets = sockets
    return run


@pytest.fixture
def start(python, request):
    return starter(python, request)


def nc(path, *lines):
    """What pdb says to each of these lines."""
    assert shutil.which("nc"), "netcat-openbsd is not installed"
    eventually(path.is_socket, what=f"a socket at {path}")
    said = subprocess.run(["nc", "-N", "-U", path], input="".join(line + "\n" for line in lines), text=True,
                          capture_output=True, timeout=patience(60))
    assert said.returncode == 0, said.stderr
    return [answer.strip() for answer in PROMPT.split(said.stdout)]


@pytest.mark.parametrize("way", ["decorated", "coroutine", "context", "handled"])
def test_over_a_socket(start, way):
    """Who loses the connection may come back; then the exception goes on, and is not asked of again."""
    target = start(way, mode="socket")
    target.send("go")
    path = start.sockets / "pdb.sock.0"
    said = nc(path, "p secret", "up")
    assert said[0].startswith(RAISED) and "divide()" in said[0] and said[1] == "42", said
    assert path.stat().st_mode & 0o777 == 0o600 if path.exists() else True
    said = nc(path, "secret -= 1", "p secret", "where", "q")
    assert said[2] == "41" and "debug_one.py" in said[3], said
    target.expect("raised")
    eventually(lambda: not path.exists(), what="no socket")
    target.stdin.close()
    assert target.process.wait(patience(30)) == 0
    said = target.stderr()
    assert said.count("nc -U") == 2 and all(line.startswith(f"probing: {RAISED}; for 600 s: nc -U")
                                            for line in said.splitlines()), said


def test_uncaught(start):
    """No decorator: the agent has it asked for."""
    target = start("uncaught", mode="socket")
    target.send("go")
    assert nc(start.sockets / "pdb.sock.0", "p number, secret", "q")[1] == "(6, 42)"
    assert target.process.wait(patience(30)) == 1
    assert target.stderr().endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("asked", ["socket", "0"])
def test_flag_of_the_program(start, asked):
    """What it sets counts, and without any flag nothing happens."""
    target = start("decorated", *[asked] * (asked == "socket"), IPDB_DEBUG="0")
    target.send("go")
    if asked == "socket":
        assert nc(start.sockets / "pdb.sock.0", "p secret", "q")[1] == "42"
    target.expect("raised")
    assert bool(target.stderr()) == (asked == "socket")


def test_nobody_comes(start):
    target = start("decorated", mode="socket", PROBING_ON_CRASH="stop:0.2s")
    target.send("go")
    target.expect("raised")
    assert target.stderr().splitlines() == [
        f"probing: {RAISED}; for 0.2 s: nc -U {target.interpreter.path(start.sockets.name)}/pdb.sock.0",
        f"probing: {RAISED}; nobody came, it goes on"]


def test_two_of_one_rank(start):
    """The second is beside the first; a socket that is left over is no hindrance."""
    import socket
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(start.sockets / "pdb.sock.0"))
    first, second = start("decorated", mode="socket"), start("decorated", mode="socket")
    first.send("go")
    eventually(lambda: "nc -U" in first.stderr(), what="the first one's socket")
    second.send("go")
    eventually(lambda: "nc -U" in second.stderr(), what="the second one's socket")
    path = pathlib.Path(second.stderr().split()[-1])
    assert path.name.startswith("pdb.sock.0.")
    assert nc(start.sockets / path.name, "p secret", "q")[1] == "42"
    second.expect("raised")
    assert first.stderr().count("nc -U") == 1  # the second has found out about it without calling it
    assert nc(start.sockets / "pdb.sock.0", "p secret", "q")[1] == "42"
    first.expect("raised")


def test_breakpoint(start):
    """In rank 0 alone; who leaves without a word lets it go on."""
    target = start("breakpoint", mode="socket")
    target.send("go")
    said = nc(start.sockets / "pdb.sock.0", "p here", "next", "next", "p here")
    assert said[0].startswith("[rank 0]") and said[1] == "5" and said[4] == "6", said
    target.expect("went on 6")


def test_on_the_terminal(start):
    target = start("decorated", mode="console")
    target.send("go\np secret\nq")
    said = [target.readline() for _ in range(3)]
    while said[-1] != "raised" and not said[-1].endswith(") raised"):
        said.append(target.readline())
    assert "(Pdb) 42" in said, said
    assert target.stderr() == f"probing: {RAISED}\n"


@pytest.mark.parametrize("way", ["uncaught", "decorated"])
def test_by_the_files(start, probe, way):
    """Held though no daemon had ever talked to it: it is at the exception, and goes on where it is told to."""
    target = start(way, mode="web")
    commands = Commands(probe, target.pid)
    target.send("go")
    eventually(lambda: f"Stopped: {target.pid}\n" in (commands.directory / "status").read_text(), what="a held thread")
    assert "for 600 s by ZeroDivisionError" in target.stderr()
    eventually((commands.directory / "crash" / "frames" / "0").exists, what="its crash")
    assert commands.run("crash/frames/0/eval", "secret\n") == "42\n"
    commands.run("ctl", "continue\n")
    if way == "uncaught":
        assert target.process.wait(patience(30)) == 1
    else:
        target.expect("raised")
        assert target.stderr().count("held for") == 1


@pytest.mark.parametrize("words, held", [("stop:10m", 600), ("stop", 600), ("stop:1.5h", 5400), ("record", None),
                                         ("stop:1y", None), ("hold", None)])
def test_on_crash(start, words, held):
    target = start("uncaught", PROBING_ON_CRASH=words)
    client = connect(target)
    assert client.record.read().on_crash == (2 if held else 1 if words == "record" else 0)
    target.send("go")
    if held:
        eventually(lambda: f"is held for {held} s by ZeroDivisionError" in target.stderr(), what="words of it")
        client.close()  # whoever asked is not the daemon
        connect(target)
        assert "Traceback" not in target.stderr()
        return
    assert target.process.wait(patience(30)) == 1
    said = target.stderr()
    if words == "record":
        assert said.startswith("Traceback")
    else:
        assert f"PROBING_ON_CRASH={words}: write record, stop" in said


# ---- ranks ----


def cpu(target):
    fields = pathlib.Path(f"/proc/{target.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.long
@pytest.mark.parametrize("mode", ["socket", "console", "web"])
def test_ranks(torch_python, request, probe, mode):  # noqa: F811
    """Three ranks, of which 0 and 2 fail: each is looked at, 1 waits for them, and nobody burns a core."""
    start = starter(torch_python, request)
    port = str(random.randrange(20000, 30000))
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1"}
    ranks = [start("--fail_ranks", "0", "2", mode=mode, script="debug_ranks.py", **env, RANK=str(rank))
             for rank in range(3)]
    for target in ranks:
        target.send("go")
    held = [2] if mode == "console" else [0, 2] if mode == "web" else []
    for rank in held:
        status = probe.path / str(ranks[rank].pid) / "status"
        eventually(lambda: re.search(r"^Stopped: \d", status.read_text(), re.M), what=f"rank {rank} held")
        here = Commands(probe, ranks[rank].pid)
        eventually((here.directory / "crash" / "frames" / "0").exists, what="its crash")
        assert here.run("crash/frames/0/eval", "rank, len(tensor)\n") == f"({rank}, 10)\n"
    if mode == "console":
        ranks[0].send("p rank, len(tensor)\nq")
        eventually(lambda: "[rank 0] IndexError" in ranks[0].stderr(), what="rank 0's exception")
    for rank in [0, 2] if mode == "socket" else []:
        eventually((start.sockets / f"pdb.sock.{rank}").is_socket, what=f"rank {rank}'s socket")
    waits = [rank for rank in range(3) if not (mode == "console" and rank == 0)]
    before = [cpu(ranks[rank]) for rank in waits]
    if mode == "socket":
        for rank in 0, 2:
            assert nc(start.sockets / f"pdb.sock.{rank}", "p rank, len(tensor)", "q")[1] == f"({rank}, 10)"
    else:
        subprocess.run(["sleep", "1"])
    used = [cpu(ranks[rank]) - was for rank, was in zip(waits, before)]
    assert max(used) < 50, used  # of 100 a second
    for rank in held:
        Commands(probe, ranks[rank].pid).run("ctl", "continue\n")
    for rank in 0, 2:
        said = ranks[rank].readline()
        while "raised index" not in said:
            said = ranks[rank].readline()
