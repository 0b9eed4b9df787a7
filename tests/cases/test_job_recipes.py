"""contrib/recipes, each asked of a job that has that trouble: what its comment promises is what it answers."""
import random

import pytest

from commands import shell
from interpreters import eventually, patience
from mount import REPOSITORY
from sql import reply, rows
from test_torch import torch_python  # noqa: F401

pytestmark = [pytest.mark.long, pytest.mark.deadline(300)]

RECIPES = {path.stem: path for path in (REPOSITORY / "contrib" / "recipes").glob("*.sql")}


class Job:
    def __init__(self, probe, python):
        port = str(random.randrange(20000, 30000))
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1"}
        self.targets = [python.run("troubled_ranks.py", env={**env, "RANK": str(rank)}, ready=False) for rank in range(3)]
        for target in self.targets:
            target.expect("ready", timeout=120)
        self.directory, self.all = probe.path / "jobs" / f"127.0.0.1:{port}", probe.path / "all"

    def all_do(self, what):
        for target in self.targets:
            target.send(what)

    def done(self, what):
        for target in self.targets:
            target.expect(f"done {what}", timeout=120)

    def ask(self, recipe, directory=None):
        """As a shell's echo writes it, and as a file is."""
        path = (directory or self.directory) / "query"
        said = shell('echo "$(cat "$1")" > "$2" && cat "$2"', RECIPES[recipe], path)
        assert (said.returncode, said.stderr) == (0, ""), said
        assert reply(path, RECIPES[recipe].read_text()).partition("\n")[0] == said.stdout.partition("\n")[0] != ""
        return rows(said.stdout)


@pytest.fixture
def job(probe, torch_python):  # noqa: F811
    return Job(probe, torch_python)


def test_each_says_what_it_answers():
    assert {"crash", "hang", "leak", "nan", "slow_rank", "straggler"} <= RECIPES.keys()
    for path in RECIPES.values():
        assert path.read_text().startswith("-- "), path


def test_a_job_in_trouble(job):
    # one is slow to load: the others are slow in 'collective' only
    reply(job.directory / "ctl", "record torch on rate=1\n")
    job.all_do("slow_loader")
    job.done("slow_loader")
    by_stage = {}
    for row in job.ask("straggler"):
        by_stage.setdefault(row["stage"], []).append((row["rank"], float(row["seconds"])))
    assert by_stage.keys() >= {"iteration", "loader", "collective", "forward", "backward", "step"}
    (first, longest), (_, second), _ = by_stage["loader"]
    assert first == "2" and longest > 0.05 > second
    assert by_stage["collective"][-1][0] == "2" and by_stage["collective"][0][1] > 0.02
    reply(job.directory / "ctl", "record torch off\n")

    # one works, the others wait for it
    job.all_do("busy")

    def seconds(where):
        return {row["rank"]: float(row["cpu_user"]) for row in where}
    eventually(lambda: "augment" in [row["func"] for row in job.ask("hang")], what="who works")
    begun = job.ask("slow_rank")
    eventually(lambda: seconds(job.ask("slow_rank"))["2"] > seconds(begun)["2"] + 0.5, what="its time")
    now = job.ask("slow_rank")
    assert all(seconds(now)[rank] < seconds(begun)[rank] + 0.2 for rank in "01")
    assert [row["rank"] for row in now][0] == "2" and len(now) == 3
    one, others = job.ask("hang")
    assert (one["func"], one["processes"], one["first_rank"]) == ("augment", "1", "2")
    assert (others["func"], others["processes"], others["first_rank"]) == ("all_reduce", "2", "0")
    assert float(others["stands"]) > 0.5
    job.targets[2].send("on")
    job.done("busy")
    job.targets[2].expect("done on")

    # memory of one grows
    reply(job.directory / "ctl", "record process on\n")
    job.all_do("leak")
    first, *rest = eventually(lambda: (said := job.ask("leak")) and len(said) == 3 and
                              float(said[0]["bytes_per_second"]) > 1 << 20 and said, what="that it grows")
    assert first["rank"] == "1" and float(first["bytes_per_second"]) > 10 * float(rest[0]["bytes_per_second"])
    job.all_do("on")
    job.done("leak")
    job.done("on")

    # a gradient of one is NaN, and a step later so is a parameter of each
    assert job.ask("nan") == []
    job.all_do("not_finite")
    job.done("not_finite")
    (row,) = job.ask("nan")
    assert (row["rank"], row["name"], row["nan"], row["grad_nan"]) == ("1", "inner.weight", "0", "1")
    job.all_do("and_reduced")
    job.done("and_reduced")
    assert [(row["rank"], row["nan"], row["grad_nan"]) for row in job.ask("nan")] == [(rank, "1", "1") for rank in "012"]

    # one raises, and the others die of that
    reply(job.directory / "ctl", "on-crash record\n")
    job.all_do("bad_sample")
    for target in job.targets:
        target.process.wait(patience(60))
    ids = [str(target.pid) for target in job.targets]
    said = eventually(lambda: len(said := [row for row in job.ask("crash", job.all) if row["pid"] in ids]) == 3 and said,
                      what="what all have left")
    assert (said[0]["rank"], said[0]["name"], said[0]["value"], said[0]["func"]) == ("2", "ValueError", "bad sample", "bad_sample")
    assert {row["rank"] for row in said[1:]} == {"0", "1"} and {row["name"] for row in said[1:]} == {"RuntimeError"}
