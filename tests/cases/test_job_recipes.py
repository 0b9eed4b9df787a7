"""contrib/recipes, each asked of a job that has that trouble: what its comment promises is what it answers."""
import json
import random
import re
import subprocess

import pytest

from agents import start
from commands import shell, write
from interpreters import CACHE, eventually, patience
from mount import REPOSITORY
from sql import ask, reply, rows
from test_torch import torch_python  # noqa: F401

pytestmark = [pytest.mark.long, pytest.mark.deadline(300)]

RECIPES = {path.stem: path for path in (REPOSITORY / "contrib" / "recipes").glob("*.sql")}
# {what a page of Probing's asks: how it is asked here}
(STATEMENTS,) = re.findall(r"```sql\n(.*?)```", (REPOSITORY / "contrib" / "doc" / "peers.md").read_text(), re.S)
PROBING = {one.partition("\n")[0]: one for one in STATEMENTS.strip().split("\n\n")}


class Job:
    def __init__(self, probe, python):
        port = str(random.randrange(20000, 30000))
        env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1"}
        self.targets = [python.run("troubled_ranks.py", env={**env, "RANK": str(rank)}, ready=False)
                        for rank in range(3)]
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
    reply(job.directory / "ctl", "record torch on rate=1\nrecord collectives on\nrecord process on\n")
    job.all_do("slow_loader")
    job.done("slow_loader")
    by_stage = {}
    for row in job.ask("straggler"):
        by_stage.setdefault(row["stage"], []).append((row["rank"], float(row["seconds"])))
    assert by_stage.keys() >= {"iteration", "loader", "collective", "forward", "backward", "step"}
    (first, longest), (_, second), _ = by_stage["loader"]
    assert first == "2" and longest > 0.25 > second
    assert by_stage["collective"][-1][0] == "2" and by_stage["collective"][0][1] > 0.1
    job.all_do("own_rows")
    job.done("own_rows")
    eventually(lambda: len(ask(job.directory / "query", "SELECT DISTINCT pid FROM process_samples")) == 3,
               what="samples")
    for question, statement in PROBING.items():
        assert ask(job.directory / "query", statement), question
    whose = "SELECT DISTINCT rank, role, world, allocated_delta FROM torch_trace ORDER BY rank"
    wanted = [(str(rank), f"dp={rank},tp=0", "3", "") for rank in range(3)]
    eventually(lambda: [tuple(row.values()) for row in ask(job.directory / "query", whose)] == wanted, what="roles")
    reply(job.directory / "ctl", "record torch off\nrecord collectives off\nrecord process off\n")

    # one works, the others wait for it
    job.all_do("busy")

    def seconds(where):
        return {row["rank"]: float(row["cpu_user"]) for row in where}

    def who_works():  # and isn't just looking whether to go on
        rows = job.ask("hang")
        return rows if "augment" in [row["func"] for row in rows] else None
    eventually(who_works, what="who works")
    begun = job.ask("slow_rank")
    eventually(lambda: seconds(job.ask("slow_rank"))["2"] > seconds(begun)["2"] + 0.5, what="its time")

    def who_works_is_first():  # and the others have stood for a second and more
        rows = job.ask("slow_rank")
        stand = all(row["stands"] for row in rows if row["rank"] != "2")
        return rows if stand and rows[0]["rank"] == "2" else None
    now = eventually(who_works_is_first, what="who works, before those that wait")
    assert all(seconds(now)[rank] < seconds(begun)[rank] + 0.2 for rank in "01")
    assert len(now) == 3
    one, others = eventually(who_works, what="who works")
    assert (one["func"], one["processes"], one["first_rank"]) == ("augment", "1", "2")
    assert (others["func"], others["processes"], others["first_rank"]) == ("all_reduce", "2", "0")
    assert float(others["stands"]) > 0.5
    job.targets[2].send("on")
    job.done("busy")
    job.targets[2].expect("done on")

    # memory of one grows
    reply(job.directory / "ctl", "record process on\n")
    job.all_do("leak")

    def grows():  # the samples of before are counted, too
        first, *others = job.ask("leak")
        grown = [float(other["bytes_per_second"]) for other in others]
        return first["rank"] == "1" and len(grown) == 2 and float(first["bytes_per_second"]) > 2 * max(grown)
    eventually(grows, what="who grows")
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
    found = [(row["rank"], row["nan"], row["grad_nan"]) for row in job.ask("nan")]
    assert found == [(rank, "1", "1") for rank in "012"]

    # one raises, and the others die of that
    reply(job.directory / "ctl", "on-crash record\n")
    job.all_do("bad_sample")
    for target in job.targets:
        target.process.wait(patience(60))
    ids = [str(target.pid) for target in job.targets]
    said = eventually(lambda: len(said := [row for row in job.ask("crash", job.all) if row["pid"] in ids]) == 3 and
                      said, what="what all have left")
    first = said[0]
    assert (first["rank"], first["name"], first["value"], first["func"]) == (
        "2", "ValueError", "bad sample", "bad_sample")
    assert {row["rank"] for row in said[1:]} == {"0", "1"} and {row["name"] for row in said[1:]} == {"RuntimeError"}


SPANS = """
import probing, sys
print("ready", flush=True)
sys.stdin.readline()
with probing.span("step", loss=0.5, n=2**53 + 1, ok=True, name='a "b"\\n', nothing=None, of=[1, {"x": 2}]):
    with probing.span("inner"):
        pass
    try:
        with probing.span("bad"):
            raise KeyError
    except KeyError:
        pass
runs = probing.span("runs")
runs.__enter__()
with probing.span("within"):
    pass
print("done", flush=True)
sys.stdin.read()
"""

# OTLP's own schema judges each line, once its ids are in base64, as JSON of protobuf has bytes else; it may have no
# other names.
JUDGE = """
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
for line in sys.stdin:
    request = json.loads(line)
    for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name, size in ("traceId", 16), ("spanId", 8), ("parentSpanId", 8):
            assert len(span[name]) in (2 * size, 0 if name == "parentSpanId" else -1), span
            span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
    for span in json_format.ParseDict(request, ExportTraceServiceRequest()).resource_spans[0].scope_spans[0].spans:
        attributes = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}
        print(json.dumps([span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                          span.start_time_unix_nano, span.end_time_unix_nano, span.status.code, attributes]))
"""


@pytest.fixture
def otlp_python():
    python = CACHE / "peers" / "bin" / "python3"
    imports = [python, "-c", "import opentelemetry.proto"]
    if not python.exists() or subprocess.run(imports, capture_output=True).returncode:
        pytest.skip("opentelemetry-proto is not installed (tests/run does, where there is a package index)")
    return python


@pytest.mark.python(minimum=(3, 10))
def test_otlp(probe, any_python, otlp_python):
    target = start(any_python, SPANS)
    write(probe.path / str(target.pid) / "ctl", "record spans on\n")
    target.send("go")
    target.expect("done")
    said = reply(probe.path / "all" / "query", "-- format: jsonl\n" + RECIPES["otlp"].read_text())
    lines = [line for line in (json.loads(line)["otlp"] for line in said.splitlines()) if f'"{target.pid}"' in line]
    judged = subprocess.run([otlp_python, "-c", JUDGE], input="\n".join(lines), capture_output=True, text=True,
                            check=True)
    found = {span[0]: span[1:] for span in map(json.loads, judged.stdout.splitlines())}
    assert found.keys() == {"step", "inner", "bad", "within"}, "those that have ended"
    trace, step, above, *_, code, attributes = found["step"]
    assert (above, code) == ("", 0)
    assert attributes == {"loss": 0.5, "n": 2**53 + 1, "ok": True, "name": 'a "b"\n', "of": '[1,{"x":2}]'}
    assert [found[name][0] for name in ("inner", "bad")] == [trace] * 2 and found["within"][0] != trace
    assert [found[name][2] for name in ("inner", "bad")] == [step] * 2
    assert [found[name][5] for name in ("inner", "bad")] == [0, 2]
    for row in ask(probe.path / str(target.pid) / "query",
                   "SELECT name, start, duration FROM spans WHERE duration IS NOT NULL"):
        begun, ended = found[row["name"]][3:5]
        assert abs(begun - float(row["start"]) * 1e9) < 1e4
        assert abs(ended - begun - float(row["duration"]) * 1e9) < 1e4
