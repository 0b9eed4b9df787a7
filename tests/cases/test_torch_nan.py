"""`nan [MODEL]`: the first thing in a model that isn't finite. Under each interpreter that can import torch."""
import errno
import json
import re

import pytest

from commands import Commands
from interpreters import eventually
from sql import ask, refused
from test_torch_tensors import Program, pythons  # noqa: F401, a fixture

pytestmark = [pytest.mark.long, pytest.mark.deadline(300)]

# answers each line with what it evaluates to, as JSON; train(HOW) makes one step, in which what HOW says isn't finite
PROGRAM = """
import json, sys, threading, torch
from torch import nn
torch.manual_seed(1)
torch.set_num_threads(1)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
    def forward(self, x):
        return {"y": [self.down(self.up(x).relu())]}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.tail = nn.Linear(8, 8)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)["y"][0]
        return self.tail(x)
def begin():
    global net, other, adam
    torch.manual_seed(1)
    net, other = Net(), nn.Linear(8, 8)
    adam = torch.optim.Adam([*net.parameters(), *other.parameters()], lr=0.01)
def train(how=""):
    x = torch.randn(4, 8)
    if how == "input":
        x[1, 2] = float("nan")
    if how == "forward":
        with torch.no_grad():
            net.blocks[1].up.weight[2, 3] = float("inf")
    y = net(x)
    z = other(x)
    loss = (y * 0).sqrt().sum() if how == "backward" else y.sum() + (z / 0 if how == "other" else z).sum()
    adam.zero_grad()
    loss.backward()
    adam.param_groups[0]["lr"] = float("inf") if how == "step" else 0.01
    adam.step()
    return None
def run(how):
    begin()
    return train(how)
def results(steps):
    begin()
    for _ in range(steps):
        train()
    return [p.view(-1)[::7].tolist() for p in net.parameters()] + [torch.randn(2).tolist()]
def left():
    hooks = torch.nn.modules.module
    return [len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks),
            sum(len(p._backward_hooks or ()) for p in [*net.parameters(), *other.parameters()])]
begin()
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""
# HOW: (stage, model, name, the line of the program)
STAGES = {
    "input": ("input", "Net", "blocks.0.up", 'return {"y"'),
    "forward": ("forward", "Net", "blocks.1.up", 'return {"y"'),
    "backward": ("backward", "Net", "tail.bias", "loss.backward()"),
    "step": ("step", "Net", "blocks.0.up.weight", "adam.step()"),
}


def line_of(text):
    return next(str(number) for number, line in enumerate(PROGRAM.splitlines(), 1) if text in line)


def test_nan(probe, pythons):  # noqa: F811
    for python in pythons:
        program = Program(probe, python, PROGRAM)
        program.commands = Commands(probe, program.target.pid)
        for case in changes_nothing, each_stage, only_some, held, mistakes, goes_away:
            program.before = len(program.select("SELECT * FROM hits"))
            case(program)


def hits(program, n):
    """Of this case, once there are so many."""
    def seen():
        rows = program.select("SELECT * FROM hits ORDER BY ts, hit")[program.before:]
        return rows if len(rows) >= n else None
    return eventually(seen, what=f"{n} hits")


def captured(row):
    return {name: eval(value) for name, value in json.loads(row["captured"]).items()}


def state(program):
    return (program.directory / "breakpoints").read_text()


def changes_nothing(program):
    """Looking has no part in what is computed, and leaves no hook."""
    expected = program.ask("results(20)")
    program.commands.run("breakpoints", "log nan\n")
    assert re.match(r"\d+: log nan x 1  # armed, 0 hits, ", state(program))
    assert program.ask("results(20)") == expected
    assert program.ask("left()") == [1, 1, 12]
    assert re.match(r"\d+: log nan x 1  # armed, 0 hits, ", state(program))
    (program.directory / "breakpoints").write_text("")
    assert program.ask("left()") == [0, 0, 0] and program.ask("results(20)") == expected


def each_stage(program):
    for n, (how, (stage, model, name, line)) in enumerate(STAGES.items()):
        program.commands.run("breakpoints", "log nan\n")
        program.ask(f"run({how!r})")
        row = hits(program, n + 1)[n]
        said = captured(row)
        assert (said.pop("stage"), said.pop("model"), said.pop("name")) == (stage, model, name), how
        assert said["nan"] + said["inf"] > 0 and re.fullmatch(r"float32\[[\d, ]+\] cpu", said["shape"])
        assert set(said) == {"nan", "inf", "shape"}
        assert row["lineno"] == line_of(line) and "train (" in row["stack"] and "<probe" not in row["stack"]
        assert " # done, 1 hits" in state(program)
        assert program.ask("left()") == [0, 0, 0], "the first hit was the last one"
        (program.directory / "breakpoints").write_text("")
    assert len(hits(program, len(STAGES))) == len(STAGES)


def only_some(program):
    """Of one model; as often as is said; with the program's variables and what was found."""
    program.ask("begin()")
    program.commands.run("breakpoints", "log nan net.blocks {name, stage, tensor.shape[1], x.shape[0]} x 3\n"
                                        "log nan other if stage == 'backward' and nan + inf > 3\n")
    program.ask("train('other')")
    program.ask("train('forward')")
    rows = hits(program, 4)
    assert [list(captured(row).values()) for row in rows if "tensor.shape[1]" in row["captured"]] == [
        ["1.up", "forward", 16, 4], ["1.down", "input", 8, 4], ["1", "forward", 8, 4]]
    assert not [row for row in rows if row["error"]]
    (row,) = [row for row in rows if "model" in row["captured"]]
    said = captured(row)
    assert (said["model"], said["stage"], said["nan"] + said["inf"] > 3) == ("Linear", "backward", True)
    assert said["name"] in ("weight", "bias") and row["lineno"] == line_of("loss.backward()")
    (program.directory / "breakpoints").write_text("")
    assert program.ask("left()") == [0, 0, 0]


def held(program):
    """`stop` holds the thread where it happens, and steps go on from there."""
    program.ask("begin()")
    threads = program.directory / "threads" / str(program.target.pid)
    program.commands.run("breakpoints", "stop for 5m nan {name}\n")
    program.target.send("train('forward')")
    eventually(lambda: "stopped by breakpoint" in (threads / "ctl").read_text(), what="the stop")
    frames = re.findall(r"#\d+  (\S+) \(", (threads / "backtrace").read_text())
    own = [frame for frame in frames if "Module" not in frame and "[native]" not in frame]
    assert "Block.forward" in own and not any("probe" in frame for frame in frames)
    said = program.commands.run("threads/%d/eval" % program.target.pid, "x.shape[0], bool(x.isfinite().all())\n")
    assert said == "(4, True)\n", "as it was given to the module"
    program.commands.run("threads/%d/ctl" % program.target.pid, "next\n")
    eventually(lambda: "stopped by a step" in (threads / "ctl").read_text(), what="the next line")
    assert "<probe" not in (threads / "backtrace").read_text()
    number, why = refused(threads / "ctl", "jump 1\n")
    assert number == errno.EINVAL
    (program.directory / "breakpoints").write_text("")
    program.commands.run("ctl", "continue\n")
    assert json.loads(program.target.readline(120)) is None
    assert hits(program, 1)[0]["stopped"] == "1"


def mistakes(program):
    for line, number, why in (
            ("log nan nosuch", errno.EINVAL, "it has no value now: NameError: name 'nosuch' is not defined"),
            ("log nan adam", errno.EINVAL, "that is no torch.nn.Module, but of type Adam"),
            ("log nan net {name", errno.EINVAL, ""), ("log nan net..x", errno.EINVAL, "")):
        error, said = refused(program.directory / "breakpoints", line + "\n")
        assert error == number and why in said and "^" in said
    assert program.ask("left()") == [0, 0, 0]


def goes_away(program):
    """With the agent, from a thread that is held, too."""
    program.ask("begin()")
    program.commands.run("breakpoints", "stop for 5m nan\n")
    program.target.send("train('forward')")
    thread = program.directory / "threads" / str(program.target.pid) / "ctl"
    eventually(lambda: "stopped by breakpoint" in thread.read_text())
    assert "Agent: none" in program.commands.run("ctl", "detach\n") or \
        "Agent: ended" in (program.directory / "ctl").read_text()
    assert json.loads(program.target.readline(120)) is None
    assert program.ask("left()") == [0, 0, 0]
    assert program.ask("results(3)") == program.ask("results(3)")


def test_without_torch(probe, any_python):
    target = any_python.run_source("print('ready', flush=True)\ninput()\n")
    number, said = refused(probe.path / str(target.pid) / "breakpoints", "log nan\n")
    assert number == errno.ENOENT and said.startswith("this program has not imported torch (yet)")
    assert not ask(probe.path / str(target.pid) / "query", "SELECT * FROM breakpoints WHERE state != 'removed'")
