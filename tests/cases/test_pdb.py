"""contrib/probefs-pdb: the words of pdb at a terminal."""
import contextlib
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import time

import pytest

import mount
from interpreters import eventually, patience

SOURCE = """import sys, time
def leaf(x):
    y = x + 1
    z = y * 2
    return z
def main():
    total = 0
    while working:
        total += leaf(
            1)
        time.sleep(0.001)
    return total
working = True
print("ready", flush=True)
print(main(), flush=True)
sys.stdin.read()
"""


class Terminal:
    def __init__(self, *arguments):
        self.master, other = pty.openpty()
        self.process = subprocess.Popen([sys.executable, mount.REPOSITORY / "contrib" / "probefs-pdb",
                                         *map(str, arguments)],
                                        stdin=other, stdout=other, stderr=other, start_new_session=True,
                                        env={**os.environ, "TERM": "dumb"})
        os.close(other)

    def until_prompt(self, prompt=r"\(Pdb\) "):
        """What it has shown by its next prompt, without what it took away again, as what it waited for; that is in
        self.shown, too."""
        self.shown, end = "", time.monotonic() + patience(60)
        while not (found := re.search(rf"{prompt}\Z", self.shown)):
            assert select.select([self.master], [], [], max(0, end - time.monotonic()))[0], self.shown
            self.shown += os.read(self.master, 4096).decode().replace("\r", "")
        return re.sub(r"^.*\x1b\[K", "", self.shown[:found.start()], flags=re.M)

    def say(self, line):
        """What it answers, without the echo."""
        os.write(self.master, f"{line}\n".encode())
        return self.until_prompt().partition("\n")[2]

    def end(self, line):
        os.write(self.master, f"{line}\n".encode())
        with contextlib.suppress(OSError):  # its end of the terminal is closed
            while os.read(self.master, 4096):
                pass
        return self.process.wait(patience(30))

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def session(probe, any_python):
    target = any_python.run_source(SOURCE, name="stepped.py")
    terminal = Terminal("-m", probe.path, target.pid)
    try:
        terminal.until_prompt()
        yield target, terminal
    finally:
        terminal.close()


def place(text):
    """(line, function) of the last place that is shown."""
    line, function = re.findall(r"^> .*stepped\.py\((\d+)\)(\S+)\(\)$", text, re.M)[-1]
    return int(line), function


def goes_on(probe, target):
    directory = probe.path / str(target.pid)
    eventually(lambda: "Stopped: none" in (directory / "status").read_text(), what="that nothing is held")
    assert not re.search(r"^\d+:", (directory / "breakpoints").read_text(), re.M)
    with open(directory / "eval", "w") as code:
        code.write("working = False\n")
    return int(target.readline())


def test_words(probe, session):
    target, pdb = session
    assert "Breakpoint 1 at " in pdb.say("b leaf")
    assert place(pdb.say("c")) == (3, "leaf")
    assert place(pdb.say("n")) == (4, "leaf")
    assert pdb.say("p x, y") == "(1, 2)\n"
    assert pdb.say("!y = 50") == "" and pdb.say("a") == "x = 1\n"
    assert "NameError" in pdb.say("nothing")
    stack = pdb.say("w")
    assert re.findall(r"\(\d+\)(\S+)\(\)", stack) == ["<module>", "main", "leaf"] and place(stack) == (4, "leaf")
    assert re.search(r"^  4  -> +z = y \* 2$", pdb.say("l"), re.M)
    assert pdb.say("ll").splitlines()[0].split(None, 1) == ["2", "def leaf(x):"]
    assert "display z: ** raised NameError" in pdb.say("display z")
    assert "display z: 100  [old:" in pdb.say("s")
    assert place(pdb.say("u"))[1] == "main"
    assert "Newest frame" in pdb.say("d\nd")[-40:] or "Newest frame" in pdb.until_prompt()
    assert "Deleted breakpoint 1" in pdb.say("cl 1")
    returned = pdb.say("r")
    assert "--Return--" in returned and place(returned) == (5, "leaf")
    assert place(pdb.say("n"))[1] == "main"
    pdb.say("tbreak 11, total > 0")
    assert place(pdb.say("c")) == (11, "main")
    assert place(pdb.say("j 7")) == (7, "main")
    assert place(pdb.say("unt 9"))[0] >= 9
    assert "the files have nothing for that" in pdb.say("restart")
    assert pdb.end("q") == 0
    assert goes_on(probe, target) > 0


def test_ctrl_c(probe, session):
    """It pauses what runs, and ends what an expression runs."""
    target, pdb = session
    os.write(pdb.master, b"c\n")
    directory = probe.path / str(target.pid)
    eventually(lambda: "Stopped: none" in (directory / "status").read_text(), what="that it runs")
    eventually(lambda: pathlib.Path(f"/proc/{pdb.process.pid}/syscall").read_text().split()[0] in ("23", "270"),
               what="that it waits, in select(2)")
    os.killpg(pdb.process.pid, 2)
    shown = pdb.until_prompt()
    assert "Pausing" in shown and place(shown)[1] in ("main", "leaf"), shown
    pdb.say("u")
    assert pdb.end("\x04") == 0
    assert goes_on(probe, target) > 0


def test_who_waits_is_told(probe, session, tmp_path):
    """What for, and it is taken away again."""
    target, pdb = session
    done = tmp_path / "done"
    os.write(pdb.master, f"while not __import__('os').path.exists({str(done)!r}): time.sleep(0.01)\n\n".encode())
    pdb.until_prompt(rf"probefs-pdb: waiting for {target.pid} to answer, ([2-9]|\d\d+) s; Ctrl-C ends it ")
    done.touch()
    assert pdb.until_prompt() == "" and "\x1b[K" in pdb.shown
    assert pdb.end("q") == 0
    assert goes_on(probe, target) > 0  # and waits for its standard input
    other = Terminal("-m", probe.path, target.pid)
    try:
        other.until_prompt(r"waiting for a line of Python: MainThread .*, ([2-9]|\d\d+) s; Ctrl-C ends it ")
        os.killpg(other.process.pid, 2)
        assert other.process.wait(patience(30)) == 1
    finally:
        other.close()
    eventually(lambda: "Stopped: none" in probe.read(target.pid, "status"), what="that nothing is held")


RAISES = """import functools, sys
class Model:
    def __init__(self):
        self.weights = [1.0, float("nan")]
    @functools.lru_cache
    def forward(self, x, *rest, scale=2, **more):
        total = sum(self.weights) * x * scale
        if total != total:
            raise ValueError(
                f"loss is {total}")
        return total
def train():
    step = 7
    return [Model().forward(step) for _ in range(2)]
print("ready", flush=True)
sys.stdin.readline()
train()
"""


def test_where_an_exception_has_ended_it(probe, any_python):
    """Of a rank, as it is held: the words that look are there, and none that would run it on."""
    target = any_python.run_source(RAISES, name="stepped.py", env={"RANK": "41"})
    directory = probe.path / str(target.pid)
    (directory / "ctl").write_text("on-crash stop for 5m\n")
    target.send("go")
    state = directory / "threads" / str(target.pid) / "ctl"
    eventually(lambda: state.read_text().startswith("stopped by an exception"), what="the exception")
    pdb = Terminal("-m", probe.path, "rank:41")
    try:
        begun = pdb.until_prompt()
        assert begun.startswith("ValueError: loss is nan\n") and place(begun)[1].endswith("forward"), begun
        assert pdb.say("p total, scale") == "(nan, 2)\n" and pdb.say("pp self.weights") == "[1.0, nan]\n"
        assert [line.split(" = ")[0] for line in pdb.say("a").splitlines()] == ["self", "x", "scale", "rest", "more"]
        assert [line.split(None, 1)[1] for line in pdb.say("ll").splitlines()][::6] == ["@functools.lru_cache",
                                                                                        "return total"]
        assert re.search(r"^ +9  -> +raise ValueError\($|^ +10  -> ", pdb.say("l"), re.M)
        assert pdb.say("display x") == "display x: 7\n"
        stack = pdb.say("w")
        assert re.findall(r"\(\d+\)(?:\w+\.)?(\S+)\(\)", stack)[:2] == ["<module>", "train"]
        while place(shown := pdb.say("u"))[1] != "train":
            pass
        assert place(shown) == (14, "train") and pdb.say("p step") == "7\n" and pdb.say("a") == ""
        os.write(pdb.master, b"interact\n")
        pdb.until_prompt(">>> ")
        os.write(pdb.master, b"step = step * 2\n")
        pdb.until_prompt(">>> ")
        os.write(pdb.master, b"step + 1\n")
        assert pdb.until_prompt(">>> ").endswith("\n15\n")
        os.write(pdb.master, b"\x04")
        pdb.until_prompt()
        for word in "s", "n", "r", "unt", "j 14":
            assert pdb.say(word) == "*** the exception has ended what it ran: c lets the thread go, q leaves it held\n"
        assert pdb.end("q") == 0 and state.read_text().startswith("stopped by an exception")
    finally:
        pdb.close()
    pdb = Terminal("-m", probe.path, "rank:41", target.pid)
    try:
        pdb.until_prompt()
        assert pdb.end("c") == 0
    finally:
        pdb.close()
    assert target.process.wait(patience(30)) == 1 and target.stderr().endswith("ValueError: loss is nan\n")


def test_held_by_somebody_else(probe, any_python):
    """It is taken as it is held, and stays so."""
    target = any_python.run_source(SOURCE, name="stepped.py")
    directory = probe.path / str(target.pid)
    (directory / "breakpoints").write_text("stop stepped.py:4\n")
    state = directory / "threads" / str(target.pid) / "ctl"
    eventually(lambda: state.read_text().startswith("stopped by breakpoint"), what="the stop")
    pdb = Terminal("-m", probe.path, target.pid)
    try:
        assert place(pdb.until_prompt()) == (4, "leaf")
        assert pdb.end("q") == 0
    finally:
        pdb.close()
    assert state.read_text().startswith("stopped by breakpoint")
    (directory / "breakpoints").write_text("\n")
    assert goes_on(probe, target) > 0
