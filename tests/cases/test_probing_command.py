"""contrib/probing, the command line of Probing, typed as its users type it; what it shows is compared with the
files."""
import errno
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

from commands import write
from interpreters import eventually, patience
from mount import REPOSITORY
from sql import ask, settle

COMMAND = REPOSITORY / "contrib" / "probing"
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]

WORKER = """
import sys, threading, time
def outer(box):
    while True:
        inner(box)
        box["turns"] += 1
def inner(box):
    time.sleep(0.01)
class Mine(Exception): pass
box = {"turns": 0}
threading.Thread(target=outer, args=(box,), name="worker", daemon=True).start()
while not box["turns"]:  # until it is there
    time.sleep(0.001)
print("ready", flush=True)
for line in sys.stdin:
    raise Mine(line)
"""


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; print('ready', flush=True); sys.stdin.read()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print("ready", flush=True)
print(child.pid, flush=True)
sys.stdin.read()
child.communicate()
"""


@pytest.fixture(params=SHELLS)
def probing(request, probe):
    """Runs the command under a shell."""
    return runner(probe, request.param)


@pytest.fixture
def any_probing(probe):
    return runner(probe, SHELLS[0])


def runner(probe, shell):
    def run(*args, status=0, stdin="", **env):
        said = subprocess.run([shell, COMMAND, *map(str, args)], input=stdin, capture_output=True, text=True, cwd="/",
                              timeout=patience(60), env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8",
                                                         "PROBE": str(probe.path), **env})
        assert said.returncode == status, (args, said)
        return said
    run.probe = probe
    return run


@pytest.fixture
def worker(any_python):
    return any_python.run_source(WORKER, name="a worker's.py")


def still(text):
    """Without what grows while nothing happens."""
    return re.sub(r", (seen on this line |seen in this function )?for (at least )?[0-9.]+ s", "", text)


@pytest.mark.parametrize("words",
                         [["backtrace"], ["bt"], ["b"], ["debug", "--dump"], ["dbg", "--dump"], ["d", "-d"], []])
def test_backtrace(any_probing, any_python, words):
    target = any_python.run("threads.py", 2, 3)
    settle(target)
    wanted = still(any_probing.probe.read(target.pid, "backtrace"))
    for process in [[target.pid], ["-p", target.pid], ["-t", target.pid], [f"--target={target.pid}"],
                    ["--pid", target.pid], [any_probing.probe.path / str(target.pid)]]:
        assert still(any_probing(*process, *words).stdout) == wanted


def test_which_process(any_probing, any_python):
    target, other = (any_python.run("threads.py", 1, 2, f"only {n}", "bo'th", env={"RANK": "70"} if n == 1 else {})
                     for n in (1, 2))
    status = any_probing.probe.read(target.pid, "status").splitlines()[0]
    for process in "only 1", "threads.py 1 2 only 1 bo'th", "rank:70":
        assert any_probing(process, "status").stdout.splitlines()[0] == status
    said = any_probing("bo'th", "status", status=1).stderr
    assert str(target.pid) in said and str(other.pid) in said
    assert "no Python process has" in any_probing("nobody has this", "status", status=1).stderr
    assert "rank/71" in any_probing("rank:71", "status", status=1).stderr
    assert "no such process" in any_probing(2**22 + 1, "status", status=1).stderr
    assert "--check" in any_probing(target.pid, "status", status=1, PROBE="/nowhere").stderr


def test_looking(probing, worker):
    pid, probe = worker.pid, probing.probe
    tid = int(ask(probe.path / str(pid) / "query", "SELECT tid FROM threads WHERE thread = 'worker'")[0]["tid"])
    assert "outer" in probing(pid, "bt", tid).stdout and "MainThread" not in probing(pid, "bt", tid).stdout
    assert f"threads/{tid}/locals" in probing(pid, "locals").stdout
    assert "turns" in probing(pid, "locals", tid).stdout
    depth = len(os.listdir(probe.path / str(pid) / "threads" / str(tid) / "frames"))
    assert "box = " not in probing(pid, "locals", tid, depth - 2).stdout  # threading's own, also outside of inner()
    assert "worker" in probing(pid, "threads").stdout
    assert "Mine = " in probing(pid, "globals", "__main__").stdout
    assert "__main__" in probing(pid, "globals").stdout.splitlines()
    assert "backtrace" in probing(pid, "tables").stdout and "process_samples" in probing(pid, "tbl", "-a").stdout
    assert probing(pid, "tables", "process").stdout.splitlines()[1].startswith(f"{pid},")
    assert str(pid) in probing("list").stdout and "a worker's.py" in probing("ls", "-v").stdout
    said = probing(pid, "mem")
    assert "rss_mb" in said.stdout and "record process on" in said.stderr
    assert "has not crashed" in probing(pid, "crash", status=1).stderr
    assert "Agent: none" in probe.read(pid, "ctl")  # all of this only looked


def test_query(probing, worker):
    select_it = "SELECT pid, 'it''s' AS word FROM process"
    wanted = [{"pid": worker.pid, "word": "it's"}]
    assert json.loads(probing(worker.pid, "query", select_it, "-f", "json").stdout) == wanted
    assert json.loads(probing(worker.pid, "q", "--format=json", select_it + ";").stdout) == wanted
    assert probing(worker.pid, "q", "-fcsv", select_it).stdout.split() == ["pid,word", f"{worker.pid},it's"]
    assert probing("-p", worker.pid, "query", select_it).stdout.split()[:2] == ["pid", "word"]
    assert f"{worker.pid},it's" in probing("all", "query", "-f", "csv", select_it).stdout
    assert f"{worker.pid}" in probing("cluster", "query", select_it).stdout
    said = probing(worker.pid, "query", "SELECT no_such FROM process", status=1)
    assert said.stdout == "" and "no such column: no_such" in said.stderr and "^" in said.stderr


def test_eval(probing, worker):
    def evaluated(code, **more):
        return probing(worker.pid, "eval", code, **more)
    assert evaluated("1 + 1").stdout == "2\n"
    assert evaluated("a = 'it\\'s'\nfor i in range(2):\n  print(a, i)").stdout == "it's 0\nit's 1\n"
    assert evaluated("-", stdin="def f():\n    return a\n\nf()\n").stdout == '"it\'s"\n'
    assert evaluated("print('no newline', end='')").stdout == "no newline"
    assert evaluated("print(1); x = (2,\n3)\nif x:\n  print(x)").stdout == "1\n(2, 3)\n"
    said = evaluated("print(1)\n1 / 0", status=1)
    assert said.stdout.startswith("1\nTraceback") and said.stdout.endswith("division by zero\n")
    for code in "(1 +", "'''", "1\nfor i in range(2):":
        said = evaluated(code, status=1)
        assert "middle of a statement" in said.stderr or "IndentationError" in said.stdout, said
    assert "SyntaxError" in evaluated("x x", status=1).stdout
    probing(worker.pid, "eval", "1", "2", status=2)


def test_repl(probing, worker):
    said = probing(worker.pid, "repl", stdin="n = 3\nfor i in range(n):\n    print(i)\n\n(n +\n 1)\n1 / 0\n'end'\n")
    assert said.stdout.startswith("0\n1\n2\n4\nTraceback") and said.stdout.endswith("'end'\n")
    tid = int(ask(probing.probe.path / str(worker.pid) / "query",
                  "SELECT tid FROM threads WHERE thread = 'worker'")[0]["tid"])
    assert probing(worker.pid, "r", tid, 1, stdin="sorted(box)\n").stdout == "['turns']\n"


def test_agent(probing, worker):
    """Each setting, as the file says it then."""
    def ctl():
        return dict(line.split(": ", 1) for line in probing(worker.pid, "config").stdout.splitlines() if ": " in line)
    said = probing(worker.pid, "inject", "-b", "-c", "-a", "127.0.0.1:1234", "-Drecord.gc=on")
    assert "HOST:PID" in said.stderr  # nothing listens
    assert ctl()["Agent"].startswith("running") and ctl()["OnCrash"] == "record" and ctl()["Record"].startswith("gc on")
    probing(worker.pid, "cfg", "on-crash=off")
    assert probing(worker.pid, "c", "on-crash").stdout == "OnCrash: off\n"
    probing(worker.pid, "config", "probing.record.gc=off")
    assert probing(worker.pid, "config", "record.gc").stdout.startswith("Record: gc off ")
    assert "Record: gc off" in probing(worker.pid, "record").stdout
    for words in ["config", "torch.profiling=ordered:0.25"], ["perf", "--torch"], ["record", "torch", "on"]:
        assert "has not imported torch" in probing(worker.pid, *words, status=1).stderr
    assert "knows no sample_rate" in probing(worker.pid, "config", "probing.sample_rate=1", status=2).stderr
    assert "unknown verb" in probing(worker.pid, "ctl", "nonsense", status=1).stderr
    probing(worker.pid, "record", "process", "on")
    eventually(lambda: len(probing(worker.pid, "memory", "-l", 1).stdout.splitlines()) == 3, what="a sample")
    probing(worker.pid, "detach")
    assert ctl()["Agent"] == "none"


def test_profile(any_probing, any_python, tmp_path):
    target = any_python.run("spinner.py")
    place = any_probing.probe.path / str(target.pid) / "profile"
    assert "never started" in any_probing(target.pid, "profile").stdout
    said = any_probing(target.pid, "perf", "--cc")
    assert "Profile: running" in said.stdout and "flamegraph" in said.stderr
    eventually(lambda: int(re.search(r"Samples: (\d+)", any_probing(target.pid, "profile").stdout)[1]), what="samples")
    for whose in target.pid, "all":  # of the last second, in which it may have had no processor
        eventually(lambda whose=whose: "inner" in any_probing(whose, "top").stdout, what="what runs")
    page = tmp_path / "flames.html"
    any_probing(target.pid, "flamegraph", "-o", page)
    assert "<canvas" in page.read_text() and "spinner.py" in page.read_text()

    def named():
        return {frame["name"] for frame in
                json.loads(any_probing(target.pid, "fg", "pprof", "-j").stdout)["shared"]["frames"]}
    eventually(lambda: "inner" in named(), what="a sample in it")
    any_probing(target.pid, "flamegraph", "--output", tmp_path / "nowhere" / "x", status=1)
    assert os.listdir(tmp_path) == ["flames.html"]
    any_probing(target.pid, "config", "probing.pprof.sample_freq=49")
    assert "Rate: 49 Hz" in any_probing(target.pid, "c", "pprof.sample_freq").stdout
    any_probing(target.pid, "profile", "off")
    assert "State: off" in any_probing(target.pid, "profile").stdout
    other = any_python.run("spinner.py")
    assert "Profile: running" in any_probing(other.pid, "inject", "-P").stdout


@pytest.mark.long
def test_flames_of_what_was_never_sampled(any_probing, any_python):
    """Ten seconds are, and no more."""
    target = any_python.run("spinner.py")
    assert "spinner.py" in any_probing(target.pid, "flame").stdout
    assert "State: off" in any_probing.probe.read(target.pid, "profile", "status")


def test_stopping(probing, worker):
    pid = worker.pid
    tid = int(ask(probing.probe.path / str(pid) / "query", "SELECT tid FROM threads WHERE thread = 'worker'")[0]["tid"])

    def held(where):
        return eventually(lambda: re.search(where, probing.probe.read(pid, "threads", tid, "ctl")), what=where)

    def stop():
        return int(held(r"stopped by .*, stop (\d+),")[1])
    line = WORKER.splitlines().index("        inner(box)") + 1
    assert "stop" in probing(pid, "break", f"stop \"a worker's.py\":{line}").stdout
    held(rf"stopped by breakpoint 1 at .*:{line}\b")
    for words in ["step", tid], ["return", tid], ["next", tid], ["until", tid, line + 1], ["step", tid, "own"]:
        before = stop()
        said = probing(pid, *words).stdout
        assert "stopped" in said or said == "running\n", said  # where it took longer
        eventually(lambda: stop() > before, what=f"the end of a {words[0]}")
    for words in ["jump", tid], ["next"], ["until", "here"], ["continue", tid, tid], ["pause", tid, 5], ["return"]:
        assert f"{words[0]} takes the number of a thread" in probing(pid, *words, status=2).stderr
    assert probing(pid, "bp", "-1").stdout == ""
    probing(pid, "continue", tid)
    assert "Pausing" in probing(pid, "debug", "--pause", "--address", "127.0.0.1:9922").stderr
    held("stopped by (a )?pause")
    probing(pid, "continue", tid)
    probing(pid, "continue")
    held("running")
    eventually(lambda: "stopped by pause at" in probing(pid, "pause", tid, "for", "1m").stdout, what="its stop")
    assert re.search(r"^Stopped: \d+$", probing.probe.read(pid, "status"), re.M)  # no other one
    probing(pid, "continue", tid)
    assert "^" in probing(pid, "watch", "x x", status=1).stderr
    probing(pid, "break", "stop (", status=1)


def test_ended(any_probing, worker):
    """What is left of one that has crashed."""
    any_probing(worker.pid, "inject", "--crash")
    worker.send("last words")
    worker.process.wait(patience(30))
    eventually((any_probing.probe.path / "exited" / str(worker.pid)).is_dir)
    assert "Mine: last words" in any_probing(worker.pid, "crash").stdout
    assert "nothing was recorded" in any_probing(worker.pid, "memory", status=1).stderr


def test_tree(any_probing, any_python):
    parent = any_python.run_source(PARENT)
    child = parent.readline().strip()
    said = any_probing("list", "--tree").stdout.splitlines()
    rows = {line.split()[0]: line for line in said}
    column = said[0].index("command")
    inner, outer = (re.match(" *", rows[pid][column:])[0] for pid in (child, str(parent.pid)))
    assert inner == outer + "  ", said
    assert said.index(rows[child]) == said.index(rows[str(parent.pid)]) + 1


def test_job(any_probing, any_python):
    """What all/ and jobs/ have, of this job."""
    ranks = [any_python.run("threads.py", 1, 2, env={"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
                                                     "MASTER_PORT": "29512"}) for rank in (0, 2)]
    job = eventually(lambda: [name for name in os.listdir(any_probing.probe.path / "jobs")
                              if (any_probing.probe.path / "jobs" / name / "ranks" / "2").exists()])[0]
    for rank in ranks:
        settle(rank)
    said = any_probing(f"job:{job}", "backtrace").stdout
    assert said == any_probing.probe.read("jobs", job, "backtrace") and "not here: 1" in said
    rows = [line.split() for line in any_probing("cluster", "nodes").stdout.splitlines() if job in line.split()]
    assert [(row[2], row[3]) for row in rows] == [("0", str(ranks[0].pid)), ("2", str(ranks[1].pid))]
    assert "there is no" in any_probing("job:nothing", "bt", status=1).stderr
    assert any_probing(f"job:{job}", "eval", "for i in range(2):\n  print(i)").stdout == "ranks 0,2 (2):\n  0\n  1\n"
    assert "ZeroDivisionError" in any_probing(f"job:{job}", "eval", "1 / 0", status=1).stderr
    assert "2 (1): 2" in any_probing(f"job:{job}", "eval", "on 2\nimport os; int(os.environ['RANK'])").stdout
    any_probing(f"job:{job}", "detach")
    assert all("Agent: none" in any_probing.probe.read(rank.pid, "ctl") for rank in ranks)


def test_launch(any_probing):
    for words in ["launch"], ["launch", "-r"], ["launch", "--recursive", "--"]:
        assert any_probing(*words, "sh", "-c", "echo $PROBING $1", "sh", "a b").stdout == "1 a b\n"
    any_probing("launch", status=2)


def test_other_host(any_probing, worker, tmp_path):
    """ssh(1) hands one line to the other's shell: each word arrives as it was typed."""
    (tmp_path / "ssh").write_text(f"""#!/bin/sh
        echo "$#:$1:$2" > {tmp_path}/seen
        export PATH={COMMAND.parent}:$PATH
        eval "$3"
        """)
    (tmp_path / "ssh").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    for there in f"gpu-17.example:{worker.pid}", f"me@gpu-17:{worker.pid}":
        assert any_probing(there, "eval", "print('$HOME `id` \"it\\'s\"')\n'x'",
                           PATH=path).stdout == "$HOME `id` \"it's\"\n'x'\n"
        assert (tmp_path / "seen").read_text() == f"3:--:{there.split(':')[0]}\n"
    assert str(worker.pid) in any_probing("gpu:all", "q", "SELECT pid FROM process", PATH=path).stdout
    assert any_probing("gpu:1", "eval", "1", status=1, PATH=path).stderr


@pytest.mark.parametrize("words, said", [
    ([], "Usage"), (["-t"], "takes a process"), (["--nonsense"], "--nonsense"), (["PID", "nonsense"], "nonsense"),
    (["PID", "debug", "-x"], "-x"), (["PID", "query"], "query what"),
    (["PID", "query", "-f", "xml", "SELECT 1"], "xml"), (["PID", "perf"], "--cc"), (["PID", "mem", "-l", "x"], "x"),
    (["PID", "fg", "cuda"], "cuda"), (["list", "-x"], "-x"), (["PID", "rdma"], "nothing like rdma"),
    (["PID", "inject", "--what"], "--what"), (["cluster", "attach"], "nodes"), (["PID", "step"], "number of a thread")])
def test_wrong_command_line(any_probing, worker, words, said):
    assert said in any_probing(*[worker.pid if word == "PID" else word for word in words], status=2).stderr
    assert "Agent: none" in any_probing.probe.read(worker.pid, "ctl")


def test_refused_by_the_kernel(any_probing, worker, nobody):
    """What may not be opened is said, and not done."""
    shared = any_probing.probe.mount("allow_other")
    said = subprocess.run(["setpriv", "--reuid", nobody, "--regid", "nogroup", "--clear-groups", "dash", COMMAND,
                           str(worker.pid), "eval", "1"], capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"], "PROBE": str(shared.path)})
    assert said.returncode == 1 and "may not look at it" in said.stderr


def test_who_waits_is_told(probe, worker, tmp_path):
    """On a terminal, and taken away again; a pipe sees none of it."""
    done = tmp_path / "done"
    code = f"import os, time\nwhile not os.path.exists({str(done)!r}): time.sleep(0.01)\n'it is'"
    command = [SHELLS[0], COMMAND, str(worker.pid), "eval", code]
    environment = {"PATH": os.environ["PATH"], "PROBE": str(probe.path)}
    master, terminal = pty.openpty()
    waits = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal,
                             env=environment)
    os.close(terminal)
    told = b""
    end = time.monotonic() + patience(60)
    while b"3 s" not in told and time.monotonic() < end:
        if select.select([master], [], [], 1)[0]:
            told += os.read(master, 4096)
    assert f"{worker.pid}" in told.decode() and "Ctrl-C ends it" in told.decode(), told
    done.touch()
    assert waits.communicate(timeout=patience(60))[0] == b"'it is'\n" and waits.returncode == 0
    while select.select([master], [], [], patience(10))[0]:
        try:
            told += os.read(master, 4096)
        except OSError as error:
            assert error.errno == errno.EIO  # nobody has the terminal any more
            break
    assert told.endswith(b"\r\x1b[K")
    os.close(master)


def test_nobody_runs_on(any_probing, worker, tmp_path):
    """Ctrl-C ends the command and what it runs in the process."""
    waits = subprocess.Popen([SHELLS[0], COMMAND, str(worker.pid), "eval",
                              "import time\nbegun = True\nwhile True: time.sleep(0.01)"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             start_new_session=True,
                             env={"PATH": os.environ["PATH"], "PROBE": str(any_probing.probe.path)})
    eventually(lambda: "begun = True" in any_probing.probe.read(worker.pid, "globals", "__main__"), what="the code")
    os.killpg(waits.pid, 2)
    waits.communicate(timeout=patience(60))
    assert waits.returncode == -2
    assert any_probing(worker.pid, "eval", "begun").stdout == "True\n"


@pytest.mark.long
@pytest.mark.deadline(300)
def test_torch(any_probing, any_python, tmp_path):
    """The flames of a model have all the time of its steps, each module below the one that calls it."""
    if subprocess.run(any_python.command("-c", "import torch"), capture_output=True).returncode:
        pytest.skip("no torch")
    target = any_python.run("training.py", "transformer")
    any_probing(target.pid, "perf", "--torch")
    any_probing(target.pid, "config", "probing.torch.profiling=random:1.0")
    target.send("run 40")
    assert target.readline(120)
    eventually(lambda: int(ask(any_probing.probe.path / str(target.pid) / "query",
                               "SELECT count(*) AS n FROM torch_trace WHERE stage = 'iteration'")[0]["n"]) >= 3)
    iterations = float(ask(any_probing.probe.path / str(target.pid) / "query",
                           "SELECT sum(duration) AS s FROM torch_trace WHERE stage = 'iteration'")[0]["s"])
    stacks = dict(line.rsplit(" ", 1) for line in any_probing(target.pid, "flamegraph", "torch").stdout.splitlines())
    assert all(stack.split(";")[0] == "iteration" for stack in stacks), stacks
    assert abs(sum(map(int, stacks.values())) / 1e6 - iterations) < 0.02 * iterations + len(stacks) * 1e-6
    assert any("forward" in stack and stack.count(";") >= 2 for stack in stacks), stacks
    any_probing(target.pid, "flamegraph", "torch", "-o", tmp_path / "torch.html")
    data = json.loads(re.search(r'id="data">(.*)</script>', (tmp_path / "torch.html").read_text())[1])
    names = [""]
    for parent, frame in zip(data["nodes"][2::2], data["nodes"][3::2]):
        names.append(";".join(filter(None, [names[parent], data["frames"][frame][0]])))
    assert {names[node]: str(weight // 1000)
            for node, weight in zip(data["cells"][1::4], data["cells"][2::4])} == stacks
    assert len(json.loads(any_probing(target.pid, "flame", "torch", "--json").stdout)) > len(stacks)


COMPLETION = REPOSITORY / "contrib" / "completion"


def in_bash(probe, line, function="_probing"):
    words = line.split(" ")
    return subprocess.run(["bash", "-c", f"""source {COMPLETION}/probing.bash
        COMP_LINE=$1 COMP_POINT=${{#1}} COMP_WORDS=($1) COMP_CWORD={len(words) - 1}
        {function}; printf '%s\\n' "${{COMPREPLY[@]}}" """, "bash", line], capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "PROBE": str(probe.path)}).stdout.splitlines()


def in_fish(probe, line, file="probing.fish"):
    return subprocess.run(["fish", "--no-config", "-c", f"source {COMPLETION}/{file}; complete -C $argv[1]", line],
                          capture_output=True, text=True, env={"PATH": os.environ["PATH"], "PROBE": str(probe.path)}
                          ).stdout.splitlines()


class Zsh:
    """On a terminal, as it completes only there."""

    def __init__(self, probe):
        self.master, terminal = pty.openpty()
        self.process = subprocess.Popen(["zsh", "-f", "-i"], stdin=terminal, stdout=terminal, stderr=terminal,
                                        start_new_session=True,
                                        env={"PATH": os.environ["PATH"], "PROBE": str(probe.path),
                                                                     "TERM": "dumb", "PS1": "> ", "COLUMNS": "200"})
        os.close(terminal)
        self.type(f"fpath=({COMPLETION} $fpath); autoload -U compinit; compinit -u -D; autoload -U _probing_paths\n"
                  "zstyle ':completion:*' completer _probing_paths _complete; unsetopt zle_bracketed_paste; echo "
                  "rea''dy\n",
                  "ready")

    def type(self, keys, wanted):
        """Until that is on the terminal."""
        os.write(self.master, keys.encode())
        seen, end = "", time.monotonic() + patience(60)
        while wanted not in seen and time.monotonic() < end:
            if select.select([self.master], [], [], 1)[0]:
                seen += os.read(self.master, 4096).decode()
        assert wanted in seen, seen
        return seen

    def complete(self, line, wanted):
        said = self.type(f"{line}\t", wanted)
        self.type("\x15echo do''ne\n", "done")
        return said

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


def test_completion(probe, worker):
    """Of commands, of what a process has, and of processes by pid and by a piece of their command lines."""
    pid = str(worker.pid)
    tid = ask(probe.path / pid / "query", "SELECT tid FROM threads WHERE thread = 'worker'")[0]["tid"]
    lines = {f"{pid} backtr": "backtrace", f"{pid} tables process_": "process_samples", f"{pid} b {tid[:-1]}": tid,
             f"-p {pid} globals __mai": "__main__", f"{pid} query -f js": "json", f"{pid} step {tid} ow": "own",
             "clus": "cluster", f"{pid} perf --t": "--torch"}
    shells = [(in_bash, "bash"), (in_fish, "fish")]
    for line, wanted in lines.items():
        for complete, name in shells:
            if shutil.which(name):
                found = [row.split("\t")[0].split("  -- ")[0] for row in complete(probe, f"probing {line}")]
                assert wanted in found, (name, line, found)
    for piece in pid, "worker's.p":
        assert pid in [row.split()[0] for row in in_bash(probe, f"probing {piece}")]
    path = f"{probe.path}/{pid}"
    assert in_bash(probe, f"cat {path}", "_probing_paths") == [f"{path}/"]
    assert in_bash(probe, f"cat {probe.path}", "_probing_paths") == [""]
    if shutil.which("fish"):
        assert f"{path}/" in [row.split("\t")[0] for row in in_fish(probe, f"cat {path}", "probing-paths.fish")]
    if shutil.which("zsh"):
        zsh = Zsh(probe)
        try:
            for line, wanted in lines.items():
                zsh.complete(f"probing {line}", wanted)
            zsh.complete("probing worker\\'s.p", pid)
            zsh.complete(f"cat {path}", f"{path}/")
        finally:
            zsh.close()


def test_words(any_probing):
    """Help and man page know every command, and shellcheck nothing bad."""
    said = any_probing("help").stdout
    page = (REPOSITORY / "contrib" / "probing.1").read_text()
    completions = [path.read_text() for path in COMPLETION.iterdir() if "paths" not in path.name]
    commands = re.search(r"^run\(\).*?^}", COMMAND.read_text(), re.M | re.S)[0]
    for line in re.findall(r"^    ([a-z |]+)\)", commands, re.M):
        names = [name for name in line.split(" | ") if name != "attach"]
        if "rdma" not in names:
            assert all(re.search(rf"\b{name}\b", text) for name in names for text in (said, page)), names
            assert all(re.search(rf"\b{name}\b", text) for name in names if len(name) > 4
                       for text in completions), names
    if shutil.which("shellcheck"):
        checked = subprocess.run(["shellcheck", COMMAND], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout
