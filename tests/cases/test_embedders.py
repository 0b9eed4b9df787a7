"""Programs that hold a whole CPython. Of those that export nothing of it what is read is right; an agent is linked by
their .symtab, and refused before anything is touched where that doesn't have all."""
import errno
import pathlib
import re
import shutil
import subprocess

import pytest

import builds
from commands import Commands
from interpreters import Interpreter, eventually, interpreters, patience
from sql import settle
from stacks import parse_backtrace
from storming import Mounted, storm

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent / "targets" / "embedder.c"
LOOKED_UP = HERE.parent.parent / "agent" / "cpython" / "look_up.h"
LIBRARIES = ["-lz", "-lexpat", "-lm", "-ldl", "-lpthread", "-lutil"]
SCRIPT = """
import sys

answer = 42

def inner(number):
    doubled = number * 2
    print("ready", flush=True)
    sys.stdin.readline()

def outer():
    inner(21)

outer()
print("done", flush=True)
sys.stdin.read()
"""
CALLS = """
import sys

def inner(number):
    doubled = number * 2
    return doubled

print("ready", flush=True)
for line in sys.stdin:
    print(inner(int(line)), flush=True)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds one, of Debian's static library: built("stripped, no PIE")."""
    directory = tmp_path_factory.mktemp("embedders")
    debian = next((i for i in interpreters() if i.source == "debian"), None)
    if not debian or not shutil.which("gcc"):
        pytest.skip("no gcc, or not Debian's python3")
    code = ("import sysconfig as s\n"
            "print(s.get_config_var('LIBPL'), s.get_path('include'), s.get_config_var('LDVERSION'))")
    libraries, include, version = subprocess.check_output(debian.command("-c", code), text=True).split()
    library = pathlib.Path(libraries) / f"libpython{version}-pic.a"
    if not library.exists():
        pytest.skip("no static libpython (python3-dev)")

    def build(kind):
        made = directory / kind.replace(", ", "-").replace(" ", "-")
        flags = {"stripped": "-s", "no PIE": "-no-pie", "packed relocations": "-Wl,-z,pack-relative-relocs",
                 "exported": "-Wl,--export-dynamic", "hidden": "-Wl,--exclude-libs,ALL",
                 "a second PyFrame_GetBack": "-DSECOND=PyFrame_GetBack"}
        subprocess.run(["gcc", "-o", made, SOURCE, f"-I{include}",
                        *(flags[word] for word in kind.split(", ") if word in flags), str(library), *LIBRARIES],
                       check=True, capture_output=True, text=True)
        return Interpreter("embedded", debian.version, str(made))
    return build


def judged(probe, target):
    """Reads all that it should say."""
    directory = probe.path / str(target.pid)
    status = (directory / "status").read_text()
    version = ".".join(map(str, target.interpreter.version[:3]))
    assert f"\nPython: {version}\n" in status and "\nSupported: yes\n" in status, status
    thread = parse_backtrace((directory / "backtrace").read_text(), target.pid).threads[target.pid]
    assert [function for function, _, _ in thread.frames] == ["inner", "outer", "<module>"], thread
    assert "doubled = 42\n" in (directory / "threads" / str(target.pid) / "frames" / "0" / "locals").read_text()


@pytest.mark.parametrize("kind", ["static", "stripped", "stripped, no PIE", "stripped, packed relocations", "hidden"])
def test_is_read(probe, built, kind):
    judged(probe, built(kind).run_source(SCRIPT))


def test_gil_kept_asleep(probe, built):
    """Who has the GIL and sleeps in C may keep it for ever: that is said soon, with the thread and its call."""
    target = built("exported").run_source("print('ready', flush=True)\n", env={"KEEPS_GIL": "1"})
    commands = Commands(probe, target.pid)
    for name, text in [("eval", "6 * 7\n"), ("breakpoints", "log source.py:1\n"), ("ctl", "record gc\n")]:
        number, words = commands.refused(name, text)
        assert number == errno.ETIMEDOUT and "the GIL was not to be had within 1 s" in words, words
        assert f"; thread {target.pid} (" in words and ") holds it and sleeps outside Python, in read: " in words, words
        assert "--enable-threads" in words, words
    target.send("")
    target.expect("done")
    assert commands.eval("6 * 7") == "42\n"
    commands.detach()
    target.send("")
    assert target.process.wait(patience(60)) == 0, target.stderr()


def refused(probe, target):
    """What is said to one who wants an agent, and that nothing was touched."""
    commands = Commands(probe, target.pid)
    settle(target)  # which reads its input for the first time
    before = pathlib.Path(f"/proc/{target.pid}/maps").read_text()
    number, words = commands.refused("ctl", "attach\n")
    assert number == errno.EOPNOTSUPP and "--export-dynamic" in words, words
    assert pathlib.Path(f"/proc/{target.pid}/maps").read_text() == before
    judged(probe, target)
    return words


@pytest.mark.parametrize("kind", ["stripped", "stripped, no PIE"])
def test_is_refused_before_anything_is_touched(probe, built, kind):
    program = built(kind)
    assert " and is stripped, " in refused(probe, program.run_source(SCRIPT))
    if kind == "stripped":
        builds.note("static libpython, stripped", program.version, look="yes", write="no", breakpoints="no")


@pytest.mark.parametrize("kind", ["static", "hidden, a second PyFrame_GetBack"])
def test_names_what_its_symtab_lacks(probe, built, kind):
    """One that is gone, and one that there are two of."""
    program = built(kind)
    if kind == "static":
        lacks = f"{program.executable}-lacks"
        subprocess.run(["objcopy", "-N", "PyFrame_GetBack", program.executable, lacks], check=True)
        program = Interpreter("embedded", program.version, lacks)
    words = refused(probe, program.run_source(SCRIPT))
    assert " has no address, or several, for PyFrame_GetBack, which an agent needs" in words, words


@pytest.mark.parametrize("kind", ["static", "static, no PIE", "hidden"])
def test_agent(probe, built, kind):
    """It does what it does elsewhere, also when it comes again."""
    target = built(kind).run_source(CALLS)
    commands = Commands(probe, target.pid)
    frame = commands.directory / "threads" / str(target.pid) / "frames" / "0"
    for number in (3, 4):
        assert commands.eval("inner(21), type(inner).__name__") == "(42, 'function')\n"
        said = commands.run("breakpoints", f"stop source.py:6 if number == {number}\n")
        assert "armed" in said, said
        target.send("7")
        target.expect("14")
        target.send(str(number))
        eventually(lambda: f"Stopped: {target.pid}\n" in (commands.directory / "status").read_text(), what="a stop")
        assert f"doubled = {2 * number}\n" in (frame / "locals").read_text()
        assert commands.run(f"threads/{target.pid}/frames/0/eval", "doubled = number * 7\n") == ""
        assert "Agent: none" in (said := commands.detach()), said
        target.expect(f"{7 * number}")
    thread = parse_backtrace((commands.directory / "backtrace").read_text(), target.pid).threads[target.pid]
    assert [function for function, _, _ in thread.frames] == ["<module>"], thread
    if kind == "static":
        builds.note("static libpython", target.interpreter.version, look="yes", write="yes", breakpoints="yes")


def test_storm(probe, built, tmp_path):
    tmp_path.chmod(0o755)
    copy = shutil.copy(built("static").executable, tmp_path / "python")
    program = Interpreter("embedded", built("static").version, copy)
    tally = storm(Mounted(probe), program, "sums, 4 threads", 16)
    assert tally.harms == [] and tally.refusals == {}, tally.refusals


def test_which_version_has_what():
    """What must be found in a program that exports nothing is what each version exports."""
    table = {name: (int(since, 16), int(until, 16) or 0xffff) for name, since, until in
             re.findall(r"X\((\w+), (0x\w+), (\w+)\)", LOOKED_UP.read_text())}
    code = "import ctypes, sys\nprint(*(name for name in sys.argv[1:] if hasattr(ctypes.pythonapi, name)))"
    assert len(table) > 50
    for interpreter in interpreters():
        version = interpreter.version[0] << 8 | interpreter.version[1]
        if version >= 0x30a:
            found = subprocess.check_output(interpreter.command("-c", code, *table), text=True).split()
            assert set(found) == {name for name, (since, until) in table.items() if since <= version <= until}


@pytest.mark.parametrize("kind", ["exported, packed relocations", "exported, no PIE"])
def test_exported(probe, built, kind):
    program = built(kind)
    target = program.run_source(builds.SCRIPT, name="tried.py")
    builds.looked_at(probe, target)
    builds.acted_in(probe, target)
    builds.ends(target)
    builds.note("static libpython, exported", program.version, look="yes", write="yes", breakpoints="yes")
