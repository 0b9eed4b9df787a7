"""`watch TENSOR`: who changed it in place, and by which operator. Under each interpreter that can import torch."""
import math
import re

import pytest

from commands import Commands
from interpreters import eventually
from sql import ask
from test_torch_tensors import Program, pythons  # noqa: F401, a fixture
from watching import needs_hardware

pytestmark = [pytest.mark.long, pytest.mark.deadline(300), needs_hardware]

# runs each line in a function of its own, whose last line it is
PROGRAM = """
import json, sys, threading, torch
from torch import nn
torch.manual_seed(1)
torch.set_num_threads(1)
model = nn.Linear(4, 3)
adam = torch.optim.Adam(model.parameters(), foreach=True)
weight, other = torch.randn(5, 6), torch.randn(5, 6)
large = torch.randn(64, 64)
def train():
    model(torch.randn(2, 4)).sum().backward()
    adam.step()
def run(statement):
    exec(compile("def writer():\\n    " + statement + "\\nwriter()\\n", "writer.py", "exec"), globals())
    return None
def run_in_thread(statement):
    thread = threading.Thread(target=run, args=(statement,))
    thread.start()
    thread.join()
train()
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


def test_watch(probe, pythons):  # noqa: F811
    for python in pythons:
        program = Program(probe, python, PROGRAM)
        program.commands = Commands(probe, program.target.pid)
        for case in operators, in_a_thread, training, where_it_moves:
            program.before = len(program.select("SELECT * FROM hits"))
            case(program)


def watch(program, line):
    program.commands.run("breakpoints", line + "\n")
    armed = re.compile(rf"^\d+: {re.escape(line)}  # hw, .*\bby (perf|ptrace)", re.M)
    eventually(lambda: armed.search((program.directory / "breakpoints").read_text()), what="a debug register")


def hits(program, n):
    """At least so many, of this case."""
    return eventually(lambda: len(found := seen_by_now(program)) >= n and found, what=f"{n} hits")


def seen_by_now(program):
    return program.select("SELECT * FROM hits ORDER BY ts, hit")[program.before:]


def operator(row):
    return re.match(r"version \d+(?: by ([^,]+))?", row["new_value"])[1]


STATEMENTS = {
    "weight.add_(other)": "add_", "weight.mul_(2)": "mul_", "weight.sub_(1)": "sub_", "weight.zero_()": "zero_",
    "weight[2] = 5": "fill_", "weight.copy_(other)": "copy_", "torch.nn.init.normal_(weight)": "normal_",
    "weight.t().clamp_(-1, 1)": "clamp_", "torch._foreach_add_([other, weight], 1)": "_foreach_add_",
    "weight[:, 1].relu_()": "relu_",
}


def operators(program):
    version = program.ask("weight._version")
    norm = program.ask("weight.norm().item()")
    watch(program, "log watch weight")
    for n, (statement, name) in enumerate(STATEMENTS.items()):
        program.ask(f"run({statement!r})")
        row = hits(program, n + 1)[n]
        assert (operator(row) or "").split(" by ")[0] == name, (statement, row)
        assert row["tid"] == str(program.target.pid)
        assert "writer (writer.py:2)" in row["stack"]
        before = float(re.search(r"norm (\S+)", row["old_value"])[1])
        after = re.search(r"norm (\S+)", row["new_value"])
        assert row["new_value"].startswith(f"version {version + n + 1} ")
        assert math.isclose(before, norm, rel_tol=1e-5, abs_tol=1e-6)
        norm = program.ask("weight.norm().item()")
        assert math.isclose(float(after[1]), norm, rel_tol=1e-5, abs_tol=1e-6), (statement, row)
    program.ask("run('other.add_(1)')")
    program.ask("run('weight + other')")
    assert len(hits(program, len(STATEMENTS))) == len(STATEMENTS)


def in_a_thread(program):
    """Of the stack of another thread than the main one less is known to be there."""
    watch(program, "log watch weight")
    for n, (statement, name) in enumerate(STATEMENTS.items()):
        program.ask(f"run_in_thread({statement!r})")
        row = hits(program, n + 1)[n]
        assert (operator(row) or "").split(" by ")[0] == name, (statement, row)
        assert row["tid"] != str(program.target.pid)


def training(program):
    """Whoever trains: the optimizer changes a parameter, autograd its gradient."""
    watch(program, "log watch model.weight")
    program.ask("train()")

    def changed():
        found = seen_by_now(program)
        return found if any("addcdiv_" in (operator(row) or "") for row in found) else None
    rows = eventually(changed, what="the optimizer's change")
    assert all("step" in row["stack"] and operator(row) for row in rows)
    watch(program, "log watch model.weight.grad")
    known = len(seen_by_now(program))
    program.ask("model(torch.randn(2, 4)).sum().backward()")
    row = hits(program, known + 1)[-1]
    assert "backward" in row["stack"] and operator(row) == "add_"


def where_it_moves(program):
    """Another tensor under the same name is followed; conditions see the operator."""
    watch(program, "log watch large if new.operator != 'add_'")
    program.ask("run('large.add_(1)')")
    program.ask("run('large.mul_(1000)')")
    row, = hits(program, 1)
    assert operator(row) == "mul_"
    program.ask("globals().update(large=torch.ones(64, 64))")
    eventually(lambda: "moved 1 time" in (program.directory / "breakpoints").read_text(), what="its new place")

    def seen():  # once it is armed there
        program.ask("run('large.fill_(9999)')")
        return any(operator(row) == "fill_" for row in seen_by_now(program))
    eventually(seen, what="the hit")
