"""Two unwinders, ours and libunwind, on the same copies of stacks of real programs."""
import json
import os
import subprocess

import pytest

import mount
from interpreters import patience

STACKS = 10000 if os.environ.get("PROBEFS_TEST_FULL") == "1" else 200  # of each victim
PROGRAM = mount.build() / "tests" / "unwind_twice"

pytestmark = [pytest.mark.long,
              pytest.mark.skipif(not PROGRAM.exists(), reason="built without libunwind (libunwind-dev)")]

NUMPY = """
import threading
import numpy

def solve():
    while True:
        numpy.linalg.svd(numpy.random.rand(50, 50))
        numpy.sort(numpy.random.rand(10000)).astype("i8").sum()

threading.Thread(target=solve, daemon=True).start()
print("ready", flush=True)
solve()
"""
TORCH = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
print("ready", flush=True)
while True:
    model(torch.rand(32, 64)).sum().backward()
"""


def compare(target, *options):
    ran = subprocess.run([PROGRAM, str(target.pid), str(STACKS), *options], capture_output=True, text=True,
                         timeout=patience(100))
    assert ran.returncode == 0, ran.stderr[-8000:] + ran.stdout
    said = json.loads(ran.stdout)
    assert said["stacks"] >= STACKS and said["frames"] > 3 * said["stacks"]
    assert said["equal"] + said["longer"] == said["stacks"]
    return said


def test_sleeping(python):
    compare(python.run("native.py"))


def test_running(python):
    """All registers are known there, so that libunwind has no reason to end earlier."""
    assert compare(python.run("native_spinner.py"), "--stop")["longer"] == 0


@pytest.mark.parametrize("module, source", [("numpy", NUMPY), ("torch", TORCH)])
def test_libraries(any_python, module, source):
    if any_python.source != "debian":
        pytest.skip(f"{module} comes with Debian's interpreter")
    target = any_python.run_source(source)
    assert compare(target, "--stop")["longer"] == 0
