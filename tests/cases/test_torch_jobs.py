"""Real ranks of torch.distributed (gloo, CPU) that misbehave: what one command says of them.

Needs an interpreter that can import torch: Debian's python3-torch."""
import errno
import json
import os
import random
import re

import pytest

from commands import Commands
from interpreters import eventually
from sql import ask, reply
from test_all_backtrace import groups
from test_jobs import links, status
from test_torch import newer_torch, torch_python  # noqa: F401

pytestmark = [pytest.mark.long, pytest.mark.deadline(300)]
WORLD, BAD = 4, 3  # ranks, the last of which misbehaves
ONE = {"OMP_NUM_THREADS": "1"}

# CASE WORLD BAD PORT HOW: one rank of a job, or what starts them; rank BAD does at its fifth step what CASE says
RANKS = """
import ctypes, os, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

case, world, bad, port, how = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]

class Samples(Dataset):
    def __init__(self, rank):
        self.rank = rank
    def __len__(self):
        return 1 << 20
    def __getitem__(self, i):
        if case == "loader" and self.rank == bad and i == 5:
            decode_image()
        return torch.ones(4)

def decode_image():
    time.sleep(100000)

def evaluate(group):
    dist.barrier(group=group)

def hang_in_c():
    ctypes.PyDLL(None).sleep(100000)

def reduce_gradients(gradient):
    dist.all_reduce(gradient)

def train_wrapped(rank):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    for step in range(1 << 20):
        if step == 5 and rank == bad:
            decode_image()
        model(torch.ones(4, 8)).sum().backward()

def wait_to_be_told():
    sys.stdin.readline()

def train_sharded(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (world,))
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(7):
        model(torch.ones(4, 8) * (rank + 1)).sum().backward()
        if step == 5 and rank == bad:
            wait_to_be_told()
        optimizer.step()
        optimizer.zero_grad()

def train_functionally(rank):
    from torch.distributed import _functional_collectives as functional
    for step in range(1 << 20):
        if step == 5 and rank == bad:
            wait_to_be_told()
        reduced = functional.all_reduce(torch.ones(3, 2), "sum", dist.group.WORLD) + 1

def train(rank):
    if how == "tcp":
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    else:
        dist.init_process_group("gloo", timeout=timedelta(seconds=1234.5))
    other = dist.new_group(timeout=timedelta(minutes=2))
    if case == "wrapped":
        train_wrapped(rank)
    if case == "newer":
        train_sharded(rank)
        train_functionally(rank)
    if case == "raise":
        sys.stdin.readline()
        pair = dist.new_group([1, 3])
        if rank == 1:
            dist.send(torch.ones(2, 3, dtype=torch.int64), 3, group=pair)
        if rank == 3:
            dist.recv(torch.ones(2, 3, dtype=torch.int64), 1, group=pair)
    loader = DataLoader(Samples(rank), batch_size=1, num_workers=1 if case == "loader" else 0)
    for step, batch in enumerate(loader):
        loss = torch.full((1,), float(rank))
        if step == 5 and rank == bad:
            if case == "skip":
                evaluate(other)
            if case == "raise":
                raise ValueError(f"bad sample in batch {step}")
            if case == "native":
                hang_in_c()
        if step == 6:
            print("stepped", flush=True)
        reduce_gradients(batch)
        time.sleep(0.01)

if __name__ == "__main__":
    torch.set_num_threads(1)
    if how == "env":
        print("ready", flush=True)
        train(int(os.environ["RANK"]))
    else:
        import torch.multiprocessing as mp
        print("ready", flush=True)
        mp.spawn(train, nprocs=world)
"""


@pytest.fixture
def ranks(torch_python, probe):  # noqa: F811
    """Starts a job; its name. ranks.targets: what was started."""
    def start(case, how="env", python=torch_python, world=WORLD, **more):
        port = random.randrange(20000, 30000)
        args = (case, world, world - 1, port, how)
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world), **ONE, **more}
        start.targets = []
        for rank in range(world) if how == "env" else [0]:
            own = {**env, "RANK": str(rank)} if how == "env" else ONE
            start.targets.append(python.run_source(RANKS, *args, name="ranks_of_torch.py", env=own))
        return f"127.0.0.1:{port}"
    return start


def stacks(probe, job):
    """Without the wrapper that PyTorch 2 has around each collective."""
    head, said, last = groups((probe.path / "jobs" / job / "backtrace").read_text())
    return head, {who: (state, [frame for frame in frames if frame != "_exception_logger.<locals>.wrapper"])
                  for who, (state, frames) in said.items()}, last


def all_wait(probe, job, where="reduce_gradients"):
    """The groups of stacks, once the ranks but the bad one wait in a collective for good."""
    def stand():
        _, said, _ = stacks(probe, job)
        return said if any(who.startswith("ranks 0-2 (3)") and where in frames
                           for who, (_, frames) in said.items()) else None
    return eventually(stand, 120, "ranks 0-2 in one place")


def collectives(probe, job):
    """{group, or "" for none that is known: {who: what is said of them}}"""
    said, group = {}, None
    for line in (probe.path / "jobs" / job / "collectives").read_text().splitlines():
        if line.startswith("  "):
            who, _, what = line.strip().partition(": ")
            said[group][who] = what
        elif line.startswith(("group ", "Of no known group:")):
            group = line.removeprefix("Of no known group:")
            said[group] = {}
    return said


def test_a_rank_in_another_collective(probe, ranks):
    job = ranks("skip")
    eventually(lambda: "evaluate" in str(stacks(probe, job)[1]), 120, "rank 3 in its barrier")
    said = all_wait(probe, job)
    first, (_, frames) = next(iter(said.items()))
    assert first == "rank 3 (1)" and frames[:2] == ["barrier", "evaluate"], "the culprit is on top"
    _, frames = said["ranks 0-2 (3)"]
    assert frames[:2] == ["all_reduce", "reduce_gradients"]
    said = eventually(lambda: "Backend" in status(probe, job) and status(probe, job),
                      what="what torch says of its group")
    assert (said["World"], said["Here"], said["Missing"], said["Backend"]) == ("4", "0-3", "none", "gloo")
    # natively, too: gloo's own threads are in what they do for it
    folded = (probe.path / "jobs" / job / "stacks.folded").read_text()
    assert re.search(r"gloo::\w*barrier|ProcessGroupGloo::AsyncWork::execute", folded)
    assert reply(probe.path / "jobs" / job / "eval", "step\n") == "ranks 0-3 (4): 5\n"
    # who is held is told how long the others wait
    said = reply(probe.path / "jobs" / job / "ctl", "on 0-1 pause for 5m\n")
    assert re.search(r"^ranks 0-1 \(2\):\n(  .*\n)+  Timeouts: 120 s of group 1; 1234.5 s of group 0\n", said), said
    reply(probe.path / "jobs" / job / "ctl", "continue\n")
    # and in one glance
    said = collectives(probe, job)
    assert list(said) == ["group 0 (default), gloo, 4 ranks", "group 1, gloo, 4 ranks"]
    of_all, of_other = said.values()
    assert list(of_all) == list(of_other) == ["ranks 0-2 (3)", "rank 3 (1)"]
    assert re.fullmatch(r"in all_reduce float32\[1, 4\]( for \S+ s)?, by reduce_gradients \(.*ranks_of_torch.py:\d+\)",
                        of_all["ranks 0-2 (3)"])
    assert re.fullmatch(r"in barrier of group 1( for \S+ s)?, by evaluate \(.*ranks_of_torch.py:\d+\)",
                        of_all["rank 3 (1)"])
    assert re.match(r"in barrier( for \S+ s)?, by evaluate", of_other["rank 3 (1)"])
    assert re.match(r"in all_reduce float32\[1, 4\] of group 0\b", of_other["ranks 0-2 (3)"])
    # who waits in what PyTorch has counted last has its number, unless that one was begun by somebody else
    reply(probe.path / "jobs" / job / "ctl", "on 0 record collectives on\n")
    in_one = r"in all_reduce{} float32\[1, 4\]"

    def of_rank_0(number):
        return next((what for group, said in collectives(probe, job).items() if group.startswith("group 0 ")
                     for who, what in said.items() if who.startswith("rank") and "0" in who
                     and re.match(in_one.format(number), what)), None)
    eventually(lambda: of_rank_0(r" #\d+"), what="its number")
    reply(probe.path / "jobs" / job / "eval", "on 0\nopen = dist.all_reduce(torch.ones(2), async_op=True)\n")
    eventually(lambda: of_rank_0("") and not of_rank_0(r" #\d+"), what="that it has none")


def test_ranks_whose_collectives_no_python_calls(probe, ranks):
    """DistributedDataParallel's reducer: native frames say what Python's don't."""
    job = ranks("wrapped")
    said = eventually(lambda: collectives(probe, job).get("", {})
                      if "decode_image" in str(stacks(probe, job)[1]) else None, 120, "rank 3 decodes")
    said = eventually(lambda: "c10d::" in collectives(probe, job)[""].get("ranks 0-2 (3)", "")
                      and collectives(probe, job)[""], 120, "the others in the reducer")
    assert re.match(r"in c10d::Reducer::finalize_backward \[native\]( for \S+ s)?, by train_wrapped \(",
                    said["ranks 0-2 (3)"])
    assert re.match(r"in decode_image \(.*ranks_of_torch.py:\d+\) \[\w+\]", said["rank 3 (1)"])
    # what it wraps is there under its names, with each rank's gradients
    directory = probe.path / "jobs" / job
    norms = reply(directory / "eval", "on 1\n[p.grad.norm().item() for p in model.parameters()]\n")
    rows = ask(directory / "query", "SELECT name, shape, grad_norm FROM torch_parameters WHERE rank = 1")
    assert [(row["name"], row["shape"]) for row in rows] == [("module.weight", "[8, 8]"), ("module.bias", "[8]")]
    assert [float(row["grad_norm"]) for row in rows] == pytest.approx(eval(norms.partition(": ")[2]), rel=1e-5)
    assert (directory / "ranks" / "1" / "torch" / "modules").read_text().startswith("DistributedDataParallel 2 modules")


def test_newer_ways(probe, ranks, newer_torch):  # noqa: F811
    """FSDP, whose parameters are spread over the ranks, and functional collectives, which return at once: PyTorch 2."""
    job = ranks("newer", python=newer_torch, world=2)
    directory = probe.path / "jobs" / job

    def stand(where):
        said = eventually(lambda: job in os.listdir(probe.path / "jobs") and collectives(probe, job), 240, "the group")
        said = eventually(lambda: where in str(said := collectives(probe, job)) and "wait_to_be_told" in str(said)
                          and said, 240, where)
        return {who: what for group in said.values() for who, what in group.items()}
    said = stand("all_gather")
    assert re.match(r"in all_gather_(single|into_tensor) float32\[144\]( for \S+ s)?, by train_sharded \(.*py:\d+\)",
                    said["rank 0 (1)"])
    assert re.match(r"in wait_to_be_told \(.*ranks_of_torch.py:\d+\)", said["rank 1 (1)"])
    # each rank has a shard of every parameter, and of its gradient
    shards = reply(directory / "eval",
                   "on 1\n[(name, str(list(p.shape)), p.to_local().numel() * 4, p.to_local().norm().item(), "
                   "p.grad.to_local().norm().item()) for name, p in model.named_parameters()]\n")
    shards = eval(shards.partition(": ")[2])
    seen = ask(directory / "query", "SELECT name, shape, bytes, norm, grad_norm FROM torch_parameters WHERE rank = 1")
    assert len(shards) == len(seen) == 4
    for (name, shape, size, norm, grad_norm), row in zip(shards, seen):
        assert (row["name"], row["shape"], row["bytes"]) == (name, shape, str(size))
        assert float(row["norm"]) == pytest.approx(norm, rel=1e-5)
        assert float(row["grad_norm"]) == pytest.approx(grad_norm, rel=1e-5)
    modules = (directory / "ranks" / "1" / "torch" / "modules").read_text().splitlines()
    assert modules[1].startswith("0 FSDPLinear weight float32[16, 8]")
    assert "Record: collectives on" in reply(directory / "ctl", "record collectives on\n")
    said = eventually(lambda: re.search(r": at #\d+ for \S+ s, rank 1 is 1 behind",
                                        str(said := collectives(probe, job))) and said)
    assert "has begun" in str(said)
    ranks.targets[1].send("go")
    begun = r"has begun #\d+; in wait_tensor float32\[3, 2\]( for \S+ s)?, by train_functionally \("
    # its number is looked at ten times a second, its stack at once
    eventually(lambda: re.match(begun, stand("wait_tensor")["rank 0 (1)"]), what="what it has begun")


def flown(number, **more):
    """An entry of PyTorch's Flight Recorder, as 2.14 writes it."""
    return {"collective_seq_id": number + 1, "input_dtypes": ["Float"], "input_sizes": [[2, 3]], "is_p2p": False,
            "op_id": number + 1, "output_dtypes": ["Float"], "output_sizes": [[2, 3]], "p2p_seq_id": 0, "pg_id": 0,
            "process_group": ["0", "default_pg"], "profiling_name": "gloo:all_reduce", "record_id": number,
            "retired": False, "state": "scheduled", "time_created_ns": (1700000000 + number) * 10**9,
            "time_discovered_completed_ns": 0, "time_discovered_started_ns": 0, "timeout_ms": 1800000, **more}


FLOWN = "SELECT seq, start, duration, op, shape, dtype, bytes, state FROM collectives WHERE source = 'torch'"


def test_what_pytorch_has_recorded(probe, ranks):
    """A stand-in for its Flight Recorder, which PyTorch 1.13 hasn't: what is made of what it says, whatever that is."""
    job = probe.path / "jobs" / ranks("skip", world=1)
    ranks.targets[0].expect("stepped", timeout=120)

    def has(text):
        reply(job / "eval", f"torch._C._distributed_c10d._dump_fr_trace_json = lambda: {text.encode()!r}\n")
        return reply(job / "ctl", "record collectives on\n")

    def taken(n):
        return eventually(lambda: [rows for rows in [ask(job / "query", FLOWN)] if len(rows) == n], what=f"{n} rows")[0]
    entries = [flown(0, retired=True), flown(1, time_discovered_completed_ns=1700000001500000000, state="completed"),
               flown(2, is_p2p=True, input_dtypes=["Long", "Int"], input_sizes=[[], [1]], profiling_name="gloo:send")]
    assert "Flight Recorder has 3 of before" in has(json.dumps({"entries": entries}))
    assert [list(row.values()) for row in taken(3)] == [
        ["1", "1700000000.0", "", "all_reduce", "2, 3", "float32", "24", "retired"],
        ["2", "1700000001.0", "0.5", "all_reduce", "2, 3", "float32", "24", "completed"],
        ["", "1700000002.0", "", "send", "", "int64", "8", "scheduled"]]
    # each time what came since, and nothing twice
    assert "Flight Recorder has 1 of before" in has(json.dumps({"entries": [*entries, flown(3, input_sizes=[])]}))
    assert taken(4)[-1]["shape"] == ""
    reply(job / "ctl", "record collectives off\n")
    assert "Flight Recorder" not in has(json.dumps({"entries": [*entries, flown(3)]}))
    for wrong in ("", "[]", "{}", '{"entries": [{}]}', '{"entries": 5}', '{"entries": [{"record_id": "a"}]}',
                  json.dumps({"entries": [flown(1 << 70)]}),
                  json.dumps({"entries": [flown(5, time_created_ns=10**400)]}),
                  json.dumps({"entries": [flown(5, process_group=[])]})):
        assert "isn't understood" in has(wrong), wrong
    has(json.dumps({"entries": [flown(6, process_group=[None], state=7, input_sizes=[[-1]], collective_seq_id="x")]}))
    assert list(taken(5)[-1].values()) == ["", "1700000006.0", "", "all_reduce", "", "", "", "7"]
    assert "Record: collectives on" in (probe.path / str(ranks.targets[0].pid) / "ctl").read_text()


def test_pytorchs_own_recorder(probe, ranks, newer_torch):  # noqa: F811
    """The real one: it has what was called before anybody recorded, numbered as PyTorch counts."""
    name = ranks("skip", python=newer_torch)
    job = probe.path / "jobs" / name
    eventually(lambda: "evaluate" in str(stacks(probe, name)[1]), 120, "rank 3 in its barrier")
    all_wait(probe, name)
    said = reply(job / "ctl", "record collectives on\n")
    if "Flight Recorder has" not in said:
        pytest.skip("this PyTorch has no Flight Recorder for gloo")
    last = "SELECT rank, max(seq) AS seq, op, state FROM collectives WHERE source = 'torch' AND group_name = '0' " \
        "GROUP BY rank ORDER BY rank"
    rows = eventually(lambda: [rows for rows in [ask(job / "query", last)] if len(rows) == 4], what="their rows")[0]
    assert [row["op"] for row in rows] == ["all_reduce"] * 4
    assert len({row["seq"] for row in rows[:3]}) == 1 and int(rows[0]["seq"]) == int(rows[3]["seq"]) + 1
    assert [row["state"] for row in rows[:3]] == ["scheduled"] * 3
    # and what its groups were made with lies elsewhere than in 1.13
    said = reply(job / "ctl", "on 0 pause for 5m\n")
    assert "  Timeouts: 120 s of group 1; 1234.5 s of group 0\n" in said, said


def test_ranks_that_no_environment_has(probe, ranks):
    """torch.multiprocessing.spawn with init_method=tcp://: by the process group."""
    job = ranks("skip", "tcp")
    eventually(lambda: job in os.listdir(probe.path / "jobs")
               and len(links(probe.path / "jobs" / job / "ranks")) == WORLD, 120, "all ranks")
    assert not links(probe.path / "jobs" / job / "workers"), "what has started them is none"
    said = eventually(lambda: "evaluate" in str(stacks(probe, job)[1]) and all_wait(probe, job), 120,
                      "rank 3 in its barrier")
    assert next(iter(said)) == "rank 3 (1)"
    assert status(probe, job)["Backend"] == "gloo"
    said = reply(probe.path / "jobs" / job / "eval", "on 1-3\nrank\n")
    assert said == "".join(f"rank {n} (1): {n}\n" for n in (1, 2, 3))


def test_a_worker_that_hangs(probe, ranks):
    job = ranks("loader")
    eventually(lambda: "decode_image" in str(stacks(probe, job)[1]), 120, "the worker")
    said = all_wait(probe, job)
    (worker,) = [who for who, (_, frames) in said.items() if "decode_image" in frames]
    assert worker == "workers of rank 3 (1)"
    assert "rank 3 (1)" in said, "it waits for its worker"
    assert {name.split(".")[0] for name in links(probe.path / "jobs" / job / "workers")} == set("0123")
    ids = links(probe.path / "jobs" / job / "ranks")
    for rank in "0123":
        assert links(probe.path / "by-rank")[rank] == ids[rank]
    (said,) = collectives(probe, job).values()
    assert set(said) == {"ranks 0-2 (3)", "rank 3 (1)"}
    assert re.fullmatch(r"in _BaseDataLoaderIter.__next__ \[\w+\]( for \S+ s)?, by train \(.*ranks_of_torch.py:\d+\).*",
                        said["rank 3 (1)"])
    # the job is killed: what it leaves is no rank
    left = links(probe.path / "jobs" / job / "workers")["3.0"]
    for pid in ids.values():
        os.kill(pid, 9)
    eventually(lambda: not os.listdir(probe.path / "jobs" / job / "ranks"), what="the end of all ranks")
    eventually(lambda: links(probe.path / "jobs" / job / "workers").get("3.0") == left, what="its worker, still")
    assert status(probe, job)["Here"] == "none"
    assert stacks(probe, job)[1]["workers of rank 3 (1)"][1][0] == "decode_image"
    os.kill(left, 9)


def test_a_rank_that_raises(probe, ranks):
    job = ranks("raise")
    directory = probe.path / "jobs" / job
    eventually(lambda: job in os.listdir(probe.path / "jobs") and len(links(directory / "ranks")) == WORLD, 120,
               "all ranks")
    said = reply(directory / "ctl", "on-crash stop for 5m\n")
    assert said == "ranks 0-3 (4): OnCrash: stop\n"
    said = reply(directory / "ctl", "record collectives on\n")
    assert "Record: collectives on" in said and "error" not in said
    for target in ranks.targets:
        target.send("go")
    eventually(lambda: "[held, crash" in (directory / "backtrace").read_text(), 120, "the exception")
    said = all_wait(probe, job)
    state, frames = said["rank 3 (1)"]
    assert "held, crash" in state
    traceback = (directory / "ranks" / "3" / "crash" / "traceback").read_text()
    assert traceback.rstrip().endswith("ValueError: bad sample in batch 5")
    assert reply(directory / "ranks" / "3" / "crash" / "frames" / "0" / "eval", "loss.item(), step\n") == "(3.0, 5)\n"
    assert reply(directory / "eval", "on 0-2\nstep\n") == "ranks 0-2 (3): 5\n"
    # what was recorded: each call, its number as PyTorch counts, and how far each group has come
    last = int(reply(directory / "ranks" / "0" / "eval",
                     "torch.distributed.distributed_c10d._get_default_group()._get_sequence_number_for_group()\n"))
    calls = ask(directory / "query", "SELECT rank, seq, duration, shape, dtype, bytes FROM collectives "
                "WHERE source = 'recorded' AND op = 'allreduce' AND group_name = '0' ORDER BY 1, 2")
    for rank in range(WORLD):
        mine = [row for row in calls if row["rank"] == str(rank)]
        assert [int(row["seq"]) for row in mine] == list(range(last - 5, last + (rank != BAD)))
        assert [bool(row["duration"]) for row in mine] == [True] * 5 + [False] * (rank != BAD), "the last one is open"
        assert {(row["shape"], row["dtype"], row["bytes"]) for row in mine} == {("1, 4", "float32", "16")}
    assert [tuple(row.values()) for row in ask(
        directory / "query", "SELECT rank, op, shape, dtype, bytes, peer, group_size, group_rank FROM collectives "
        "WHERE peer IS NOT NULL AND source = 'recorded' ORDER BY rank")] == [
            ("1", "send", "2, 3", "int64", "48", "3", "2", "0"), ("3", "recv", "2, 3", "int64", "48", "1", "2", "1")]
    eventually(lambda: sorted((row["rank"], int(row["seq"]) - last) for row in ask(
        directory / "query", "SELECT rank, seq FROM collectives WHERE source = 'counter' AND group_name = '0'")) == [
            ("0", 0), ("1", 0), ("2", 0), ("3", -1)], what="the counts")
    said = eventually(lambda: collectives(probe, job) if re.search(
        rf": at #{last} for \d+\.\d s, rank 3 is 1 behind", "".join(collectives(probe, job))) else None)
    (of_all,) = [rows for group, rows in said.items()
                 if group.startswith(f"group 0 (default), gloo, 4 ranks: at #{last} for ")]
    assert of_all["ranks 0-2 (3)"].startswith(f"in all_reduce #{last} float32[1, 4]")
    assert of_all["rank 3 (1)"].startswith(f"has begun #{last - 1}; in ")
    # and it stays
    for target in ranks.targets:
        target.process.kill()
    query = probe.path / "all" / "query"
    eventually(lambda: len(ask(query, "SELECT rank FROM collectives WHERE ended IS NOT NULL AND duration IS NULL AND "
                               f"source = 'recorded' AND seq = {last}")) == 3, what="what they left")


# a group of one, which does each line that it is told
ALONE = """
import sys, tempfile, torch, torch.distributed as dist
directory = tempfile.TemporaryDirectory()
dist.init_process_group("gloo", init_method=f"file://{directory.name}/meet", rank=0, world_size=1)
tensor, works = torch.zeros(2, 3), []
def reduce_in_a_new_group():
    group = dist.new_group([0])
    dist.all_reduce(tensor, group=group)
    name = dist.distributed_c10d._pg_names[group]
    dist.destroy_process_group(group)
    return name
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


def test_one_that_is_another_by_the_next_call(probe, torch_python):  # noqa: F811
    """A tensor that changes, and groups that end, whose address another one gets: each row has what was there then. And
    very many results that are waited for later, the last one first."""
    target = torch_python.run_source(ALONE, name="group_of_one.py", env=ONE, ready=False)
    target.expect("ready", 120)
    commands = Commands(probe, target.pid)

    def told(line):
        target.send(line)
        return target.readline(60)

    def rows(columns, where):
        return [tuple(row.values()) for row in ask(
            commands.directory / "query", f"SELECT {columns} FROM collectives WHERE source = 'recorded' AND "
            f"op = 'allreduce' AND {where} ORDER BY start")]
    commands.run("ctl", "record collectives on\n")
    told("dist.all_reduce(tensor)")
    told("dist.all_reduce(tensor.resize_(4))")
    told("dist.all_reduce(setattr(tensor, 'data', tensor.double()) or tensor)")
    told("dist.all_reduce(tensor.data.view(2, 1, 2))")
    assert rows("shape, dtype, bytes, group_name", "1") == [
        ("2, 3", "float32", "24", "0"), ("4", "float32", "16", "0"), ("4", "float64", "32", "0"),
        ("2, 1, 2", "float64", "32", "0")]
    names = [told("reduce_in_a_new_group()") for _ in range(20)]
    assert len(set(names)) == 20 and rows("group_name, seq IS NULL", "group_name <> '0'") == [
        (name, "0") for name in names]
    told("works.extend(dist.all_reduce(torch.zeros(5), async_op=True) for _ in range(500))")
    assert rows("count(*), count(duration)", "shape = '5'") == [("500", "0")]
    told("[work.wait() for work in reversed(works)]")
    assert rows("count(*), count(duration)", "shape = '5'") == [("500", "500")]


def test_a_rank_that_hangs_in_c(probe, ranks):
    job = ranks("native")
    eventually(lambda: "hang_in_c" in str(stacks(probe, job)[1]), 120, "rank 3 in C")
    said = all_wait(probe, job)
    assert next(iter(said)) == "rank 3 (1)" and said["rank 3 (1)"][1][0] == "hang_in_c"
    # from outside: it isn't asked, and nobody waits for it
    said = reply(probe.path / "jobs" / job / "ctl", "stop all for 5m\n")
    assert re.search(r"^rank 3 \(1\):\n(  .*\n)*  Timeouts: 120 s of group 1; 1234.5 s of group 0\n", said, re.M), said
    assert said.count("Timeouts: 120 s") == 2
    reply(probe.path / "jobs" / job / "ctl", "continue\n")
    said = reply(probe.path / "jobs" / job / "eval", "step\n")
    assert said.startswith("ranks 0-2 (3): 5\nrank 3 (1): error: ") and "GIL" in said
    fd = os.open(probe.path / "jobs" / job / "eval", os.O_RDWR)
    with pytest.raises(OSError) as refused:
        os.write(fd, b"-- strict\nstep\n")
    os.close(fd)
    assert refused.value.errno == errno.ETIMEDOUT
