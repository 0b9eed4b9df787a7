"""`profile torch`: PyTorch's own profiler for some steps of a program that never heard of us.

Needs an interpreter that can import torch: Debian's python3-torch."""
import collections
import json
import re

import pytest

from commands import Commands, Refused
from interpreters import eventually
from sql import ask
from test_torch import torch_python  # noqa: F401, a fixture

pytestmark = [pytest.mark.long, pytest.mark.deadline(300)]

# answers each line with the repr of what it evaluates to
PROGRAM = """
import builtins, collections, gc, os, sys, threading, time, types, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters())
raw = torch.optim.Adam([torch.nn.Parameter(torch.zeros(3))])
profiler = torch.autograd.profiler
def step():
    loss = model(torch.randn(8, 16)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
def steps(n):
    for _ in range(n):
        step()
    return sum(p.double().sum().item() for p in model.parameters())
def forked(n):
    steps(n)
    child = os.fork()
    if not child:
        os._exit(torch.autograd._profiler_enabled())
    return os.waitpid(child, 0)[1]
def own(n):  # what the program profiles itself, and how it comes out
    steps(1)
    with profiler.profile(use_kineto=True) as seen:
        for _ in range(n):
            step()
    return collections.Counter(event.name for event in seen.function_events)
def raw(n):  # the same, before PyTorch drops what looks to it as if it were there twice
    steps(1)
    one = profiler.profile(use_kineto=True)
    one._prepare_trace()
    one._start_trace()
    for _ in range(n):
        step()
    return collections.Counter(event.name() for event in torch.autograd._disable_profiler().events())
def ours():  # what is in its way; what merely is there for the next time isn't
    gc.collect()
    functions = [one for one in gc.get_objects() if type(one) is types.FunctionType]
    hooks = torch.nn.modules.module
    return (torch.autograd._profiler_enabled(), len(hooks._global_forward_pre_hooks), len(hooks._global_forward_hooks),
            type(os.fork).__name__, type(profiler._enable_profiler).__name__,
            [one.__qualname__ for one in functions if one.__code__.co_filename.startswith("<probefs torch") and
             "<locals>" in one.__qualname__])
print("ready", flush=True)
for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""
NOTHING = (False, 0, 0, "builtin_function_or_method", "builtin_function_or_method", [])


class Program:
    def __init__(self, probe, python):
        self.target = python.run_source(PROGRAM)
        self.commands = Commands(probe, self.target.pid)
        self.torch = probe.path / str(self.target.pid) / "torch"

    def ask(self, line):
        self.target.send(line)
        answer = self.target.readline(120)
        assert answer, self.target.stderr()
        return eval(answer, {"Counter": collections.Counter})

    def profile(self, rest=""):
        return self.commands.run("ctl", f"profile torch {rest}\n")

    def rows(self):
        return ask(self.commands.directory / "query", "SELECT * FROM torch_profile ORDER BY ts, duration DESC")

    def done(self):
        def off():
            return re.search(r"^Record: torch_profile off \d+ rows=[1-9]",
                             (self.commands.directory / "ctl").read_text(), re.M)
        eventually(off, 60, "the end of the profile")
        return self.rows()


@pytest.fixture
def program(probe, torch_python):  # noqa: F811
    return Program(probe, torch_python)


def test_five_steps(probe, torch_python, program):  # noqa: F811
    """As PyTorch says of the same steps of the same program, which computes the same to the last bit, and has nothing
    of ours in it afterwards."""
    alone = Program(probe, torch_python)
    expected = alone.ask("steps(20)"), alone.ask("raw(4)"), alone.ask("steps(9)")
    assert not (program.torch / "top").exists()
    program.ask("steps(3)")
    assert "5 steps" in program.profile()
    first = program.ask("steps(17)")
    assert first == expected[0]
    rows = program.done()
    assert program.ask("ours()") == NOTHING
    assert [row["name"] for row in rows if row["kind"] == "step"] == [str(number) for number in range(6, 11)]
    seen = collections.Counter(row["name"] for row in rows if row["kind"] == "op")
    own = expected[1]
    assert {name: count / 5 for name, count in seen.items() if name.startswith(("aten::", "autograd::"))} == \
        {name: count / 4 for name, count in own.items() if name.startswith(("aten::", "autograd::"))}
    begin, end = (float(next(row for row in group if row["kind"] == "step")["ts"]) for group in (rows, rows[::-1]))
    assert all(begin - 0.001 <= float(row["ts"]) for row in rows)
    trace = json.loads((program.torch / "trace.json").read_text())["traceEvents"]
    assert collections.Counter(event["name"] for event in trace if event.get("cat") == "op") == seen
    assert {event["pid"] for event in trace} == {program.target.pid}
    assert sorted(round(event["ts"]) for event in trace if event["ph"] == "X") == \
        pytest.approx(sorted(round(float(row["ts"]) * 1e6) for row in rows), abs=101)  # CSV has 15 digits
    head, _, body = (program.torch / "top").read_text().partition("\n\n")
    assert head.splitlines()[0] == "Steps: 5" and head.splitlines()[2] == f"Events: {sum(seen.values())}"
    lines = [line.split(" ", 4) for line in body.splitlines()[1:]]
    assert {name: int(calls) for _, _, calls, _, name in lines} == seen
    totals = collections.Counter()
    for row in rows:
        totals[row["name"]] += float(row["duration"]) * (row["kind"] == "op")
    assert all(float(total) == pytest.approx(totals[name], abs=1e-5) for _, total, _, _, name in lines)
    assert all(-1e-9 <= float(mine) <= float(total) + 1e-9 for mine, total, *_ in lines)
    assert program.ask("(raw(4), steps(9))") == (own, expected[2])
    assert "2 steps" in program.profile("steps=2")
    program.ask("steps(5)")
    eventually(lambda: program.done()[-1]["run"] == "2", what="the second one")
    assert (program.torch / "top").read_text().startswith("Steps: 2\n")


def test_the_programs_own(program):
    """Its own profiler, and children that it forks, come first; the steps that are left follow."""
    program.ask("steps(3)")
    program.profile("steps=6")
    program.ask("steps(2)")
    assert program.ask("own(3)")["aten::addmm"] == 6
    assert program.ask("forked(2)") == 0
    program.ask("steps(10)")
    rows = program.done()
    assert len([row for row in rows if row["kind"] == "step"]) == 6
    assert {row["run"] for row in rows} == {"1"}
    assert program.ask("ours()") == NOTHING


def test_ended_in_the_midst(program):
    """It ends where its thread comes by; a detach takes all of it out, and what isn't asked for any more isn't seen."""
    program.ask("steps(3)")
    program.profile("steps=100")
    program.ask("steps(5)")
    assert program.ask("torch.autograd._profiler_enabled()")
    with pytest.raises(Refused, match="there is a profile already: 9[5-9] of 100 steps to come"):
        program.profile()
    program.target.send("[model(torch.randn(8, 16)).sum().item() * 0 or time.sleep(0.01) for _ in range(300)] and 1")
    program.commands.detach()
    program.target.expect("1", 120)
    assert program.ask("ours()") == NOTHING
    program.profile("steps=2")
    program.ask("steps(7)")
    program.done()
    program.profile("steps=3")
    program.profile("off")
    assert program.ask("steps(3) and ours()") == NOTHING


def test_thread_that_does_not_come_by(program):
    """What can't be ended from outside ends itself at the next step, and is gone then, even if the agent is."""
    program.ask("steps(3)")
    program.profile("steps=100")
    program.ask("steps(5)")
    program.commands.detach()
    assert program.ask("torch.autograd._profiler_enabled()")
    program.ask("steps(2)")
    assert program.ask("ours()") == NOTHING


def test_mistakes(program):
    """One of ours ends the profile and nothing else."""
    program.ask("steps(3)")
    program.ask("setattr(profiler.profile, '_start_trace', 5)")
    program.profile("steps=3")
    expected = program.ask("steps(5)")
    assert isinstance(expected, float)
    eventually(lambda: re.search("^Record: torch_profile off .*rows=0",
                                 (program.commands.directory / "ctl").read_text(), re.M), what="its end")
    assert program.ask("ours()")[:2] == (False, 0)


def test_refusals(probe, torch_python, program):  # noqa: F811
    for rest, words in (("steps=0", "1 to 100"), ("steps=101", "1 to 100"), ("steps=x", "1 to 100"), ("now", "steps=N"),
                        ("steps=3 4", "profile torch")):
        with pytest.raises(Refused, match=words):
            program.profile(rest)
    target = torch_python.run_source("import sys; print('ready', flush=True); sys.stdin.read()")
    with pytest.raises(Refused, match="not imported torch"):
        Commands(probe, target.pid).run("ctl", "profile torch\n")
