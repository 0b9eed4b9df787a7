"""all/metrics, and what `-- format: metrics` and `jsonl` write, read by who reads such."""
import json
import os
import pathlib
import subprocess

import pytest

from commands import Commands
from interpreters import eventually, patience
from sql import settle
from test_jobs import job_of

RAISES = """
import sys
print("ready")
for line in sys.stdin:
    for i in range(int(line)):
        try:
            {}[i]
        except KeyError:
            pass
    print("raised")
"""


# Prometheus' own reader of it, in the Python that Debian's packages are for
READ = """
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
json.dump({family.name: [(sample.name, sample.labels, sample.value) for sample in family.samples]
           for family in text_string_to_metric_families(sys.stdin.read())}, sys.stdout)
"""


def families(text):
    """By name; each a list of [name, labels, value]."""
    done = subprocess.run(["/usr/bin/python3", "-c", READ], input=text, capture_output=True, text=True,
                          timeout=patience(60))
    if "No module named 'prometheus_client'" in done.stderr:
        pytest.skip("python3-prometheus-client is not installed")
    assert done.returncode == 0, done.stderr + text
    return json.loads(done.stdout)


def of(samples, **labels):
    """The value of the only one that has these labels."""
    found = [value for _, has, value in samples if labels.items() <= has.items()]
    assert len(found) == 1, (samples, labels)
    return found[0]


def test_all_metrics(probe, any_python):
    env, name = job_of(2)
    targets = [any_python.run_source(RAISES, env={**env, "RANK": rank}) for rank in "01"]
    other = any_python.run_source(RAISES)
    Commands(probe, targets[1].pid).run("ctl", "record exceptions on\n")
    targets[1].send("5")
    assert targets[1].readline() == "raised"
    for target in targets:
        settle(target)

    found = families(probe.read("all", "metrics"))
    for rank, target in enumerate(targets):
        who = {"pid": str(target.pid), "rank": str(rank)}
        assert of(found["probefs_process_info"], **who, job=name, world="2") == 1
        stat = pathlib.Path(f"/proc/{target.pid}/stat").read_text().rpartition(")")[2].split()
        assert 0 <= of(found["probefs_cpu_seconds"], **who, mode="user") <= int(stat[11]) / os.sysconf("SC_CLK_TCK")
        assert of(found["probefs_resident_memory_bytes"], **who) > 1 << 20
        assert of(found["probefs_threads"], **who, state="idle") >= 1
        assert of(found["probefs_gil_held"], **who) == of(found["probefs_gil_waiting_threads"], **who) == 0
    raised = {"pid": str(targets[1].pid), "rank": "1"}
    assert of(found["probefs_exceptions"], **raised, type="KeyError", handled="yes") == 5
    assert of(found["probefs_rows"], **raised, table="exceptions") == 5
    assert of(found["probefs_rows_lost"], **raised, table="exceptions") == 0
    assert not [labels for _, labels, _ in found["probefs_rows"]
                if labels["pid"] == str(other.pid)], "nothing is recorded there"
    assert "rank" not in next(has for _, has, _ in found["probefs_process_info"] if has["pid"] == str(other.pid))

    its = families((probe.path / "jobs" / name / "metrics").read_text())
    assert its.keys() == found.keys()
    assert {has["pid"] for _, has, _ in its["probefs_process_info"]} == {str(target.pid) for target in targets}

    # an ended one is no process any more
    targets[1].close()
    eventually(lambda: "KeyError" not in probe.read("all", "metrics"), 30, "the end of it")


def test_formats(probe, any_python):
    target = any_python.run_source(RAISES)
    commands = Commands(probe, target.pid)
    lines = commands.run("query", "-- format: jsonl\nSELECT 1 AS n, NULL AS x, 'a\"b' AS s UNION ALL SELECT 2, 0.5, "
                                  "'';\n").splitlines()
    assert [json.loads(line) for line in lines] == [{"n": 1, "x": None, "s": 'a"b'}, {"n": 2, "x": 0.5, "s": ""}]
    said = commands.run("query", "-- format: metrics\nSELECT 'a\"b\\' || char(10) AS \"is so\", 1.5 AS "
                                 "\"its-size_bytes\" UNION ALL "
                        "SELECT NULL, NULL UNION ALL SELECT NULL, 2;\n")
    assert families(said + "# EOF\n") == {
        "its_size_bytes": [["its_size_bytes", {"is_so": 'a"b\\\n'}, 1.5], ["its_size_bytes", {}, 2]]}
