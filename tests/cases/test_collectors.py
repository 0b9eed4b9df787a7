"""What contrib/recipes has for programs that gather metrics and logs, tried with the programs themselves."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import urllib.parse
import urllib.request

import pytest

from commands import Commands, shell
from interpreters import eventually, patience
from mount import REPOSITORY
from servers import UNPACKED, free_port, program
from test_jobs import job_of

RECIPES = REPOSITORY / "contrib" / "recipes"
RAISES = """
import sys
print("ready", flush=True)
sys.stdin.readline()
raise ValueError("of the collectors")
"""


@contextlib.contextmanager
def running(*command, log):
    with open(log, "w") as out:
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(patience(30))


def test_prometheus(probe, any_python, tmp_path):
    """Through node_exporter's textfile collector: asked of Prometheus by its HTTP interface."""
    env, name = job_of(2, RANK="1")
    target = any_python.run_source(RAISES, env=env)
    Commands(probe, target.pid).run("ctl", "record exceptions on\n")
    told = shell(f"f={tmp_path}/probefs.prom; cat {probe.path}/all/metrics > $f.new && mv $f.new $f")
    assert (told.returncode, told.stderr) == (0, "")
    recipe = (RECIPES / "prometheus.yml").read_text()
    assert "cat /probe/all/metrics > $f.new && mv $f.new $f" in recipe
    exporter, port = free_port(), free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(recipe.replace("15s", "1s", 1).replace("localhost:9100", f"127.0.0.1:{exporter}"))

    def ask(query):
        with contextlib.suppress(OSError):
            url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}"
            with urllib.request.urlopen(url, timeout=patience(10)) as answer:
                return json.load(answer)["data"]["result"]
    with running(program("prometheus-node-exporter"), "--collector.disable-defaults", "--collector.textfile",
                 f"--collector.textfile.directory={tmp_path}", f"--web.listen-address=127.0.0.1:{exporter}",
                 log=tmp_path / "exporter.log"), \
         running(program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data",
                 f"--web.listen-address=127.0.0.1:{port}", log=tmp_path / "prometheus.log"):
        one, = eventually(lambda: ask(f'probefs_process_info{{pid="{target.pid}"}}'), what="the process in Prometheus")
        labels = one["metric"]
        assert (labels["rank"], labels["world"], labels["exported_job"], labels["job"]) == ("1", "2", name, "probefs")
        one, = ask(f'probefs_resident_memory_bytes{{pid="{target.pid}"}} > 1e6')
        one, = ask(f'probefs_cpu_seconds_total{{pid="{target.pid}", mode="user"}}')
        assert ask("node_textfile_scrape_error")[0]["value"][1] == "0"


def test_rsyslog(probe, any_python, tmp_path):
    """Events by logger(1), parsed there."""
    daemon = program("rsyslogd")
    socket, config = tmp_path / "log", tmp_path / "rsyslog.conf"
    config.write_text(f'module(load="imuxsock" SysSock.Name="{socket}")\n' +
                      (RECIPES / "rsyslog.conf").read_text().replace("/var/log", str(tmp_path)))
    modules = pathlib.Path("usr/lib/x86_64-linux-gnu/rsyslog")
    modules = ":".join(str(top / modules) for top in (UNPACKED, pathlib.Path("/")) if (top / modules).is_dir())
    env, _ = job_of(2, RANK="1")
    target = any_python.run_source(RAISES, env=env)
    Commands(probe, target.pid).run("ctl", "on-crash record\n")
    with running(daemon, "-n", "-f", config, "-i", tmp_path / "pid", "-M", modules, log=tmp_path / "rsyslog.log"):
        eventually(socket.exists, what="rsyslog")
        feed = subprocess.Popen(["sh", "-c", 'cat "$1" | logger -u "$2" -t probefs -S 64K', "sh",
                                 probe.path / "all" / "events", socket], stdin=subprocess.DEVNULL,
                                start_new_session=True)
        try:
            eventually(lambda: str(probe.path / "all" / "events") in opened(feed.pid), what="a reader")
            target.send("go")
            target.process.wait(patience(60))

            def told(file):
                lines = (tmp_path / file).read_text().splitlines() if (tmp_path / file).exists() else []
                return [event for event in map(json.loads, lines) if event["pid"] == target.pid]
            event, = eventually(lambda: told("probefs-crashes.jsonl"), what="the crash")
            assert (event["rank"], event["kind"], event["type"]) == (1, "crash", "ValueError")
            eventually(lambda: {"crash", "exit"} <= {event["kind"] for event in told("probefs.jsonl")},
                       what="all events")
        finally:
            os.killpg(feed.pid, signal.SIGKILL)
            feed.wait()


def opened(pid):
    """What its children have open."""
    found = []
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        for child in children.read().split():
            with contextlib.suppress(OSError):  # it ends, or closes one
                for fd in os.listdir(f"/proc/{child}/fd"):
                    found.append(os.readlink(f"/proc/{child}/fd/{fd}"))
    return found
