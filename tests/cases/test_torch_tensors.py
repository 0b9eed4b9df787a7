"""Tensors, modules and optimizers of PyTorch, read from outside, against what PyTorch says itself.

Under each interpreter that can import torch: 1.13 of Debian 12, 2.x of Debian sid."""
import csv
import io
import json
import math

import pytest

import interpreters as machine
from interpreters import eventually
from sql import ask
from test_torch import with_torch

pytestmark = [pytest.mark.long, pytest.mark.deadline(300)]

# answers each line with what it evaluates to, as JSON
PROGRAM = """
import json, sys, torch, warnings
warnings.simplefilter("ignore")
from torch import nn
torch.manual_seed(1)
torch.set_num_threads(1)
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.norm = nn.BatchNorm1d(2 * width)
        self.down = nn.Linear(2 * width, width, bias=False)
        self.scale = nn.Parameter(torch.ones(1, 2, 1, 2, 1, 2, 1))
    def forward(self, x):
        return self.down(self.norm(self.up(x)).relu()) * self.scale.mean()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.tied = self.blocks[0].up
        self.frozen = nn.Parameter(torch.randn(3, 5), requires_grad=False)
        self.bare = nn.Parameter(torch.tensor(2.5))
        self.bare.requires_grad_(False)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
model, second, third = Net(), nn.Linear(2, 3), nn.Linear(3, 2)
adam = torch.optim.Adam([{"params": model.blocks[0].parameters()},
                         {"params": model.blocks[1].parameters(), "lr": 0.5, "weight_decay": 0.25}], lr=0.001)
sgd = torch.optim.SGD(second.parameters(), lr=0.125, momentum=0.5)
for _ in range(3):
    adam.zero_grad(); sgd.zero_grad()
    model(torch.randn(16, 8)).sum().backward()
    second(torch.randn(4, 2)).sum().backward()
    adam.step(); sgd.step()
with torch.no_grad():
    model.blocks[1].up.weight[2, 3] = float("nan")
    model.blocks[1].up.weight[4, 5] = -float("inf")
    second.weight.grad[1, 1] = float("nan")
base = torch.randn(40, 30)
views = {"plain": base, "transposed": base.t(), "sliced": base[3:30:2, 5::3], "expanded": base[:1].expand(7, 30),
         "scalar": torch.tensor(3.0), "empty": torch.zeros(0, 4), "middle": torch.randn(9, 11, 13)[:, 2:7, ::4]}
for name in "float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool complex64".split():
    numbers = torch.arange(600)
    views[name] = (numbers % 97 - 40).to(getattr(torch, name)) if name != "bool" else numbers % 3 == 0
views["float16"][:3] = torch.tensor([float("inf"), 6e-8, -65504.0])
views["large"] = torch.randn(300000)
def number(value):
    return value if value == value and abs(value) != float("inf") else repr(value)
def values(t):
    t = t.detach().double() if not t.is_complex() else t.detach().abs().double()
    rest = t[~t.isnan()]
    return [number(t.norm().item()), int(t.isnan().sum()), int(t.isinf().sum()),
            number(rest.min().item()) if rest.numel() else None, number(rest.max().item()) if rest.numel() else None]
def said(t):
    return [str(list(t.shape)), str(t.dtype)[6:], str(t.device), t.numel() * t.element_size()]
def parameters(model):
    return {name: said(p) + [int(p.requires_grad), p._version, p.data_ptr(),
                             p.grad.data_ptr() if p.grad is not None else None, id(p), values(p),
                             values(p.grad)[:3] if p.grad is not None else None]
            for name, p in model.named_parameters()}
loss = model(torch.randn(4, 8))
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


@pytest.fixture(scope="module")
def pythons():
    """Those that can import torch."""
    return [python for python, _ in with_torch()]


class Program:
    def __init__(self, probe, python, source=PROGRAM):
        self.target = python.run_source(source, ready=False)
        self.target.expect("ready", 120)
        self.directory = probe.path / str(self.target.pid)

    def ask(self, line):
        self.target.send(line)
        answer = self.target.readline(120)
        assert answer, self.target.stderr()
        return json.loads(answer)

    def select(self, statement):
        return ask(self.directory / "query", statement)


def test_what_pytorch_says_itself(probe, pythons):
    for python in pythons:
        program = Program(probe, python)
        for case in parameters, version, tensors, memory, optimizers, modules, nothing_is_read_unasked:
            case(program)


def is_close(seen, expected):
    if expected is None or isinstance(expected, str) and expected == "nan":
        return seen == ""
    return math.isclose(float(seen), float(expected), rel_tol=1e-6, abs_tol=1e-12)


PARAMETERS = ["shape", "dtype", "device", "bytes", "requires_grad", "version", "data", "grad_data", "address"]
VALUES = ["norm", "nan", "inf", "min", "max"]


def parameters(program):
    for model in "model", "second", "third":
        expected = program.ask(f"parameters({model})")
        known, = program.select(f"SELECT model FROM torch_parameters WHERE address = "
                                f"{next(iter(expected.values()))[8]}")
        rows = {row["name"]: row for row in program.select(
            f"SELECT *, {', '.join(VALUES)}, grad_norm, grad_nan, grad_inf FROM torch_parameters "
            f"WHERE model = '{known['model']}'")}
        assert list(rows) == list(expected)
        for path, (*facts, values, gradient) in expected.items():
            row = rows[path]
            assert [row[column] for column in PARAMETERS] == ["" if fact is None else str(fact) for fact in facts], path
            assert all(map(is_close, [row[column] for column in VALUES], values)), (path, row, values)
            assert all(map(is_close, [row["grad_" + column] for column in VALUES[:3]], gradient or [None] * 3)), path
    assert sorted(row["model"] for row in program.select("SELECT DISTINCT model FROM torch_parameters")) == \
        ["Linear", "Linear#2", "Net"]
    broken = program.select("SELECT name FROM torch_parameters WHERE nan + inf > 0")
    assert [row["name"] for row in broken] == ["blocks.1.up.weight"]
    assert [row["name"] for row in program.select("SELECT name FROM torch_parameters WHERE grad_nan > 0")] == ["weight"]


def version(program):
    """Each change in place is counted where `counter` says."""
    def counted():
        row, = program.select("SELECT version FROM torch_parameters WHERE name = 'blocks.0.down.weight'")
        return int(row["version"])
    before = counted()
    assert before == program.ask("model.blocks[0].down.weight._version")
    program.ask("[model.blocks[0].down.weight.detach().add_(0) is None for _ in range(5)]")
    assert counted() == before + 5


def tensors(program):
    tensors = program.ask("{name: said(t) + [t.data_ptr(), id(t)] for name, t in views.items()}")
    values = program.ask("{name: values(t) for name, t in views.items()}")
    rows = {row["address"]: row for row in program.select(f"SELECT *, {', '.join(VALUES)} FROM torch_tensors")}
    for name, (*facts, data, address) in tensors.items():
        row = rows[str(address)]
        assert [row[column] for column in PARAMETERS[:4]] == list(map(str, facts)), name
        assert not data or row["data"] == str(data), name
        assert row["holder"] == "", name
        assert all(map(is_close, [row[column] for column in VALUES], values[name])), (name, row, values[name])
    assert rows[str(program.ask("id(loss)"))]["holder"] == "activation"
    count = {row["holder"]: int(row["n"]) for row in
             program.select("SELECT holder, count(*) AS n FROM torch_tensors GROUP BY holder")}
    assert count["parameter"] == program.ask("sum(len(list(m.parameters())) for m in (model, second, third))")
    assert count["buffer"] == program.ask("len(list(model.buffers()))")
    assert count["gradient"] == program.ask("sum(p.grad is not None for m in (model, second) for p in m.parameters())")
    assert count["optimizer"] == program.ask("sum(torch.is_tensor(one) for o in (adam, sgd) for state in "
                                             "o.state.values() for one in state.values())")
    shared = program.select("SELECT storage, count(*) AS n FROM torch_tensors GROUP BY storage HAVING n > 3")
    assert int(shared[0]["n"]) == 4  # plain and its three views


def memory(program):
    row, = program.select("SELECT * FROM torch_memory")
    storages = program.select("SELECT DISTINCT storage, storage_bytes FROM torch_tensors WHERE storage")
    assert int(row["storages"]) == len(storages)
    assert int(row["allocated"]) == sum(int(one["storage_bytes"]) for one in storages)
    assert row["device"] == "cpu" and int(row["largest"]) == 300000 * 4
    expected = program.ask("[sum(t.numel() * t.element_size() for t in all) for all in ["
                           "[p for m in (model, second, third) for p in m.parameters()],"
                           "[p.grad for m in (model, second) for p in m.parameters() if p.grad is not None],"
                           "list(model.buffers())]]")
    assert [int(row[name]) for name in ("parameters", "gradients", "buffers")] == expected


def optimizers(program):
    rows = program.select("SELECT * FROM torch_optimizers ORDER BY optimizer, param_group")
    expected = program.ask("[[type(o).__name__, i, g['lr'], g['weight_decay'], len(g['params']), id(o)] "
                           "for o in (adam, sgd) for i, g in enumerate(o.param_groups)]")
    assert [[row["optimizer"], int(row["param_group"]), float(row["lr"]), float(row["weight_decay"]),
             int(row["parameters"]), int(row["address"])] for row in rows] == expected
    sizes = program.ask("[sum(one.numel() * one.element_size() for state in o.state.values() for one in state.values() "
                        "if torch.is_tensor(one)) for o in (adam, sgd)]")
    assert [int(row["state_bytes"]) for row in rows] == [sizes[0], sizes[0], sizes[1]]
    assert [row["step"] for row in rows] == ["3.0", "3.0", ""]


def modules(program):
    text = (program.directory / "torch" / "modules").read_text()
    first, *others = text.split("\n\n")
    named = program.ask("[[name, type(m).__name__] for name, m in model.named_modules()]")
    lines = first.splitlines()
    assert lines[0].startswith(f"Net {len(named)} modules frozen float32[3, 5] cpu, bare float32[] cpu")
    assert [line.split()[:2] for line in lines[1:]] == named[1:]
    assert "blocks.0.down Linear weight float32[8, 16] cpu" in lines
    assert any("running_mean float32[16] cpu (buffer)" in line for line in lines)
    assert sorted(other.split()[0] for other in others) == ["Linear", "Linear#2"]


def nothing_is_read_unasked(program):
    """The values stay out of SELECT *, and so of the files."""
    for table in "torch_parameters", "torch_tensors":
        with open(program.directory / "tables" / f"{table}.csv", newline="") as file:
            head = next(csv.reader(io.StringIO(file.read())))
        assert "version" in head and not set(VALUES) & set(head)


def test_without_torch(probe, any_python):
    target = any_python.run("idle.py") if (machine.TARGETS / "idle.py").exists() else any_python.run_source(
        "print('ready', flush=True)\ninput()\n")
    directory = probe.path / str(target.pid)
    assert not (directory / "torch").exists()
    assert eventually(lambda: ask(directory / "query", "SELECT count(*) AS n FROM torch_tensors"))[0]["n"] == "0"


def test_while_it_trains(probe, pythons):
    """What is read of a loop that doesn't stand still is never anything that isn't there."""
    for python in pythons:
        program = Program(probe, python, PROGRAM.replace("for line in sys.stdin:", """
def train():
    while True:
        adam.zero_grad()
        model(torch.randn(16, 8)).sum().backward()
        adam.step()
import threading
threading.Thread(target=train, daemon=True).start()
for line in sys.stdin:"""))
        expected = {name: facts[0] for name, facts in program.ask(
            "{name: [str(list(p.shape))] for name, p in model.named_parameters()}").items()}
        shapes = set(expected.values())
        for _ in range(5):
            rows = program.select("SELECT name, shape, norm, grad_norm FROM torch_parameters WHERE model = 'Net'")
            assert {row["name"]: row["shape"] for row in rows if row["shape"]} == \
                {row["name"]: expected[row["name"]] for row in rows if row["shape"]}
            names = {row["name"] for row in rows}
            torn = {name for name in names if name.startswith("[torn: ")}  # what is left out is said
            assert names - torn == set(expected) or torn and names - torn < set(expected), names
            held = program.select("SELECT shape FROM torch_tensors WHERE holder IN ('parameter', 'gradient', "
                                  "'optimizer')"
                                  " AND model IN ('Net', 'Adam')")
            assert {row["shape"] for row in held} <= shapes | {"[]"}


def test_while_it_is_used(probe, pythons):
    """Who only refers to things changes nothing about them: nothing is left out, as what changes each time it is read
    is."""
    for python in pythons:
        program = Program(probe, python, PROGRAM.replace("for line in sys.stdin:", """
model = nn.Sequential(*[nn.Linear(2, 3) for _ in range(300)])
def use():
    things = [*model.modules(), *model.parameters(), *vars(model)]
    while True:
        more = list(things)
        more = None
import threading
threading.Thread(target=use, daemon=True).start()
for line in sys.stdin:"""))
        assert program.ask("len(model)") == 300
        for _ in range(5):
            rows = program.select("SELECT name FROM torch_parameters WHERE model = 'Sequential'")
            assert [row["name"] for row in rows] == [f"{i}.{name}" for i in range(300) for name in ("weight", "bias")]
            text = (program.directory / "torch" / "modules").read_text()
            assert text.startswith("Sequential 301 modules\n") and "# torn" not in text
