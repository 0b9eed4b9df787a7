"""jobs/: distributed jobs, which ranks of them are here, and who is the rank itself."""
import contextlib
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys

import pytest

from commands import write
from interpreters import eventually, patience
from sql import ask, reply, rows, value
from test_access import run_as
from test_tree import ALL, TABLES

FORK = """
import os, sys
child = os.fork()
if not child:
    sys.stdin.read()
    os._exit(0)
print(child)
print("ready")
sys.stdin.read()
"""

# says in the course of its life what it is, as torch.multiprocessing.spawn and Ray have it
LATE = """
import os, sys
print("ready")
for line in sys.stdin:
    name, _, said = line.strip().partition("=")
    if said:
        os.environ[name] = said
    else:
        del os.environ[name]
    print("done")
"""

WAIT = "import sys; print('ready'); sys.stdin.read()"

# a rank, with a process that it has forked and one that runs a program of its own: both have its environment
WORKED = """
import os, subprocess, sys
forked = os.fork()
if not forked:
    sys.stdin.read()
    os._exit(0)
started = subprocess.Popen([sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
                           stdout=subprocess.PIPE)
started.stdout.readline()
print(forked, started.pid)
print("ready")
sys.stdin.read()
"""

# a rank, and a process that multiprocessing has started for it, to fork workers of
FORKSERVER = """
import multiprocessing.forkserver, sys
if __name__ == "__main__":  # which it imports, too
    multiprocessing.forkserver.ensure_running()
    print(multiprocessing.forkserver._forkserver._forkserver_pid)
    print("ready")
    sys.stdin.read()
"""

RAISES = """
import os, sys
print("ready")
CASE
raise ValueError(f"rank {os.environ['RANK']} is bad")
"""


def job_of(world, **more):
    """The environment of a job that there is only once, and its name."""
    port = str(random.randrange(10**6, 10**9))
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(world), **more}, f"127.0.0.1:{port}"


def status(probe, job):
    return dict(line.split(": ", 1) for line in probe.read("jobs", job, "status").splitlines())


def links(directory):
    """{name: pid}, but of what goes meanwhile."""
    found = {}
    for name in os.listdir(directory):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found[name] = int(os.path.basename(os.readlink(directory / name)))
    return found


def test_what_multiprocessing_leaves(probe, python):
    """It isn't the rank, not even when that has ended."""
    env, name = job_of(1)
    rank = python.run_source(FORKSERVER, env={**env, "RANK": "0"}, ready=False)
    helper = int(rank.readline())
    rank.expect("ready")
    job = probe.path / "jobs" / name
    eventually(lambda: helper in links(job / "workers").values(), what="the helper among the workers")
    assert links(job / "ranks") == {"0": rank.pid}
    os.kill(helper, signal.SIGSTOP)  # else it ends with the rank, where no worker hangs
    try:
        os.kill(rank.pid, signal.SIGKILL)
        eventually(lambda: not os.listdir(job / "ranks"), what="the end of the rank")
        eventually(lambda: helper in links(job / "workers").values(), what="the helper among the workers, still")
        assert not os.listdir(job / "ranks")
    finally:
        os.kill(helper, signal.SIGKILL)


def test_a_job(probe, any_python):
    env, name = job_of(4, TORCHELASTIC_RUN_ID="none", TORCHELASTIC_RESTART_COUNT="0")
    ranks = {rank: any_python.run_source(FORK, env={**env, "RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "4"},
                                         ready=False) for rank in "013"}
    children = {rank: int(target.readline()) for rank, target in ranks.items()}
    other, others_name = job_of(9)
    any_python.run_source(WAIT, env={**other, "RANK": "5"})
    for target in ranks.values():
        target.expect("ready")
    assert {name, others_name} <= set(os.listdir(probe.path / "jobs"))
    job = probe.path / "jobs" / name
    assert set(os.listdir(job)) == {*ALL, "status", "ranks", "workers"}
    assert set(os.listdir(job / "tables")) == TABLES
    assert links(job / "ranks") == {rank: target.pid for rank, target in ranks.items()}
    assert links(job / "workers") == {f"{rank}.0": child for rank, child in children.items()}
    assert (job / "ranks" / "1" / "status").read_text().startswith(f"Pid: {ranks['1'].pid}\n")
    said = status(probe, name)
    assert said.pop("Started")[:2] == "20"
    assert said == {"Job": name, "World": "4", "Here": "0-1,3", "Missing": "2", "Workers": "3", "Launcher": "torchrun",
                    "Restarts": "0", "Uid": str(os.getuid())}
    said = status(probe, others_name)
    assert (said["Here"], said["Elsewhere or missing"]) == ("5", "0-4,6-8")
    assert not {"Launcher", "Restarts", "Missing"} & said.keys()

    # what is asked there is asked of its processes
    mine = {target.pid for target in ranks.values()} | set(children.values())
    asked = ask(job / "query", "SELECT pid, rank, job, world, worker, role FROM process")
    assert {int(row["pid"]) for row in asked} == mine
    assert {(row["job"], row["world"], row["role"]) for row in asked} == {(name, "4", "")}
    assert {(row["rank"], int(row["pid"])) for row in asked if row["worker"] == "1"} == set(children.items())
    assert {int(row["pid"]) for row in rows((job / "tables" / "process.csv").read_text())} == mine
    heads = [line for line in (job / "backtrace.python").read_text().splitlines() if line.startswith("host=")]
    assert len(heads) == 6 and all(str(pid) in " ".join(heads) for pid in mine)
    # and what is answered to a job isn't to another
    write(job / "query", "SELECT 17 AS x\n")
    assert (job / "query").read_text() == "x\n17\n"
    assert "17" not in (probe.path / "jobs" / others_name / "query").read_text()

    # who dies is missing; what it has started is no rank
    os.kill(ranks["3"].pid, signal.SIGKILL)
    eventually(lambda: status(probe, name)["Missing"] == "2-3", what="the end of rank 3")
    assert set(os.listdir(job / "ranks")) == {"0", "1"}
    assert links(job / "workers")["3.0"] == children["3"]
    assert not os.path.lexists(probe.path / "by-rank" / "3") or \
        links(probe.path / "by-rank")["3"] != children["3"]
    for child in children.values():
        os.kill(child, signal.SIGKILL)


class Worked:
    """A rank of a number that no other has, and what works for it, of which nobody has asked yet who is what."""

    def __init__(self, probe, python):
        env, self.job = job_of(10**6)
        self.rank = random.randrange(10**5, 10**6)
        self.target = python.run_source(WORKED, env={**env, "RANK": str(self.rank)}, ready=False)
        self.probe, self.pid = probe, self.target.pid
        self.workers = [int(pid) for pid in self.target.readline().split()]
        self.target.expect("ready")
        self.all = [self.pid, *self.workers]

    def each(self, name):
        return [self.probe.path / str(pid) / name for pid in self.all]

    def with_agent(self):
        return [pid for pid in self.all if "Agent: none" not in self.probe.read(pid, "status")]

    def close(self):
        for pid in self.all:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def backtrace_of_all(of):
    said = (of.probe.path / "all" / "backtrace").read_text().splitlines()
    heads = [line.partition(":")[0] for line in said if f"rank {of.rank} (" in line]
    return [of.pid] if sorted(heads) == [f"rank {of.rank} (1)", *2 * [f"workers of rank {of.rank} (1)"]] else said


def told_by(name):
    def told(of):
        query = of.probe.path / name
        said = ask(query, f"SELECT pid, worker FROM process WHERE rank = {of.rank}")
        return [int(row["pid"]) for row in said if row["worker"] == "0"]
    return told


def told_by_query(of):
    return [pid for pid, file in zip(of.all, of.each("query")) if value(file, "SELECT worker FROM process") == "0"]


def told_by_table(of):
    return [int(row["pid"]) for file in of.each("tables/process.csv")
            for row in rows(file.read_text()) if row["worker"] == "0"]


def told_by_all_tables(of):
    said = rows((of.probe.path / "all" / "tables" / "process.csv").read_text())
    return [int(row["pid"]) for row in said if row["rank"] == str(of.rank) and row["worker"] == "0"]


def told_by_metrics(of):
    said = (of.probe.path / "all" / "metrics").read_text().splitlines()
    found = [re.search(r'pid="(\d+)",rank="(\d+)",worker="0"', line)
             for line in said if line.startswith("probefs_process_info{")]
    return [int(one[1]) for one in found if one and one[2] == str(of.rank)]


def asked_of_all(of):
    assert reply(of.probe.path / "all" / "eval",
                 f"on {of.rank}\n__import__('os').getpid()\n") == f"rank {of.rank} (1): {of.pid}\n"
    return of.with_agent()


def asked_of_each(of):
    for file in of.each("eval"):
        assert reply(file, f"on {of.rank}\n1\n") == "1\n" * (file.parent.name == str(of.pid))
    return of.with_agent()


def written_to_all(name, line):
    def written(of):
        with open(of.probe.path / "all" / name, "a") as file:
            file.write(f"on {of.rank} {line}\n")
        return of.with_agent()
    return written


def written_to_each(name, line):
    def written(of):
        for path in of.each(name):
            with open(path, "a") as file:
                file.write(f"on {of.rank} {line}\n")
        return of.with_agent()
    return written


def left_by_rank(of):
    """Who of it ends last is none of the ranks: what it left isn't what by-rank/ names."""
    for path in of.each("ctl"):
        write(path, "record process on\n")
    for pid in of.all:
        os.kill(pid, signal.SIGKILL)
        if pid != of.pid:
            eventually(lambda: os.path.exists(of.probe.path / "exited" / str(pid)), what="what it left")
    eventually(lambda: os.path.exists(of.probe.path / "exited" / str(of.pid)), what="what the rank left")
    return [links(of.probe.path / "exited" / "by-rank")[str(of.rank)]]


@pytest.mark.alone
@pytest.mark.parametrize("look", [
    backtrace_of_all, told_by("all/query"), told_by_all_tables, told_by_query, told_by_table, told_by_metrics,
    asked_of_all, asked_of_each, written_to_all("ctl", "attach"), written_to_each("ctl", "attach"),
    written_to_all("breakpoints", "log a.py:1"), written_to_each("breakpoints", "log a.py:1"), left_by_rank],
                         ids=lambda look: look.__qualname__.split(".")[0])
def test_workers_before_any_job_was_listed(probe, any_python, look):
    """Each file by itself knows who is the rank itself, and acts in nobody else."""
    of = Worked(probe, any_python)
    try:
        assert look(of) == [of.pid]
    finally:
        of.close()


def test_under_mpirun(probe):
    """Open MPI's own, with what it puts into the environment of its ranks."""
    if not shutil.which("mpirun"):
        pytest.skip("mpirun is not installed (Debian: openmpi-bin)")
    mpirun = subprocess.Popen(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable, "-c",
                               "import os, threading; os.write(1, b'.'); threading.Event().wait()"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def its_job():
        for name in os.listdir(probe.path / "jobs"):
            with contextlib.suppress(OSError):
                said = status(probe, name)
                if said.get("Launcher") == "openmpi" and said["Here"] == "0-2":
                    return name, said
        assert mpirun.poll() is None, "mpirun has ended"
    try:
        name, said = eventually(its_job, 120, "its job")
        assert said.pop("Started")[:2] == "20"
        assert said == {"Job": name, "World": "3", "Here": "0-2", "Missing": "none", "Workers": "0",
                        "Launcher": "openmpi", "Uid": str(os.getuid())}
        assert len(set(links(probe.path / "jobs" / name / "ranks").values())) == 3
        assert mpirun.stdout.read(3) == "..."  # none is only starting
        said = reply(probe.path / "jobs" / name / "eval", "on 1-2\n"
                     "__import__('os').environ['OMPI_COMM_WORLD_LOCAL_RANK']\n")
        assert said == "rank 1 (1): '1'\nrank 2 (1): '2'\n"
    finally:
        mpirun.terminate()
        mpirun.wait(patience(60))
        mpirun.stdout.close()


def test_under_srun(probe, any_python):
    """A stand-in for Slurm: two of the four tasks of a step, on this of its nodes, as srun(1) says what they get."""
    step = {"SLURM_JOB_ID": str(random.randrange(10**6, 10**9)), "SLURM_STEP_ID": "3", "SLURM_NTASKS": "4",
            "SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NODEID": "1", "SLURMD_NODENAME": "b"}
    tasks = [any_python.run_source(WAIT, env={**step, "SLURM_PROCID": str(2 + i), "SLURM_LOCALID": str(i)})
             for i in range(2)]
    name = f"{step['SLURM_JOB_ID']}.3"
    said = status(probe, name)
    assert said.pop("Started")[:2] == "20"
    assert said == {"Job": name, "World": "4", "Here": "2-3", "Missing": "none", "Workers": "0",
                    "Launcher": "slurm", "Uid": str(os.getuid())}
    assert links(probe.path / "jobs" / name / "ranks") == {"2": tasks[0].pid, "3": tasks[1].pid}


@pytest.mark.python(minimum=(3, 9))
def test_ranks_that_are_told_later(probe, python):
    env, name = job_of(3)
    target = python.run_source(LATE)
    rank = random.randrange(10**5, 10**6)
    assert name not in os.listdir(probe.path / "jobs")
    for variable, said in {**env, "RANK": rank}.items():
        target.send(f"{variable}={said}")
        target.expect("done")
    eventually(lambda: name in os.listdir(probe.path / "jobs"), what="the job")
    assert links(probe.path / "jobs" / name / "ranks") == {str(rank): target.pid}
    assert links(probe.path / "by-rank")[str(rank)] == target.pid
    assert f"Rank: {rank}\n" in probe.read(target.pid, "status")
    assert value(probe.path / "all" / "query", f"SELECT pid FROM process WHERE rank = {rank}") == str(target.pid)
    target.send("RANK=")
    target.expect("done")
    eventually(lambda: name not in os.listdir(probe.path / "jobs"), what="the end of the job")


def test_an_elastic_job_that_begins_again(probe, any_python):
    """What the first start has left is no rank, though it says so."""
    env, name = job_of(1, RANK="0", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", TORCHELASTIC_RUN_ID="again")
    first = any_python.run_source(WAIT, env={**env, "TORCHELASTIC_RESTART_COUNT": "0"})
    name += "@again"
    assert links(probe.path / "jobs" / name / "ranks") == {"0": first.pid}
    second = any_python.run_source(WAIT, env={**env, "TORCHELASTIC_RESTART_COUNT": "1"})
    assert links(probe.path / "jobs" / name / "ranks") == {"0": second.pid}
    assert links(probe.path / "jobs" / name / "workers") == {"0.0": first.pid}
    assert status(probe, name)["Restarts"] == "1"
    second.close()
    eventually(lambda: links(probe.path / "jobs" / name / "ranks") == {"0": first.pid}, what="the end of the second")


def test_a_rank_that_executes_itself(probe, any_python):
    """The same program again, as a child of multiprocessing does: it is another process to look at, and to act on."""
    env, name = job_of(2)
    source = ("import os, sys\nprint('ready')\nsys.stdin.readline()\n"
              "os.environ['RANK'] = '1'\nos.execv(sys.executable, sys.orig_argv if hasattr(sys, 'orig_argv') else "
              "[sys.executable, '-u', *sys.argv])\n")
    target = any_python.run_source(source, name="executes_itself.py", env={**env, "RANK": "0"})
    assert links(probe.path / "jobs" / name / "ranks") == {"0": target.pid}
    target.send("go")
    target.expect("ready")
    eventually(lambda: links(probe.path / "jobs" / name / "ranks") == {"1": target.pid}, what="the other rank")
    assert reply(probe.path / "jobs" / name / "eval", "os.environ['RANK']\n") == "rank 1 (1): '1'\n"


@pytest.mark.attack
def test_jobs_of_two_users(probe, any_python, nobody):
    """What others say of themselves is never of one's own job, and nobody sees what they may not look at."""
    mount = probe.mount("allow_other", "hidepid=0")
    env, name = job_of(2)
    own = any_python.run_source(WAIT, env={**env, "RANK": "0"})
    theirs = any_python.run_source(WAIT, env={**env, "RANK": "0"}, user=nobody)
    intruder = any_python.run_source(WAIT, env={**env, "RANK": "1"}, user=nobody)
    uid = os.stat(f"/proc/{theirs.pid}").st_uid
    jobs = mount.path / "jobs"
    assert {job for job in os.listdir(jobs) if job.startswith(name)} == {name, f"{name}~{uid}"}
    assert links(jobs / name / "ranks") == {"0": own.pid}
    assert links(jobs / f"{name}~{uid}" / "ranks") == {"0": theirs.pid, "1": intruder.pid}
    seen = run_as(nobody, "ls", jobs).stdout.split()
    assert [job for job in seen if job.startswith(name)] == [name]
    assert run_as(nobody, "readlink", jobs / name / "ranks" / "0").stdout == f"../../../{theirs.pid}\n"
    said = run_as(nobody, "sh", "-c", 'echo "SELECT pid FROM process" > "$1"; cat "$1"', "sh", jobs / name / "query")
    assert {int(row["pid"]) for row in rows(said.stdout)} == {theirs.pid, intruder.pid}, said.stderr
    said = [line
            for line in (mount.path / "all" / "backtrace").read_text().splitlines() if line.startswith(f"Job {name}:")]
    assert said == [f"Job {name}: ranks 0 of 2, not here: 1",
                    f"Job {name}: ranks 0-1 of 2"], "who may see both sees two"


def test_events_of_a_job(probe, any_python):
    """Of ranks that come later, too; one that ends before it is found is never of it, so some are tried."""
    env, name = job_of(2)
    first = any_python.run_source(WAIT, env={**env, "RANK": "0"})
    events = os.open(probe.path / "jobs" / name / "events", os.O_RDONLY | os.O_NONBLOCK)
    said, late, others = "", [], []
    try:
        def is_seen():
            nonlocal said
            others.append(any_python.run_source(WAIT))
            late.append(any_python.run_source(WAIT, env={**env, "RANK": "1"}))
            select.select([events], [], [], len(late))
            others[-1].close()
            late[-1].close()
            if select.select([events], [], [], 1)[0]:
                said += os.read(events, 1 << 16).decode()
            return any(f'"pid": {target.pid}, "status": null, "signal": 9' in said for target in late)

        eventually(is_seen, what="the end of a rank")
        first.close()
        while f'"pid": {first.pid},' not in said:
            assert select.select([events], [], [], patience(60))[0], said
            said += os.read(events, 1 << 16).decode()
        assert not any(f'"pid": {other.pid},' in said for other in others)
    finally:
        os.close(events)


def test_after_it_is_over(probe, any_python):
    """Who died first, and of what, is one statement; and what each rank has left is there by rank."""
    env, name = job_of(3)
    source = RAISES.replace("CASE", "sys.stdin.readline()")
    targets = [any_python.run_source(source, name="raises_in_turn.py", env={**env, "RANK": str(rank)})
               for rank in range(3)]
    plain = any_python.run_source(WAIT)
    write(probe.path / "jobs" / name / "ctl", "on-crash record\n")
    for rank in 1, 0:
        targets[rank].send("go")
        targets[rank].process.wait(patience(60))
    mine = ", ".join(str(target.pid) for target in targets)
    query = probe.path / "all" / "query"
    asked = f"SELECT rank, name, value, ended FROM crash WHERE pid IN ({mine}) AND kind = 'exception' ORDER BY ts"

    def told():
        said = ask(query, asked)
        return said if len(said) == 2 and all(row["ended"] for row in said) else None
    first, second = eventually(told, what="what both have left")
    assert (first["rank"], first["name"], first["value"]) == ("1", "ValueError", "rank 1 is bad")
    assert second["rank"] == "0" and 0 < float(first["ended"]) <= float(second["ended"])
    # the same of the job as long as one of it lives, and of no other
    assert [row["rank"] for row in ask(probe.path / "jobs" / name / "query", asked)] == ["1", "0"]
    env, other = job_of(1)
    any_python.run_source(WAIT, env={**env, "RANK": "0"})
    assert not ask(probe.path / "jobs" / other / "query", asked)
    assert not ask(query, f"SELECT * FROM crash WHERE pid = {plain.pid}")
    # what is read of those that are there has none of them
    assert not ask(query, f"SELECT pid FROM process WHERE pid IN ({targets[0].pid}, {targets[1].pid})")
    left = links(probe.path / "exited" / "by-rank")
    assert {left["0"], left["1"]} == {targets[0].pid, targets[1].pid}
    traceback = (probe.path / "exited" / "by-rank" / "1" / "crash" / "traceback").read_text()
    assert traceback.rstrip().endswith("rank 1 is bad")
    targets[2].send("go")
    targets[2].process.wait(patience(60))
    eventually(lambda: name not in os.listdir(probe.path / "jobs"), what="the end of the job")
    eventually(lambda: [row["rank"] for row in ask(query, asked)] == ["1", "0", "2"], what="all that they have left")


@pytest.mark.attack
def test_others_do_not_see_what_is_left(probe, any_python, nobody):
    mount = probe.mount("allow_other", "hidepid=0")
    env, name = job_of(2)
    target = any_python.run_source(RAISES.replace("CASE", "sys.stdin.readline()"), name="raises_in_turn.py",
                                   env={**env, "RANK": "1"})
    write(mount.path / "jobs" / name / "ctl", "on-crash record\n")
    target.send("go")
    target.process.wait(patience(60))
    asked = f"SELECT rank, name FROM crash WHERE pid = {target.pid} AND kind = 'exception'"
    eventually(lambda: ask(mount.path / "all" / "query", asked) == [{"rank": "1", "name": "ValueError"}],
               what="what it left")
    said = run_as(nobody, "sh", "-c", 'echo "$2" > "$1"; cat "$1"', "sh", mount.path / "all" / "query", asked)
    assert (said.stdout, said.stderr) == ("rank,name\n", "")


def test_names_that_are_none(probe, any_python):
    env, name = job_of(2)
    any_python.run_source(WAIT, env={**env, "RANK": "0"})
    for path in (f"jobs/{name}x", "jobs/0", f"jobs/{name}/ranks/1", f"jobs/{name}/ranks/00", f"jobs/{name}/workers/0",
                 f"jobs/{name}/workers/0.0", f"jobs/{name}/workers/0.x", "jobs/" + "x" * 255):
        assert not os.path.lexists(probe.path / path), path
