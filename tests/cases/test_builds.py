"""Every version, and other builds of it than those that all cases run under: what can be looked at, and what takes an
agent."""
import os
import re
import signal
import subprocess

import pytest

import builds
from commands import Commands
from interpreters import CACHE, OLDEST, Interpreter, eventually, interpreters, patience
from sql import reply

AGENT_OLDEST = (3, 10)
# leaf() has its true line nowhere while machine code of 3.15's JIT runs it; such code calls asleep(), too
HOT = """
import signal, sys

def leaf(a, b):
    c = a * 3
    d = c + b
    return d

def asleep(number):
    if number == wanted:
        print("asleep", flush=True)
        sys.stdin.readline()

def hot(n):
    total = 0
    for number in range(n):
        total += number & 7
        total = leaf(number, total) & 0xffff
        if number % 1000 == 999:
            asleep(number)

def want(*_):
    global wanted
    wanted = 999

wanted = None
signal.signal(signal.SIGUSR1, want)
print("ready", flush=True)
while True:
    hot(100000)
"""


def tried(probe, kind, target, agent=True, look="yes", path=None):
    """Does all of it, and notes it."""
    builds.looked_at(probe, target, path)
    if agent:
        builds.acted_in(probe, target)
    else:
        builds.not_acted_in(probe, target)
    builds.ends(target)
    yes = "yes" if agent else "no"
    builds.note(kind, target.interpreter.version, look=look, write=yes, breakpoints=yes)


@pytest.mark.python(minimum=OLDEST)
def test_version(probe, python):
    tried(probe, "CPython", python.run_source(builds.SCRIPT, name="tried.py"), python.version >= AGENT_OLDEST)


@pytest.mark.parametrize("kind, minor",
                         [("pydebug", 13), ("pydebug", 14), ("pydebug", 15), ("no PIE", 14), ("no PIE", 15)])
def test_build(probe, kind, minor):
    interpreter = builds.aside(kind, minor)
    if not interpreter:
        pytest.skip(f"no python3.{minor}-{builds.ASIDE[kind][0]}: tests/sid-root unpacks it")
    tried(probe, kind, interpreter.run_source(builds.SCRIPT, name="tried.py"))


def with_jit(minor):
    found = next((i for i in interpreters() if i.source == "sid" and i.version[:2] == (3, minor)), None)
    if not found:
        pytest.skip(f"no python3.{minor} of Debian sid, whose JIT PYTHON_JIT=1 turns on")
    return found


def innermost(probe, target):
    """(function, its line as it stands there, what the rest of the stack is) in backtrace."""
    text = (probe.path / str(target.pid) / "backtrace.python").read_text()
    frames = re.findall(r"^  #\d+  (\S+) \(.*:(~?\d+)\)$", text, re.M)
    return frames[0], frames[1:]


@pytest.mark.parametrize("minor", [14, 15])
def test_jit(probe, minor):
    """In 3.15 the line of the innermost frame is marked while machine code runs it, and no other is."""
    python = with_jit(minor)
    target = python.run_source(HOT, name="hot.py", env={"PYTHON_JIT": "1"})
    lines, directory = HOT.split("\n"), probe.path / str(target.pid)
    calls = {"hot": {"leaf(number", "asleep(number"}, "<module>": {"hot(100000)"}}
    seen = set()

    def look():
        (function, line), callers = innermost(probe, target)
        seen.add((function, line))
        for name, number in callers:
            assert any(call in lines[int(number) - 1] for call in calls[name]), (name, number, function)
        return {name for name, line in seen if line.startswith("~")} >= {"leaf", "hot"}

    if minor == 15:
        eventually(look, what="a marked line")
        query = "SELECT lineno > 0 AS line, col FROM backtrace WHERE depth = 0\n"
        eventually(lambda: reply(directory / "query", query) == "line,col\n1,\n", what="a row without columns")
    else:
        for _ in range(300):
            look()
        assert {line for name, line in seen if name == "leaf"} > {"6", "7"}, seen
        assert not any(line.startswith("~") for _, line in seen), seen
    target.signal(signal.SIGUSR1)
    target.expect("asleep")
    line = next(n for n, text in enumerate(lines, 1) if "stdin.readline" in text)
    eventually(lambda: innermost(probe, target)[0] == ("asleep", str(line)), what="the line of who sleeps in a trace")
    tried(probe, "JIT", python.run_source(builds.SCRIPT, name="tried.py", env={"PYTHON_JIT": "1"}),
          look="yes" if minor == 14 else "yes; the innermost line is near: `app.py:~3`")


def test_without_jit(probe):
    """The mark is the JIT's own."""
    python = with_jit(15)
    target = python.run_source(HOT, name="hot.py", env={"PYTHON_JIT": "0"})
    for _ in range(100):
        assert "~" not in innermost(probe, target)[0][1]


def packer(module, who):
    """The Python that has it, and its version."""
    python = CACHE / "peers" / "bin" / "python3"
    code = f"import {module}, sys; print(*sys.version_info[:3])"
    found = python.exists() and subprocess.run([python, "-c", code], capture_output=True, text=True)
    if not found or found.returncode:
        pytest.skip(f"{module} is not there: {who} gets it, where there is a package index")
    return python, tuple(map(int, found.stdout.split()))


@pytest.mark.long
def test_pyinstaller(probe, tmp_path):
    """What it packs knows its own files without a directory."""
    python, version = packer("PyInstaller", "tests/run")
    (tmp_path / "tried.py").write_text(builds.SCRIPT)
    subprocess.run([python, "-m", "PyInstaller", "--onedir", "--log-level", "ERROR", "--distpath", tmp_path / "dist",
                    "--workpath", tmp_path / "work", "--specpath", tmp_path, tmp_path / "tried.py"],
                   check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=patience(100),
                   env={**os.environ, "PYINSTALLER_CONFIG_DIR": str(tmp_path)})
    packed = Interpreter("packed", version, str(tmp_path / "dist" / "tried" / "tried"))
    tried(probe, "PyInstaller", packed.run_source(builds.SCRIPT, name="tried.py"), path="tried.py")


@pytest.mark.long
@pytest.mark.deadline(300)
@pytest.mark.skipif(os.environ.get("PROBEFS_TEST_FULL") != "1", reason="Nuitka compiles by tests/run --full alone")
def test_nuitka(probe, tmp_path):
    """It makes frames that know no line but that of their `def` until they raise, and no locals."""
    python, version = packer("nuitka", "tests/run --full")
    (tmp_path / "tried.py").write_text(builds.SCRIPT)
    subprocess.run([python, "-m", "nuitka", "--quiet", "--no-deployment-flag=self-execution", "tried.py"],
                   check=True, capture_output=True, cwd=tmp_path, stdin=subprocess.DEVNULL, timeout=patience(200),
                   env={**os.environ, "NUITKA_CACHE_DIR": str(tmp_path)})
    compiled = Interpreter("compiled", version, str(tmp_path / "tried.bin"))
    target = compiled.run_source(builds.SCRIPT, name="tried.py")
    directory, commands = probe.path / str(target.pid), Commands(probe, target.pid)
    assert "\nSupported: yes\n" in (directory / "status").read_text()
    text = (directory / "backtrace.python").read_text()
    assert re.findall(r"^  #\d+  (\S+) \(.*:(\d+)\)$", text, re.M) == [
        (name, str(1 + builds.SCRIPT[:builds.SCRIPT.find(f"def {name}")].count("\n")) if name != "<module>" else "1")
        for name in ("inner", "outer", "<module>")], text
    assert " [native]\n" in (directory / "backtrace").read_text()
    assert "answer = 42\n" in (directory / "globals" / "__main__").read_text()
    assert commands.eval("answer") == "42\n"
    said = commands.run("breakpoints", f"log {target.script}:{builds.LINES['inner']} {{number}}\n")
    assert "its module is compiled (Nuitka, Cython, C): no line of it is seen" in said, said
    commands.detach()
    builds.ends(target)
    builds.note("Nuitka", version, look="yes; lines are those of `def`, no locals", write="yes", breakpoints="no")
