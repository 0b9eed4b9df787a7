"""What README and the man page say to type when something is wrong, typed at programs in which it is."""
import pathlib
import re
import subprocess

import pytest

from commands import shell
from interpreters import eventually
from mount import REPOSITORY

ACTS = pytest.mark.python(minimum=(3, 10))
SCRIPT = "troubled.py"


def recipes(text):
    """{the trouble, as a comment says it: its lines}"""
    blocks = re.findall(r"^ *# ((?:it|a|an) .*?)[:?].*\n((?: *\S.*\n)+)", text, re.M)
    return {trouble: [line.strip() for line in lines.splitlines()] for trouble, lines in blocks}


README = recipes((REPOSITORY / "README.md").read_text())


class Recipe:
    """Runs its lines, one after the other, as a user would."""

    def __init__(self, probe, target, trouble):
        self.probe, self.pid, self.lines = probe, target.pid, iter(README[trouble])

    def type(self, statuses=(0,)):
        line = next(self.lines).replace("/probe/exited/1234", f"{self.probe.path}/exited/{self.pid}")
        said = shell(f"p={self.probe.path}/{self.pid}; {line}")
        assert said.returncode in statuses and said.stderr == "", (line, said)
        return said.stdout

    def type_until(self, wanted):
        """A line that may be typed too early."""
        line = next(self.lines)
        self.lines = iter([line, *self.lines])

        def has_come():
            said = self.type(statuses=(0, 1))  # grep finds nothing yet
            self.lines = iter([line, *self.lines])
            return re.search(wanted, said) and said
        said = eventually(has_come, what=f"{wanted} of {line}")
        next(self.lines)
        return said

    def end(self):
        assert list(self.lines) == []


def line_of(text):
    lines = (pathlib.Path(__file__).parent.parent / "targets" / SCRIPT).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_same_in_man_page():
    man = subprocess.run(["man", "-l", str(REPOSITORY / "contrib" / "probefs.5")], capture_output=True, text=True,
                         env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "200"}).stdout \
        if pathlib.Path("/usr/bin/man").exists() else (REPOSITORY / "contrib" / "probefs.5").read_text()
    assert len(README) == 7 and all(len(lines) == 5 for lines in README.values())
    assert recipes(man) == README


def test_it_hangs(probe, any_python):
    target = any_python.run(SCRIPT, "hangs")
    recipe = Recipe(probe, target, "it hangs")
    assert re.fullmatch(r"Stuck: deadlock of (\d+) and (\d+), see locks\n", recipe.type_until("Stuck: deadlock"))
    first, *_ = recipe.type().splitlines()
    assert first.startswith("deadlock: ") and "shop.inventory_lock" in first and "shop.ledger_lock" in first
    stacks = re.findall(r"^Thread \d+ \((\w+)\)", recipe.type(), re.M)
    assert set(stacks[:2]) == {"order", "refund"} and "MainThread" in stacks[2:]
    assert recipe.type().count("    number = 7\n") == 2
    assert re.search(r"^\S+/globals/shop:retries = 3$", recipe.type(), re.M)
    recipe.end()


@ACTS
def test_it_is_slow(probe, any_python):
    target = any_python.run(SCRIPT, "is_slow")
    recipe = Recipe(probe, target, "it is slow")
    assert "is_slow" in recipe.type_until("(?s)MainThread.*price")
    top = recipe.type().splitlines()
    assert top[0].startswith("self% total%")
    assert any("is_slow" in line and float(line.split()[1]) > 50 for line in top[1:])
    assert recipe.type().splitlines()[1].startswith("MainThread,")
    recipe.type()
    assert recipe.type_until(r"(?m)^[1-9]\d*,").splitlines()[0] == "count(*),sum(duration)"
    recipe.end()


@ACTS
def test_it_leaks(probe, any_python):
    target = any_python.run(SCRIPT, "leaks")
    recipe = Recipe(probe, target, "it leaks")
    recipe.type()
    recipe.type_until(r"(?m)^\+\d{3,} \+\d+ __main__\.Session$")
    line = line_of("shop.cache[len(shop.cache)] = Session(number)")
    recipe.type_until(rf"(?m)leaks \([^;]*{SCRIPT}:{line}\)")
    recipe.type_until(r"(?m)^\d{4,} dict 0x[0-9a-f]+ \[\d+\] < module shop cache$")
    assert re.search(r"(?m)^\d{4,} \d+ __main__.Session$", recipe.type_until("Session"))
    recipe.end()


@ACTS
def test_a_value_is_wrong(probe, any_python):
    target = any_python.run(SCRIPT, "is_wrong")
    recipe = Recipe(probe, target, "a value is wrong")
    recipe.type()
    assert SCRIPT in recipe.type_until("stopped by watchpoint 1 at ")
    # the writer waits some milliseconds for its stop: without a processor that comes some steps of 10 ms later
    step = int(re.search(r"^step = (\d+)$", recipe.type(), re.M)[1])
    assert (step - 49) % 50 < 40
    _, hit = recipe.type().splitlines()
    func, file, line, old, new = hit.split(",")
    assert (func, int(line), new) == ("update", line_of("weights[2] = 1.0"), "nan") and old != "nan"
    recipe.type()
    eventually(lambda: probe.read(target.pid, "threads", target.pid, "ctl") == "running\n", what="going on")
    recipe.end()


@ACTS
def test_an_exception_is_swallowed(probe, any_python):
    target = any_python.run(SCRIPT, "swallows")
    recipe = Recipe(probe, target, "an exception is swallowed")
    recipe.type()
    top = recipe.type_until("KeyError")
    assert re.search(rf"KeyError +\S*{SCRIPT}:{line_of('return row[column]')} lookup +'price'", top)
    said = recipe.type_until(r"(\n.+){3}").splitlines()
    assert len(said) == 4 and all(line.startswith("lookup,") and "'id': 7" in line for line in said[1:])
    recipe.type()
    eventually(lambda: "stopped" in probe.read(target.pid, "threads", target.pid, "ctl"), what="a stop")
    assert "stopped by breakpoint 1 at " in recipe.type()
    recipe.end()


@pytest.mark.python(minimum=(3, 12))
def test_a_loop_is_blocked(probe, python):
    target = python.run(SCRIPT, "blocks_the_loop")
    recipe = Recipe(probe, target, "a loop of asyncio is blocked")
    recipe.type_until(rf"Loop .*(busy|blocked for .*) in handler .*{SCRIPT}:\d+\), by task handler-")
    recipe.type_until(r"\(Task-1\) waits for Task handler-\d+")
    recipe.type()
    line = line_of("what ought to be awaited")
    recipe.type_until(rf"(?m)^0\.\d+,handler-\d+,handler,\S*{SCRIPT},{line}$")
    assert next(recipe.lines).startswith("tail -f -n +1 $p/events ")
    with subprocess.Popen(["head", "-1", probe.path / str(target.pid) / "events"], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL) as events:  # it can't seek there, and says so
        assert '"blocked"' in events.stdout.readline()
    recipe.end()


@ACTS
def test_it_crashes(probe, any_python):
    target = any_python.run(SCRIPT, "crashes")
    recipe = Recipe(probe, target, "it crashes")
    recipe.type()
    target.send("now")
    target.process.wait()
    eventually((probe.path / "exited" / str(target.pid) / "crash").is_dir)
    assert recipe.type().endswith("KeyError: 'price'\n")
    assert re.search(rf"^#0  lookup \(\S*{SCRIPT}:\d+\)\n    row = {{'id': 7}}\n    column = 'price'$", recipe.type(),
                     re.M)
    recipe.type()
    assert "Exit: status 1" in recipe.type()
    recipe.end()
