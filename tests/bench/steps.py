"""What recording a PyTorch training loop costs it: the same process with and without, in turns."""
import os
import shutil

import interpreters as machine
from commands import Commands
from report import median, show, skip

SHARE = 0.01
RATE = 0.05
BEFORE = 4   # steps after which the first one may be recorded
BLOCK = 20


def start(interpreter):
    """The loop; None: that interpreter has no torch."""
    script = interpreter.directory / "bench_training_loop.py"
    shutil.copy(os.path.join(os.path.dirname(__file__), "training_loop.py"), script)
    target = interpreter.run(script.name, ready=False)
    if target.readline(120) == "ready":
        return target
    target.close()
    return None


def run(target, steps):
    target.send(f"run {steps}")
    return [float(word) for word in target.readline(300).split()]


def measure(probe, target, rounds):
    """Medians of: a step alone, one that isn't recorded, what recording adds to one as against the one
    before it, in seconds."""
    commands = Commands(probe, target.pid)
    alone, between, added = [], [], []
    made = 1

    def steps(count):
        nonlocal made
        made += count
        return run(target, count)
    for _ in range(rounds):
        commands.run("ctl", "record torch on rate=0.5\n")
        steps(BEFORE + made % 2)
        took = steps(BLOCK)  # the first one has an odd number
        added += [recorded - other for other, recorded in zip(took[::2], took[1::2])]
        commands.run("ctl", "record torch on rate=0.001\n")
        between += steps(BLOCK)
        commands.run("ctl", "record torch off\n")
        alone += steps(BLOCK)
    return median(alone), median(between), median(added)


def measure_steps(report, probe, args):
    print("\n== Recording: the steps of a PyTorch training loop, time of the processor")
    for interpreter in reversed(machine.interpreters()):
        target = start(interpreter) if interpreter.version >= (3, 10) else None
        if target is None:
            continue
        with target:
            alone, between, added = measure(probe, target, max(3, args.rounds // 2))
        report.row(f"{interpreter}: a step", show(alone))
        report.row(f"{interpreter}: one that isn't sampled", show(between), f"{between / alone:.4f} x")
        report.row(f"{interpreter}: added to one that is sampled", show(added), f"{added / alone:.4f} x")
        share = (added * RATE + max(0, between - alone)) / alone
        report.budget(f"torch_trace at rate {RATE}, of a step", share, SHARE, lambda value: f"{value * 100:.2f} %")
        return
    skip("torch_trace", "no interpreter here can import torch")
