"""torch_trace: a running PyTorch training loop that never heard of us (tests/targets/training.py).

Needs an interpreter that can import torch: Debian's python3-torch, here that of Debian 12."""
import errno
import functools
import json
import os
import random
import re
import select
import subprocess
import time

import pytest

import agent_client as agent
import agents
import interpreters as machine
import ring_file
from agents import clients, connect, library
from commands import Commands, Refused
from fetched import FULL
from interpreters import eventually
from sql import ask

pytestmark = [pytest.mark.long, pytest.mark.deadline(300)]
MEASURES = {"recording", "shadow"}  # what recording itself costs: a case of its own
PROGRAMS = ["transformer", "branches", "gan", "closures", "wrapped", "deep", "workers"]


# Prints the version of the PyTorch that is built for an interpreter. To import it takes seconds of a processor.
VERSION = """
import importlib.machinery, importlib.util, pathlib
place = pathlib.Path(importlib.util.find_spec("torch").origin).parent
assert any((place / f"_C{suffix}").exists() for suffix in importlib.machinery.EXTENSION_SUFFIXES)
exec((place / "version.py").read_text())
print(__version__)
"""


@functools.lru_cache(maxsize=None)
def with_torch():
    """The interpreters that have torch, with its version: Debian 12's own first, then the newest."""
    found = []
    for python in sorted(reversed(machine.interpreters()), key=lambda python: python.source != "debian"):
        python = machine.with_proc(python)
        said = subprocess.run(python.command("-c", VERSION), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]})
        if said.returncode == 0 and python.version >= (3, 10):
            found.append((python, tuple(int(part) for part in re.findall(r"\d+", said.stdout)[:2])))
    return found or pytest.skip("no interpreter here can import torch (python3-torch)")


@pytest.fixture(scope="session", params=["usual", "newer"] if FULL else None)
def torch_python(request):
    """The first one; tests/run --full has the cases run with PyTorch 2 as well."""
    usual = with_torch()[0][0]
    if getattr(request, "param", "usual") == "usual":
        return usual
    newer = request.getfixturevalue("newer_torch")
    return newer if newer is not usual else pytest.skip("PyTorch 2 is the usual one here")


def is_newer(python):
    """Whether it has PyTorch 2."""
    return dict(with_torch())[python] >= (2, 0)


@pytest.fixture(scope="session")
def newer_torch():
    """One with PyTorch 2."""
    return next((python for python, version in with_torch() if version >= (2, 4)), None) or \
        pytest.skip("no interpreter here has PyTorch 2 (tests/sid-root makes one)")


class Training:
    def __init__(self, python, program, *args, watched=True):
        env = {"PYTHONPATH": library(python)[1], "AGENT": "1", **agents.QUIET} if watched else {}
        self.target = python.run("training.py", program, *args, env=env)
        self.client = connect(self.target) if watched else None

    def ask(self, command):
        self.target.send(command)
        answer = self.target.readline(120)
        assert answer, self.target.stderr()
        return json.loads(answer)

    def record(self, action=agent.ON, **options):
        return self.client.wait(self.client.start_switch("torch_trace", action, **options))

    def on(self, rate=1.0, **options):
        done = self.record(rate=rate, **options)
        assert done.error == 0, done.words
        return done.words

    def off(self):
        done = self.record(agent.OFF)
        assert done.error == 0, done.words
        return done.words

    def read(self, but=frozenset(MEASURES)):
        """(rows, how many are not there)."""
        with ring_file.rings(self.target.pid)["torch_trace"] as ring:
            rows, lost = ring.read()
            return [row for row in rows if row.stage not in but], lost + ring.dropped

    @property
    def rows(self):
        return self.read()[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.client:
            self.client.close()
        self.target.close()


def by_step(rows):
    """{step: its rows in the order of seq}."""
    steps = {}
    for row in rows:
        steps.setdefault(row.step, []).append(row)
    for found in steps.values():
        found.sort(key=lambda row: row.seq)
    return steps


def whole(steps):
    """Those that have ended."""
    return {number: rows for number, rows in steps.items() if rows[0].stage == "iteration"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_is_changed(torch_python, program):
    """The same losses and parameters, to the last bit, as of a process that is alone."""
    with Training(torch_python, program, watched=False) as alone, Training(torch_python, program) as seen:
        expected = alone.ask("run 3"), alone.ask("run 9"), alone.ask("run 3"), alone.ask("state")
        first = seen.ask("run 3")
        seen.on()
        second = seen.ask("run 9")
        words = seen.off()
        assert words == ""
        assert (first, second, seen.ask("run 3"), seen.ask("state")) == expected
        assert len(whole(by_step(seen.rows))) >= 4


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_trace(torch_python, program):
    with Training(torch_python, program) as seen:
        seen.ask("run 2")
        before = seen.ask("traces")
        seen.on()
        seen.ask("run 6")
        assert len(seen.ask("traces")["functions"]) > 0
        seen.off()
        assert seen.ask("traces") == before
        assert seen.ask("foreign") == []
        seen.on(0.5)
        seen.ask("run 5")
        assert seen.client.detach().error == 0
        assert seen.ask("traces") == before
        assert seen.ask("foreign") == []


def test_rows(torch_python):
    """Against the program's own clocks around each forward()."""
    with Training(torch_python, "transformer") as seen:
        seen.ask("run 3")
        assert "no optimizer has made its step yet" in seen.on(0.25)
        said = seen.ask("oracle 30")
        assert "7 steps recorded, step 33 of Adam" in seen.on()
        steps = by_step(seen.rows)
        assert list(steps) == [8, 12, 16, 20, 24, 28, 32]  # as Adam counts them
        names, excess = said["names"], []
        leaves = [name for name in said["calls"]
                  if name and not any(other.startswith(name + ".") for other in said["calls"])]
        for number, rows in steps.items():
            assert [row.seq for row in rows] == list(range(len(rows)))
            assert [row.time_offset for row in rows] == sorted(row.time_offset for row in rows)
            assert (rows[0].module, rows[0].stage, rows[0].time_offset) == (None, "iteration", 0)
            assert (rows[-1].module, rows[-1].stage) == ("Adam", "step")
            forward = [row for row in rows if row.stage == "forward"]
            called = [name or "Transformer" for name in names if name in said["calls"]]
            assert sorted(row.module for row in forward) == sorted(called + ["CrossEntropyLoss"])
            assert {row.module for row in rows if row.stage == "backward"} == {row.module for row in forward}
            for row in forward:
                if row.module in leaves:
                    theirs = said["calls"][row.module][number - 4]
                    assert theirs <= row.duration
                    excess.append(row.duration - theirs)
            nested(rows, "forward")
            nested(rows, "backward")
            for row in rows:
                assert row.allocated is row.max_allocated is row.cached is row.max_cached is None
                assert 0 <= row.time_offset <= row.time_offset + row.duration <= rows[0].duration + 1e-9
        assert len(excess) == 7 * len(leaves) and sorted(excess)[len(excess) // 2] < 1e-3


def nested(rows, stage):
    """A module's children are called while it is."""
    spans = {row.module: (row.time_offset, row.time_offset + row.duration) for row in rows if row.stage == stage}
    for name, (begin, end) in spans.items():
        parent = name.rpartition(".")[0] or "Transformer"
        if name in ("Transformer", "CrossEntropyLoss"):
            continue
        while parent not in spans:  # a ModuleList
            parent = parent.rpartition(".")[0]
        assert spans[parent][0] <= begin <= end <= spans[parent][1] + 1e-9, (name, stage)


def test_order_of_backward(torch_python):
    """That in which PyTorch's own hooks, which are part of the graph, say that they end."""
    with Training(torch_python, "transformer", watched=False) as alone:
        expected = alone.ask("order")
    with Training(torch_python, "transformer") as seen:
        seen.on()
        seen.ask("run 8")
        seen.off()
        rows = max(whole(by_step(seen.rows)).items())[1]
        leaves = [row for row in rows if row.stage == "backward" and row.module in expected]
        leaves.sort(key=lambda row: (row.time_offset + row.duration, row.seq))
        assert [row.module for row in leaves] == [name for name in expected if name in
                                                  {row.module for row in leaves}]
        assert len(leaves) >= len(expected) - 1 > 10  # the embedding's input has no gradient


def test_hard_modules(torch_python):
    with Training(torch_python, "branches") as seen:
        seen.on()
        seen.ask("run 8")
        seen.off()
        shares = {}
        for rows in list(whole(by_step(seen.rows)).values())[1:]:
            calls = {stage: [row.module for row in rows if row.stage == stage] for stage in ("forward", "backward")}
            assert calls["forward"].count("first") == 2 and calls["backward"].count("first") == 2
            assert "frozen" in calls["backward"] and "lstm" in calls["backward"]
            assert "unused" in calls["forward"] and "unused" not in calls["backward"]
            assert "same" in calls["forward"] and "same" not in calls["backward"]
            assert "script" in calls["forward"] and "script" in calls["backward"]
            assert "picky" not in calls["forward"] and "picky.(Linear)" in calls["forward"]
            assert calls["forward"].count("again.0") == 4  # in both backward passes again, and in eval()
            assert calls["forward"].count("Branches") == calls["backward"].count("Branches") == 1
            for name in "q", "k", "v":
                row, = [row for row in rows if row.stage == "backward" and row.module == name]
                assert row.duration > 0
                shares.setdefault(name, []).append(row.duration / rows[0].duration)
        assert all(min(each) < 0.5 for each in shares.values()), shares


def test_several_optimizers(torch_python):
    with Training(torch_python, "gan") as seen:
        seen.on(0.5)
        seen.ask("run 12")
        seen.off()
        steps = whole(by_step(seen.rows))
        assert list(steps) == [4, 6, 8, 10, 12]
        for rows in steps.values():
            optimizers = [row.module for row in rows if row.stage == "step"]
            assert sorted(optimizers) == ["Adam", "Adam#2"]
            assert rows[-1].module == optimizers[-1]  # the larger one leads: its step() ends the step
            assert {row.module for row in rows if row.stage == "forward"} == {
                "Sequential", "Sequential.0", "Sequential#2", "0", "1", "2", "BCEWithLogitsLoss"}


def test_ranks_agree(torch_python):
    """SGD doesn't count its steps."""
    with Training(torch_python, "wrapped") as early, Training(torch_python, "wrapped") as late:
        early.on(0.25)
        early.ask("run 5")
        late.ask("run 5")
        late.on(0.25)
        for seen in early, late:
            seen.ask("run 15")
        assert list(by_step(early.rows))[-3:] == list(by_step(late.rows))[-3:] == [12, 16, 20]
        assert "DistributedDataParallel" in {row.module for row in late.rows}


def test_off_in_the_middle(torch_python):
    """While a module waits, and its graph is kept."""
    gate, inside = torch_python.directory / "gate", torch_python.path("gate")
    with Training(torch_python, "blocking", inside, watched=False) as alone:
        expected = alone.ask("run 12")
    with Training(torch_python, "blocking", inside) as seen:
        losses = seen.ask("run 4")
        before = seen.ask("traces")
        seen.on()
        losses += seen.ask("run 4")
        gate.touch()
        seen.target.send("run 2")
        seen.target.expect("waiting")
        assert seen.off() == ""
        assert "0" in {row.module for row in by_step(seen.rows)[9]}  # what the step that hangs did so far
        gate.unlink()
        losses += json.loads(seen.target.readline())
        assert seen.ask("traces") == before
        assert seen.ask("foreign") == []
        count = len(seen.rows)
        assert losses == expected[:10]
        assert len(seen.rows) == count


def test_optimizer_made_meanwhile(torch_python):
    """Of a class that was never used before: PyTorch wraps what we put there."""
    with Training(torch_python, "closures") as seen:
        seen.on()
        seen.ask("run 8")
        assert {"LBFGS", "Plain"} <= {row.module for row in seen.rows if row.stage == "step"}
        seen.off()
        assert seen.ask("traces")["functions"] == []
        assert seen.ask("foreign") == []


@pytest.mark.parametrize("program", ["branches", "gan"])
def test_on_and_off_again(torch_python, program):
    """While it trains, at any moment."""
    with Training(torch_python, program, watched=False) as alone, Training(torch_python, program) as seen:
        assert seen.ask("run 1") == alone.ask("run 1")
        before = seen.ask("traces")
        times = 0
        while times <= 5 or not seen.rows:
            seen.target.send("run 400")
            while not select.select([seen.target.process.stdout], [], [], 0)[0]:
                seen.on([1, 0.5][times % 2])
                time.sleep(random.uniform(0, 0.03))
                assert seen.off() == ""
                times += 1
            assert json.loads(seen.target.readline()) == alone.ask("run 400")
        assert seen.ask("traces") == before


def test_torch_is_hidden(torch_python):
    """From others that import it."""
    with Training(torch_python, "transformer") as seen:
        before = seen.ask("traces")
        seen.on()
        seen.ask("run 5")
        steps = ["exec hidden = sys.modules.pop('torch')",
                 "exec [iteration() for iteration in [transformer()] for _ in range(4)]"]
        for step in reversed(steps) if is_newer(torch_python) else steps:  # each step of PyTorch 2 imports torch
            seen.ask(step)
        assert seen.off() == ""
        seen.ask("exec sys.modules['torch'] = hidden; optimizers.pop(); models.pop()")
        after = seen.ask("traces")
        assert after["hooks"] == before["hooks"] and after["functions"] == []
        assert seen.ask("foreign") == []


def test_many_modules(torch_python):
    with Training(torch_python, "deep") as seen:
        seen.on(size=16 << 20)
        seen.ask("run 6")
        words = seen.on()
        rows, lost = seen.read()
        assert "3 steps recorded" in words and lost == 3 * 2002
        assert "6006 calls of modules beyond 10000 a step not recorded" in words
        for found in whole(by_step(rows)).values():
            assert 10000 < len(found) <= 20002


def test_children(torch_python):
    """Processes of a DataLoader, and a child that goes on training, write nothing."""
    with Training(torch_python, "workers") as seen:
        seen.on()
        seen.ask("run 15")
        assert set(by_step(seen.rows)) <= set(range(1, 17))
        assert len(whole(by_step(seen.rows))) >= 12


def test_attached(probe, torch_python):
    """The agent comes into a loop that runs, and goes."""
    with Training(torch_python, "transformer", watched=False) as alone, \
            Training(torch_python, "transformer", watched=False) as seen:
        assert seen.ask("run 1") == alone.ask("run 1")
        before = seen.ask("traces")
        commands = Commands(probe, seen.target.pid)
        seen.target.send("run 800")
        said = commands.run("ctl", "record torch on rate=0.1\n")
        assert "steps whose number is a multiple of 10" in said and "Record: torch_trace on" in said

        def recorded():
            if select.select([seen.target.process.stdout], [], [], 0)[0]:  # it was faster than whoever attached
                assert json.loads(seen.target.readline(120)) == alone.ask("run 800")
                seen.target.send("run 800")
            return "Adam" in ask_sql(probe, seen, "SELECT DISTINCT module FROM python.torch_trace")
        eventually(recorded, what="steps that are recorded")
        commands.run("ctl", "record torch off\n")
        commands.detach()
        assert json.loads(seen.target.readline(120)) == alone.ask("run 800")
        assert seen.ask("traces") == before


def test_no_torch(probe, any_python):
    target = any_python.run("spinner.py")
    with pytest.raises(Refused) as refused:
        Commands(probe, target.pid).run("ctl", "record torch on\n")
    assert refused.value.errno == errno.ENOENT
    assert "this program has not imported torch (yet)" in refused.value.words


def test_compiled(torch_python):
    """What torch.compile() has made isn't made anew: the modules are not looked at."""
    if "True" not in subprocess.run(torch_python.command("-c", "import torch; print(hasattr(torch, 'compile'))"),
                                    capture_output=True, stdin=subprocess.DEVNULL).stdout.decode():
        pytest.skip("torch.compile() is of PyTorch 2.0")
    with Training(torch_python, "compiled", watched=False) as alone, Training(torch_python, "compiled") as seen:
        expected = alone.ask("run 10")
        losses = seen.ask("run 2")
        before = seen.ask("traces")
        seen.on()
        losses += seen.ask("run 8")
        assert losses == expected
        assert "torch.compile() would compile them anew" in seen.on()
        assert {row.stage for row in seen.rows} == {"step", "iteration"}
        seen.off()
        assert seen.ask("traces") == before
    with Training(torch_python, "compiled", "all") as seen:
        seen.ask("run 2")
        done = seen.record()
        assert done.error == errno.EOPNOTSUPP and "compiled an optimizer's step()" in done.words


@pytest.mark.parametrize("program", ["transformer", "wrapped", "workers"])
def test_its_end(torch_python, program):
    """The program ends as it would, while it is recorded."""
    with Training(torch_python, program) as seen:
        before = seen.target.stderr()  # gloo of PyTorch 2 says there how it connects
        assert before == "" or is_newer(torch_python) and program == "wrapped"
        seen.on()
        seen.ask("run 6")
        assert agents.ended(seen.target, before) == 0


def test_our_mistakes(torch_python):
    """If PyTorch isn't what we take it for, the program goes on, and the recording ends."""
    with Training(torch_python, "transformer", watched=False) as alone:
        expected = alone.ask("run 8")
    with Training(torch_python, "transformer") as seen:
        losses = seen.ask("run 1")
        before = seen.ask("traces")
        seen.ask('exec M = torch.nn.modules.module; M.register = M.register_module_forward_hook; '
                        'del M.register_module_forward_hook')
        seen.on()
        assert losses + seen.ask("run 7") == expected
        place = seen.client.record.read().rings["torch_trace"]
        assert not place["on"] and place["error"] == 5
        assert "before, it ended by itself: AttributeError" in seen.on()
        seen.ask("run 8")
        assert "it ended by itself: AttributeError" in seen.off()
        seen.ask("exec M.register_module_forward_hook = M.register; del M.register")
        assert seen.ask("traces") == before


def test_exceptions_of_the_program(torch_python):
    """One that a signal's handler raises while our code runs is the program's."""
    with Training(torch_python, "transformer") as seen:
        seen.on()
        seen.ask("exec exec(" + repr(SIGNALS) + ", globals())")
        raised, through_us = seen.ask("exec answer = len(raised), inside")
        assert raised > 100 and through_us > 0
        assert "steps recorded" in seen.on()
        assert len(seen.ask("run 5")) == 5


SIGNALS = """
import random, signal, traceback
raised, inside, trying = [], 0, False
def handler(*_):
    if trying:  # another thread may get the signal, and get it late
        raise TimeoutError("mine")
signal.signal(signal.SIGALRM, handler)
iteration = transformer()
for _ in range(3):
    iteration()  # Adam's state is not half made by an exception in its first step, and who leads is known
while not inside or len(raised) < 200:
    try:
        trying = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 4e-3))
        iteration()
        signal.setitimer(signal.ITIMER_REAL, 0)
        trying = False
    except TimeoutError as error:
        trying = False
        torch.set_grad_enabled(True)  # it may have come within the __exit__ of no_grad()
        assert error.args == ("mine",)
        raised.append(error)
        inside += any("<probefs torch" in frame.filename for frame in traceback.extract_tb(error.__traceback__)[-2:])
        error.__traceback__ = None
"""

FAKE = """
import types
class Event:
    made, now, ready = 0, 0.0, False
    device = 0
    def __init__(self, enable_timing): assert enable_timing; Event.made += 1
    def record(self): Event.now += 1.0; self.at = Event.now
    def query(self): return Event.ready
    def elapsed_time(self, other): assert Event.ready; return other.at - self.at
class Parameter(torch.nn.Parameter):
    is_cuda = True
cuda = types.SimpleNamespace(
    is_initialized=lambda: True, is_current_stream_capturing=lambda: capturing[0], current_device=lambda: 0,
    Event=Event,
    memory_stats_as_nested_dict=lambda: {"allocated_bytes": {"all": {"current": 1, "peak": 2}},
                                         "reserved_bytes": {"all": {"current": 3, "peak": 4}}})
capturing = [False]
torch.cuda = cuda
model = torch.nn.Sequential(torch.nn.Linear(2, 2))
models.append(model)
adam = optimizer(torch.optim.SGD, [Parameter(torch.ones(1))] + list(model.parameters()), 0.1)
def iteration():
    adam.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    adam.step()
"""


def test_gpu(torch_python):
    """Times come from events that are read later, when they have passed. There is no GPU here: torch.cuda is
    replaced by something that counts."""
    with Training(torch_python, "transformer") as seen:
        seen.ask("exec exec(" + repr(FAKE) + ", globals())")
        seen.on(0.5)
        step = "exec [iteration() for _ in range(%d)]"
        seen.ask(step % 6)
        rows = seen.rows
        steps = whole(by_step(rows))
        assert steps and all(row.duration is row.time_offset is None for row in rows)
        assert all((row.allocated, row.max_allocated, row.cached, row.max_cached) == (1, 2, 3, 4) for row in rows)
        seen.ask("exec Event.ready = True")
        seen.ask(step % 1)
        steps = whole(by_step(seen.rows))
        for found in steps.values():
            first = found[0]
            assert first.time_offset == 0 and first.duration == pytest.approx(9e-3)
            for row in found[1:]:  # an event at each beginning and end, those of two modules at once being one
                assert 0 < row.time_offset < row.time_offset + row.duration < first.duration
        seen.ask("exec n = Event.made")
        seen.ask(step % 8)
        seen.ask("exec assert Event.made == n")  # they are used again
        seen.ask("exec Event.ready = False")
        seen.ask(step % 20)
        seen.ask("exec assert Event.made < 8 * n")  # what is never ready is given up
        seen.ask("exec capturing[0] = True; n = Event.made, Event.now")
        seen.ask(step % 6)
        seen.ask("exec assert (Event.made, Event.now) == n")
        assert seen.off() == ""


def test_sql(probe, torch_python):
    """The debugging guide's question."""
    with Training(torch_python, "transformer") as seen:
        seen.on()
        seen.ask("run 10")
        said = ask_sql(probe, seen, """
            SELECT module, stage, avg(duration) AS avg_time FROM python.torch_trace WHERE step >
            (SELECT max(step) - 5 FROM python.torch_trace) GROUP BY module, stage ORDER BY avg_time DESC LIMIT 10""")
        lines = said.splitlines()
        assert lines[0] == "module,stage,avg_time" and len(lines) == 11
        steps = sorted(by_step(seen.read(but=())[0]).items())[-5:]
        means = {}
        for _, rows in steps:
            for row in rows:
                means.setdefault((row.module or "", row.stage), []).append(row.duration)
        expected = sorted(((sum(v) / len(v), *k) for k, v in means.items()), reverse=True)[:10]
        for line, (mean, module, stage) in zip(lines[1:], expected):
            assert line.split(",")[:2] == [module, stage]
            assert float(line.split(",")[2]) == pytest.approx(mean)


def ask_sql(probe, training, text):
    return Commands(probe, training.target.pid).run("query", text)


# a loader that takes 20 ms a batch, and collectives of a group of one
WAITS = """
import os, sys, time, torch, torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work
from torch.utils.data import DataLoader, Dataset, dataloader
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meet", rank=0, world_size=1)
class Samples(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, number):
        time.sleep(0.005)
        return torch.full((4,), float(number))
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
def epoch():
    for batch in DataLoader(Samples(), batch_size=4):
        optimizer.zero_grad()
        model(batch).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        work = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
        optimizer.step()
    dist.barrier()
def stand():
    return [one.__dict__[name] for one, name in ((ProcessGroup, "allreduce"), (ProcessGroup, "barrier"), (Work, "wait"),
                                                 (dataloader._BaseDataLoaderIter, "__next__"))]
before = stand()
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        epoch()
    print(sum(p.sum().item() for p in model.parameters()), stand() == before, flush=True)
"""


def test_loader_and_collectives(probe, torch_python):
    """How long the batch took, and each collective, in the order in which they came; and what recording cost."""
    alone, seen = (torch_python.run_source(WAITS) for _ in range(2))
    commands = Commands(probe, seen.pid)
    for target in alone, seen:
        target.send("2")
        answer = target.readline(60)
    commands.run("ctl", "record torch on rate=0.5\n")
    for target in alone, seen:
        target.send("10")
    expected = alone.readline(60).split()[0]
    assert seen.readline(60).split()[0] == expected, "to the last bit"
    commands.run("ctl", "record torch off\n")
    for target in alone, seen:
        target.send("2")
    assert seen.readline(60) == alone.readline(60) and answer.endswith("True")
    steps = {}
    for row in ask(commands.directory / "query", "SELECT * FROM torch_trace ORDER BY step, seq"):
        steps.setdefault(int(row["step"]), []).append(row)
    shadows = {number: rows for number, rows in steps.items() if rows[0]["stage"] == "shadow"}
    steps = {number: rows for number, rows in steps.items() if rows[0]["stage"] == "iteration"}
    assert len(steps) >= 5 and {number - 1 for number in shadows} <= set(steps) and shadows
    for rows in steps.values():
        stages = [(row["stage"], row["module"]) for row in rows if row["stage"] != "backward"]
        barrier = [("collective", "barrier")] if ("collective", "barrier") in stages else []
        assert stages == [("iteration", ""), *barrier, ("loader", "Samples"), ("forward", "Linear"),
                          *[("collective", "allreduce")] * 3, ("step", "SGD"), ("recording", "")]
        whole = float(rows[0]["duration"])
        loader = next(float(row["duration"]) for row in rows if row["stage"] == "loader")
        assert 0.02 <= loader <= whole
        assert all(0 < float(row["duration"]) < whole for row in rows if row["stage"] in ("collective", "recording"))
    assert all(len(rows) == 1 and float(rows[0]["duration"]) > 0.02 for rows in shadows.values())


def test_layers(probe, torch_python):
    """Of some modules in each step, in turn of all, with what they took and no other name."""
    with Training(torch_python, "transformer", watched=False) as seen:
        commands = Commands(probe, seen.target.pid)
        seen.ask("run 3")
        for line, words in (("torch on layers=2", "0.001 to 1"), ("gc on layers=0.5", "only torch has layers")):
            with pytest.raises(Refused, match=words):
                commands.run("ctl", f"record {line}\n")
        commands.run("ctl", "record torch on rate=1\n")
        seen.ask("run 4")
        everything = "SELECT step, stage, module FROM torch_trace WHERE stage IN ('forward', 'backward')"
        all_of = {(row["stage"], row["module"]) for row in ask(commands.directory / "query", everything)}
        last = max(int(row["step"]) for row in ask(commands.directory / "query", everything))
        commands.run("ctl", "record torch on rate=1 layers=0.25\n")
        seen.ask("run 9")
        steps = {}
        for row in ask(commands.directory / "query", everything + f" AND step > {last + 1} AND step < {last + 10}"):
            steps.setdefault(row["step"], set()).add((row["stage"], row["module"]))
        assert all(0 < len(found) < len(all_of) for found in steps.values()), steps
        assert set().union(*steps.values()) == all_of
