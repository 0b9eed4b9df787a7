"""What is tried on every version and build of CPython, and noted for the README's table (tests/tried)."""
import errno
import json
import os
import pathlib

from commands import Commands
from interpreters import CACHE, Interpreter, eventually, patience
from sql import reply
from stacks import parse_backtrace

# name in the table -> (file of tests/sid-root's /opt, what its name ends with)
ASIDE = {"pydebug": ("dbg", "d"), "no PIE": ("nopie", "")}
SCRIPT = """
import sys

answer = 42

def inner(number):
    doubled = number * 2
    print("ready", flush=True)
    return sys.stdin.readline()

def outer():
    while inner(21):
        pass

outer()
print("done", flush=True)
"""
LINES = {name: 1 + SCRIPT[:SCRIPT.index(text)].count("\n") for name, text in
         [("inner", "    return sys"), ("outer", "    while"), ("<module>", "\nouter()\n")]}
LINES["<module>"] += 1


def aside(kind, minor):
    """A build that lies beside the interpreters of the sid root, which only cases use that ask for it; None: it isn't
    there."""
    package, suffix = ASIDE[kind]
    executable = pathlib.Path(f"/opt/python3.{minor}-{package}/python3.{minor}{suffix}")
    interpreter = Interpreter(kind.replace(" ", ""), (3, minor, 0), str(executable), CACHE / "sid")
    return interpreter if (CACHE / "sid" / executable.relative_to("/")).exists() else None


def note(kind, version, **found):
    """One of the table's rows. found: whether it can be looked at, whether it takes an agent (for `eval`), and
    breakpoints: "yes", or how."""
    path = os.environ.get("PROBEFS_TEST_TRIED")
    if path:
        with open(path, "a") as file:
            file.write(json.dumps({"kind": kind, "version": version and list(version[:2]), **found}) + "\n")


def looked_at(probe, target, path=None):
    """Reads what status, backtrace, stacks.folded, locals and a table say. path: as its code knows it, where that isn't
    the script's own."""
    directory, main = probe.path / str(target.pid), target.pid
    status = (directory / "status").read_text()
    assert "\nSupported: yes\n" in status, status
    path = path or target.path()
    frames = [(name, path, LINES[name]) for name in ("inner", "outer", "<module>")]
    eventually(lambda: parse_backtrace((directory / "backtrace").read_text(), main).threads[main].frames == frames,
               what=f"{frames} in {(directory / 'backtrace').read_text()}")
    assert ";".join(f"{name} ({file}:{line})" for name, file, line in reversed(frames)) in \
        (directory / "stacks.python.folded").read_text()
    assert "number = 21\ndoubled = 42\n" in (directory / f"threads/{main}/frames/0/locals").read_text()
    assert "answer = 42\n" in (directory / "globals/__main__").read_text()
    said = reply(directory / "query", "SELECT func, lineno FROM backtrace WHERE depth = 0\n")
    assert said == f"func,lineno\ninner,{LINES['inner']}\n", said


def acted_in(probe, target):
    """Has it evaluate, hold no longer than a breakpoint that logs takes, and be as it was."""
    commands = Commands(probe, target.pid)
    assert commands.eval("answer + inner.__code__.co_argcount") == "43\n"
    said = commands.run("breakpoints", f"log {target.script}:{LINES['inner']} {{doubled}}\n")
    assert "# armed" in said, said
    target.send("")
    target.expect("ready")
    query = "SELECT func, lineno, captured->>'doubled' AS doubled FROM hits WHERE hit\n"
    said = eventually(lambda: (text := reply(commands.directory / "query", query)).count("\n") > 1 and text)
    assert said == f"func,lineno,doubled\ninner,{LINES['inner']},42\n", said
    commands.detach()
    assert commands.state() == "none", commands.status()


def not_acted_in(probe, target, ways=None):
    """Each way of writing, all or (file, text), is refused, before anything is touched. Returns the words."""
    commands = Commands(probe, target.pid)
    before = pathlib.Path(f"/proc/{target.pid}/maps").read_text()
    for name, text in ways or [("ctl", "attach\n"), ("eval", "1\n"), ("breakpoints", f"log {target.script}:1\n")]:
        number, words = commands.refused(name, text)
        assert number == errno.EOPNOTSUPP, (number, words)
    assert pathlib.Path(f"/proc/{target.pid}/maps").read_text() == before
    return words


def ends(target):
    target.stdin.close()
    target.expect("done")
    assert target.process.wait(patience(60)) == 0, target.stderr()
