"""profile: what ctl starts, and what the files of profile/ say, against a program that measures itself and against each
other. What the real tools make of them: test_profile_readers.py."""
import errno
import gzip
import json
import os
import re
import select
import subprocess

import pytest

import shares
from commands import Commands
from interpreters import eventually, patience
from mount import REPOSITORY
from sql import ask, value
from test_torch import torch_python  # noqa: F401, a fixture

FILES = {"status", "folded", "top", "lines", "flamegraph.html", "speedscope.json", "gecko.json", "pprof"}
PARTS = {"last", "marks", "modes", "diff", "threads", "source"}
BROKEN = ["cpu 0hz", "cpu 10001hz", "cpu 97", "97hz 19hz", "cpu 99999999999999999999hz", "cpu 12mhz", "sleep",
          "cpu for", "for 5", "for 1ms", "for 31d", "for 99999999999999999999s", "tid", "tid 0", "tid x",
          "tid 4294967296", "mark", "mark a/b", "mark .a", "mark a..b", "mark 30s", "mark " + "x" * 64, "mark a b",
          "clear all", "status now", "cpu;"]

# a daemon that has to read from outside
WITHOUT = [REPOSITORY / "tests" / "seccomp-exec", "EPERM", "bpf,perf_event_open"]

EXECS = """
import os, sys
def spin():
    while not os.path.exists(sys.argv[1]):
        sum(range(1000))
spin()
os.execv(sys.executable, [sys.executable, "-c", '''
def after():
    while True:
        sum(range(1000))
after()'''])
"""


def status(probe, pid, *part):
    return dict(line.split(": ", 1) for line in probe.read(pid, "profile", *part, "status").splitlines())


def samples(probe, pid):
    return int(status(probe, pid).get("Samples", 0))


def started(probe, target, line="profile cpu 997hz", enough=200):
    commands = Commands(probe, target.pid)
    commands.run("ctl", line + "\n")
    eventually(lambda: samples(probe, target.pid) >= enough, patience(60), f"{enough} samples")
    return commands


def folded(text):
    return {tuple(stack): count for stack, count in shares.stacks(text)}


def top(text):
    """{function: (self, total)}"""
    head, *lines = text.splitlines()
    assert head == "self% total% self total function place"
    return {line.split(" ")[4]: tuple(map(float, line.split(" ")[2:4])) for line in lines}


def messages(data):
    """The fields of a protobuf message: (number, value)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            assert key & 7 == 2
            size = varint()
            at += size
            assert at <= len(data)
            yield key >> 3, data[at - size:at]


def varints(data):
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def pprof(data):
    """{stack of functions, the root first: weight}, by profile.proto."""
    fields = list(messages(gzip.decompress(data)))
    strings = [value.decode() for number, value in fields if number == 6]
    assert strings[0] == ""
    functions = {body[1]: strings[body[2]] for number, value in fields if number == 5
                 for body in [dict(messages(value))]}
    places = {}
    for number, value in fields:
        if number == 4:
            body = dict(messages(value))
            places[body[1]] = functions[dict(messages(body[4]))[1]]
    found = {}
    for number, value in fields:
        if number == 2:
            body = dict(messages(value))
            stack = tuple(places[place] for place in varints(body[1]))[::-1]
            found[stack] = found.get(stack, 0) + list(varints(body[2]))[1]
    return found


def speedscope(text):
    profile = json.loads(text)
    assert profile["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = [frame["name"] for frame in profile["shared"]["frames"]]
    found = {}
    for thread in profile["profiles"]:
        assert thread["type"] == "sampled" and thread["unit"] == "nanoseconds"
        assert len(thread["samples"]) == len(thread["weights"]) and thread["endValue"] == sum(thread["weights"])
        for stack, weight in zip(thread["samples"], thread["weights"]):
            stack = tuple(frames[frame] for frame in stack)
            found[stack] = found.get(stack, 0) + weight
    assert profile["activeProfileIndex"] < len(profile["profiles"])
    return found


def gecko(text):
    profile = json.loads(text)
    assert profile["meta"]["preprocessedProfileVersion"] == 57
    strings, found = profile["shared"]["stringArray"], {}
    for thread in profile["threads"]:
        for table in "stackTable", "frameTable", "funcTable", "samples":
            columns = {name: column for name, column in thread[table].items() if isinstance(column, list)}
            assert {len(column) for column in columns.values()} == {thread[table]["length"]}, table
        stacks, frames, functions, taken = (thread[t] for t in ("stackTable", "frameTable", "funcTable", "samples"))
        assert all(prefix is None or prefix < i for i, prefix in enumerate(stacks["prefix"]))
        assert taken["time"] == sorted(taken["time"]) and taken["weightType"] == "tracing-ms"
        for stack, weight in zip(taken["stack"], taken["weight"]):
            names = []
            while stack is not None:
                names.append(strings[functions["name"][frames["func"][stacks["frame"][stack]]]])
                stack = stacks["prefix"][stack]
            found[tuple(names[::-1])] = found.get(tuple(names[::-1]), 0) + weight * 1e6
    return found


def flamegraph(page):
    """The stacks that lie in the page."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
    assert "http:" not in page and "https:" not in page and "src=" not in page
    found = {}
    for i in range(0, len(data["cells"]), 4):
        _, node, weight, before = data["cells"][i:i + 4]
        names = []
        while node:
            names.append(data["frames"][data["nodes"][2 * node + 1]][0])
            node = data["nodes"][2 * node]
        found[tuple(names[::-1])] = found.get(tuple(names[::-1]), 0) + weight - before
    return found


def by_function(stacks):
    """Folded stacks without places, in ns."""
    found = {}
    for stack, count in stacks.items():
        names = tuple(re.sub(r" \([^()]*:\d+\)$", "", frame) for frame in stack)
        found[names] = found.get(names, 0) + count * 1000
    return found


def same(one, other, unit=1000):
    """Stacks that weigh the same, but for what microseconds round away."""
    for stack in set(one) | set(other):
        assert abs(one.get(stack, 0) - other.get(stack, 0)) <= 20 * unit, stack


def test_nothing_before(probe, any_python):
    """Looking starts nothing."""
    target = any_python.run("shares.py", "python")
    directory = probe.path / str(target.pid) / "profile"
    assert set(os.listdir(directory)) == FILES | PARTS | {"live"}
    for name in FILES - {"status"}:
        assert (directory / name).read_bytes() == b"", name
    assert "echo 'profile cpu' > ctl" in probe.read(target.pid, "profile", "status")
    assert "self%" in probe.read(target.pid, "top")
    for name in "source", "marks", "threads":
        assert os.listdir(directory / name) == []
    assert status(probe, target.pid)["State"].startswith("never started")


def test_every_format_says_the_same(probe, any_python):
    target = any_python.run("shares.py", "python")
    commands = Commands(probe, target.pid)
    said = commands.run("ctl", "profile cpu 1000hz\n")
    assert "997 Hz instead of 1000" in said and "Profile: running, cpu, 997 Hz" in said
    shares.begin(target)
    eventually(lambda: samples(probe, target.pid) >= 1000, patience(60), "samples")
    truth = {name: cpu for name, (cpu, _) in shares.end(target).items()}
    commands.run("ctl", "profile off\n")
    said = status(probe, target.pid)
    assert said["State"] == "off" and said["Source"] in {"bpf", "timer"}
    assert float(said["TargetCost"].split("(")[1].split()[0]) < 50
    text = probe.read(target.pid, "profile", "folded")
    judged = shares.judge(text, truth)
    assert judged.impossible == 0
    assert judged.worst < 12, judged  # how well, under what: tests/bench
    stacks = folded(text)
    assert list(stacks.values()) == sorted(stacks.values(), reverse=True)
    functions, whole = by_function(stacks), sum(stacks.values())
    same(functions, speedscope(probe.read(target.pid, "profile", "speedscope.json")))
    same(functions, pprof((probe.path / str(target.pid) / "profile" / "pprof").read_bytes()))
    same(functions, gecko(probe.read(target.pid, "profile", "gecko.json")))
    page = probe.read(target.pid, "profile", "flamegraph.html")
    same(functions, flamegraph(page))
    lines = probe.read(target.pid, "profile", "top")
    for name, (own, total) in top(lines).items():
        assert abs(own - sum(n for stack, n in functions.items() if stack[-1] == name) / 1e9) < 1e-3, name
        assert abs(total - sum(n for stack, n in functions.items() if name in stack) / 1e9) < 1e-3, name
    heat = {line.split(" ")[0]: float(line.split(" ")[1])
            for line in probe.read(target.pid, "profile", "lines").splitlines()}
    assert abs(sum(heat.values()) - whole / 1e6) < whole / 1e6 * 0.2  # `?? (torn)` has no line
    source = probe.read(target.pid, "profile", "source", "shares.py").splitlines()
    for number, line in enumerate(target.path_seen("shares.py").read_text().splitlines(), 1):
        own, _, shown, *rest = source[number - 1].split(None, 3)
        assert int(shown) == number and line.strip() == (rest[0] if rest else "").strip()
        place = target.path() + f":{number}"
        assert own == "." if place not in heat else float(own) == heat[place]
    query = probe.path / str(target.pid) / "query"
    rows = ask(query, "SELECT s.stack, sum(weight) AS weight, func FROM profile p JOIN profile_stacks s ON s.stack = "
                      "p.stack AND "
                      "depth = 0 WHERE mode = 'cpu' GROUP BY s.stack")
    assert abs(sum(int(row["weight"]) for row in rows) - whole * 1000) < 1000 * len(stacks)
    assert int(value(query, "SELECT count(*) FROM profile")) == int(said["Samples"])
    for name in "speedscope.json", "flamegraph.html", "pprof", "gecko.json":  # for who trusts it
        path = probe.path / str(target.pid) / "profile" / name
        assert path.stat().st_size == len(path.read_bytes()) > 0


def test_parts(probe, any_python):
    target = any_python.run("shares.py", "threads")
    commands = started(probe, target, "profile wall 97hz")
    commands.run("ctl", "profile mark warm\n")
    eventually(lambda: probe.read(target.pid, "profile", "marks", "warm", "folded"), patience(30),
               "samples behind the mark")
    commands.run("ctl", "profile mark steady\n")
    eventually(lambda: probe.read(target.pid, "profile", "marks", "steady", "folded"), patience(30),
               "samples behind it")
    directory = probe.path / str(target.pid) / "profile"
    eventually(lambda: "in_c_nogil" in (directory / "modes" / "nogil" / "top").read_text(), patience(30),
               "a sample without the GIL")
    commands.run("ctl", "profile off\n")
    whole = folded((directory / "folded").read_text())
    parts = [folded((directory / "threads" / tid / "folded").read_text()) for tid in os.listdir(directory / "threads")]
    assert len([part for part in parts if part]) >= 4
    assert abs(sum(map(sum, (part.values() for part in parts))) - sum(whole.values())) < 1000
    assert os.listdir(directory / "marks") == ["warm", "steady"]
    assert os.listdir(directory / "diff") == ["warm..steady"]
    sums = [sum(folded((directory / path / "folded").read_text()).values())
            for path in (".", "marks/warm", "marks/steady", "last/1h")]
    assert sums[0] > sums[1] > sums[2] > 0 and sums[3] == sums[0]
    assert flamegraph((directory / "diff" / "warm..steady" / "flamegraph.html").read_text())
    assert (directory / "diff" / "1h..warm" / "top").read_text()
    modes = {mode: sum(folded((directory / "modes" / mode / "folded").read_text()).values())
             for mode in os.listdir(directory / "modes")}
    assert abs(modes["gil"] + modes["nogil"] - modes["cpu"]) < 1000
    assert 0 < modes["off"] < modes["wall"] == sums[0]
    assert modes["heap"] == 0
    assert "in_c_nogil" in (directory / "modes" / "nogil" / "top").read_text()
    for nothing in "marks/none", "last/soon", "last/0s", "diff/warm", "diff/warm..none", "diff/..warm", "modes/none", \
                   "threads/1", "source/none":
        assert not (directory / nothing).exists(), nothing
    everything = folded(probe.read("all", "profile", "folded"))
    assert {stack[0] for stack in everything} >= {f"pid {target.pid}"}
    assert f"pid={target.pid} " in probe.read("all", "profile", "status")
    commands.run("ctl", "profile clear\n")
    assert not (directory / "folded").read_text() and not os.listdir(directory / "marks")


def test_grammar(probe, any_python):
    target = any_python.run("shares.py", "python")
    commands = Commands(probe, target.pid)
    for line in BROKEN:
        error, words = commands.refused("ctl", f"profile {line}\n")
        assert error == errno.EINVAL and "^" in words, line
        assert status(probe, target.pid)["State"].startswith("never started"), line
    for line in "profile mark a", "profile clear":
        error, words = commands.refused("ctl", line + "\n")
        assert error == errno.EINVAL and "profile cpu" in words
    error, words = commands.refused("ctl", "profile tid 1\n")
    assert error == errno.ENOENT
    error, words = commands.refused("ctl", "profile cpu heap\n")
    assert error == errno.EINVAL and "one after the other" in words
    assert "never started" in commands.run("ctl", "profile\n")
    assert "off" in commands.run("ctl", "profile cpu gil off wall 19hz for 1h\nprofile off\n")
    said = status(probe, target.pid)
    assert said["Mode"] == "cpu gil off wall" and said["Rate"] == "19 Hz"
    for number in range(64):
        commands.run("ctl", f"profile mark m{number}\n")
    error, words = commands.refused("ctl", "profile mark more\n")
    assert error == errno.ENOSPC and "profile clear" in words


def test_ends_by_itself(probe, any_python):
    target = any_python.run("shares.py", "python")
    Commands(probe, target.pid).run("ctl", "profile cpu 997hz for 500ms\n")  # it may get little of a processor
    eventually(lambda: status(probe, target.pid)["State"] == "off", patience(30), "its end")
    assert 0.4 < float(status(probe, target.pid)["Lasted"])
    before = probe.read(target.pid, "profile", "folded")
    assert before and before == probe.read(target.pid, "profile", "folded")


def test_outlives_its_process(probe, any_python):
    target = any_python.run("shares.py", "python")
    started(probe, target).run("ctl", "profile mark half\n")
    eventually(lambda: probe.read(target.pid, "profile", "marks", "half", "top"), patience(30), "samples")
    pid, least = target.pid, folded(probe.read(target.pid, "profile", "folded"))
    target.close()
    eventually(lambda: (probe.path / "exited" / str(pid)).exists(), patience(30), "what is left")
    left = folded(probe.read("exited", pid, "profile", "folded"))
    assert sum(left.values()) >= sum(least.values())
    said = dict(line.split(": ", 1) for line in probe.read("exited", pid, "profile", "status").splitlines())
    assert said["State"] == "off" and int(said["Samples"]) >= 200
    assert folded(probe.read("exited", pid, "profile", "last", "1h", "folded")) == left
    assert probe.read("exited", pid, "profile", "marks", "half", "top")
    assert "the process has ended" in probe.read("exited", pid, "profile", "source", "shares.py")
    query = probe.path / "exited" / str(pid) / "query"
    assert int(value(query, "SELECT count(*) FROM profile")) == int(said["Samples"])
    assert value(query,
                 "SELECT count(*) > 0 FROM profile JOIN profile_stacks USING (stack) WHERE func = 'burn40'") == "1"
    assert "burn40" in probe.read("exited", pid, "tables", "profile_stacks.csv")
    (probe.path / "exited" / str(pid)).rmdir()


def test_goes_on_behind_an_exec(probe, any_python, tmp_path):
    flag = any_python.directory / f"flag-{os.getpid()}"
    target = any_python.run_source(EXECS.replace("spin()\nos", "print('ready')\nspin()\nos"),
                                   str("/" / flag.relative_to(any_python.root)))
    started(probe, target, "profile cpu", 50)
    flag.touch()
    try:
        path = probe.path / str(target.pid) / "profile" / "marks" / "exec" / "top"  # there once the new program is seen
        eventually(lambda: path.exists() and "after" in path.read_text(), patience(60), "what came behind")
    finally:
        flag.unlink()
    assert "spin" in probe.read(target.pid, "profile", "top")
    assert "spin" not in probe.read(target.pid, "profile", "marks", "exec", "top")


def test_without_the_kernels_help(probe, python):
    """Where a container forbids it, it says so, and reads from outside."""
    target = python.run("shares.py", "mix")
    own = probe.mount(within=WITHOUT)
    commands = started(own, target, "profile wall 997hz", 300)
    said = status(own, target.pid)
    assert said["Source"] == "timer" and said["NotBetter"]
    assert said["TargetCost"].startswith("0 ns")

    def found_all():
        found = set(top(own.read(target.pid, "profile", "top")))
        return {"spin", "in_c_gil", "in_c_nogil"} <= found and \
            {"[sleep]", "[poll]"} & found  # up to 3.10 time.sleep() is select(2)
    eventually(found_all, patience(60), "all that it does")
    commands.run("ctl", "profile off\n")
    error, words = commands.refused("ctl", "profile faults\n")
    assert error in {errno.EPERM, errno.EOPNOTSUPP} and "bpf" in words


@pytest.mark.long
def test_without_the_kernels_help_on_a_busy_machine(probe, any_python):
    """Who waits for a processor doesn't sleep, though the kernel tells so late: no time is there twice."""
    target = any_python.run("shares.py", "mix")
    for _ in range(2 * os.cpu_count()):
        any_python.run_source("print('ready')\nwhile True:\n    pass")
    own = probe.mount(within=WITHOUT)
    commands = started(own, target, "profile wall", 1)
    shares.begin(target)
    eventually(lambda: float(status(own, target.pid)["Lasted"]) > 5, patience(60), "some seconds")
    asleep = shares.end(target)["asleep"][1]
    commands.run("ctl", "profile off\n")
    lasted = float(status(own, target.pid)["Lasted"])
    wall, off = (sum(folded(own.read(target.pid, "profile", "modes", mode, "folded")).values()) / 1e6
                 for mode in ("wall", "off"))
    assert 0.8 * lasted < wall < 1.05 * lasted, (wall, lasted)
    assert off < asleep + 0.05 * lasted, (off, asleep, lasted)


FORKS = """
import os, sys, time
def in_child():
    while os.getppid() == parent:
        sum(range(1000))
    os._exit(0)
print("ready")
sys.stdin.readline()
parent = os.getpid()
child = os.fork()
if not child:
    in_child()
print(child)
def in_parent():
    while True:
        sum(range(1000))
in_parent()
"""


@pytest.mark.parametrize("forbidden", [False, True])
def test_children(probe, any_python, forbidden):
    """Sampled in the kernel they are below their parent from the first instruction; else they have a profile of their
    own, which the parent's sums up."""
    target = any_python.run_source(FORKS)
    own = probe.mount(within=WITHOUT) if forbidden else probe
    Commands(own, target.pid).run("ctl", "profile cpu children\n")
    target.send("")
    child = target.readline()
    eventually(lambda: "in_child" in own.read(target.pid, "profile", "folded"), patience(60), "the child's samples")
    eventually(lambda: "in_parent" in own.read(target.pid, "profile", "folded"), patience(60), "the parent's")
    for stack in folded(own.read(target.pid, "profile", "folded")):
        names = " ".join(stack)
        assert ("in_child" in names) <= (stack[0] == f"[child {child}]"), stack
        assert not ("in_parent" in names and "[child" in names)


@pytest.mark.alone
def test_everything_all_the_time(probe, any_python):
    before = any_python.run("shares.py", "python")
    own = probe.mount("profile=cpu:997hz")
    after = any_python.run("shares.py", "calls")
    for target in before, after:
        eventually(lambda target=target: samples(own, target.pid) > 50, patience(60), "samples")
    outermost = {stack[0] for stack in folded(own.read("all", "profile", "folded"))}
    assert outermost >= {f"pid {before.pid}", f"pid {after.pid}"}
    Commands(own, after.pid).run("ctl", "profile off\n")
    taken = samples(own, after.pid)
    some = samples(own, before.pid)
    eventually(lambda: samples(own, before.pid) > some + 200, patience(60), "more of the other")
    assert samples(own, after.pid) == taken  # whoever is told to stop stays so


def test_of_a_job(probe, any_python):
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(40000 + os.getpid() % 20000), "WORLD_SIZE": "4"}
    ranks = [any_python.run("shares.py", "python", env={**job, "RANK": rank}) for rank in "13"]
    directory = probe.path / "jobs" / f"127.0.0.1:{job['MASTER_PORT']}"
    roots = {"rank 1", "rank 3"}
    eventually(lambda: roots <= set(words_of(directory / "top")), patience(30), "both at work")  # nothing is sampled
    for target in ranks:
        started(probe, target, "profile wall 997hz", 20)
    for number, target in enumerate(ranks):
        Commands(probe, target.pid).run("ctl", f"profile mark both\nprofile mark of{number}\n")
    profile = directory / "profile"
    assert {stack[0] for stack in folded((profile / "folded").read_text())} == roots
    assert len((profile / "status").read_text().splitlines()) == 2
    assert set(os.listdir(profile)) == FILES | {"live", "last", "marks", "modes", "diff"}
    assert set(os.listdir(profile / "marks")) == {"both", "of0", "of1"}
    for part, seen in ("last/1h", roots), ("marks/both", roots), ("marks/of0", {"rank 1"}), ("modes/cpu", roots), \
            ("diff/1h..both", roots), ("diff/both..of1", {"rank 3"}):
        eventually(lambda: {stack[0] for stack in folded((profile / part / "folded").read_text())} == seen,
                   patience(30), part)
        assert flamegraph((profile / part / "flamegraph.html").read_text())
    for nothing in "marks/none", "last/soon", "diff/both..none", "modes/none":
        assert not (profile / nothing).exists(), nothing
    assert "rank 1" in words_of(profile / "marks" / "of0" / "top")
    for top_file in directory / "top", probe.path / "all" / "top":
        eventually(lambda: roots <= set(words := words_of(top_file)) and
                   any(word.startswith("burn40 ") for word in words), patience(30), "the last second")


def words_of(path):
    """What stands behind the numbers of a top's lines: the function, and where it is."""
    return [line.split(" ", 4)[4] for line in path.read_text().splitlines()[1:] if not line.startswith("#")]


def blocks(text):
    """[(its first line, {function: (self, total)})] of what `live` says."""
    found = []
    for block in text.split("\n\n")[:-1]:
        head, rest = block.split("\n", 1)
        found.append((head, top("\n".join(line for line in rest.splitlines() if not line.startswith("#")))))
    return found


def test_live(probe, any_python):
    """A block each second, of this process alone and among all, with poll, until it ends."""
    target = any_python.run("shares.py", "python")
    directory = probe.path / str(target.pid) / "profile"
    fd = os.open(directory / "live", os.O_RDONLY | os.O_NONBLOCK)
    waits = select.poll()
    waits.register(fd, select.POLLIN)
    assert not waits.poll(0)
    with pytest.raises(BlockingIOError):
        os.read(fd, 1 << 16)
    with subprocess.Popen(["cat", directory / "live"], stdout=subprocess.PIPE, text=True) as own, \
            subprocess.Popen(["head", "-n", "1", probe.path / "all" / "profile" / "live"], stdout=subprocess.PIPE,
                             text=True) as everybody:
        started(probe, target, "profile cpu 997hz", 20)
        assert waits.poll(patience(60) * 1000)
        os.close(fd)
        said = ""
        # the first second may have one sample, as any in which it got little of a processor
        while len(blocks(said)) < 3 or not any("burn40" in functions for _, functions in blocks(said)):
            said += own.stdout.readline()
        for head, functions in blocks(said):
            assert re.fullmatch(rf"# \S+ pid {target.pid} cpu", head) and functions
        assert everybody.stdout.readline().startswith("# ")
        target.process.kill()
        assert own.wait(patience(60)) == 0


# trains from a loader that has processes of its own, once for each line
TRAINS = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
class Samples(Dataset):
    def __len__(self):
        return 200
    def __getitem__(self, number):
        time.sleep(0.02)
        return torch.full((16,), float(number))
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
def step(batch):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
def train():
    for batch in DataLoader(Samples(), batch_size=4, num_workers=2, multiprocessing_context="fork"):
        step(batch)
print("ready", flush=True)
for line in sys.stdin:
    train()
    print("done", flush=True)
"""


@pytest.mark.long
def test_a_job_that_waits_for_its_loader(probe, torch_python):  # noqa: F811
    """Twenty lines say what it waits for, whatever else threads of the loader wait for."""
    target = torch_python.run_source(TRAINS)
    commands = Commands(probe, target.pid)
    commands.run("ctl", "profile wall\n")
    target.send("train")
    target.expect("done", 60)
    commands.run("ctl", "profile off\n")
    text = probe.read(target.pid, "profile", "top")
    lines = [line.split(" ", 4) for line in text.splitlines()[:20] if not line.startswith(("#", "self"))]
    waits = [line for line in lines if "_next_data < _BaseDataLoaderIter.__next__ < train" in line[4]]
    assert waits and lines.index(waits[0]) <= 2, text  # [preempted] may be more
    # of each the line of what it did, not those of where it had to wait
    whole, in_loader = (float(re.search(rf"^\S+ (\S+) \S+ \S+ {name} \S+$", text, re.M)[1])
                        for name in ("train", "_BaseDataLoaderIter.__next__"))
    assert in_loader > 0.5 * whole, text
    assert sum(float(line[0]) for line in waits) > 0.3 * in_loader, text
    # threads of its own that feed the others
    assert re.search(r"Condition\.wait \S+ \[futex\] < Queue._feed < ", text), text
