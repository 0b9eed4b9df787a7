"""heap/: what fills the memory of a process. The oracle is the program itself, which makes so many of each."""
import errno
import json
import re

import pytest

from commands import failure, shell, write
from interpreters import OLDEST
from shares import stacks
from sql import ask, settle, value

SCRIPT = "heap.py"
KINDS = ["Node", "Slot", "Bare", "Real", "Text", "Pair", "Table"]


def census(probe, target):
    """{type: (count, bytes)}, and the lines that say what isn't in it."""
    found, notes, last = {}, [], None
    for line in probe.read(target.pid, "heap", "census").splitlines():
        if line.startswith("#"):
            notes.append(line)
            continue
        count, size, name = re.fullmatch(r"(\d+) (\d+) (\S.*)", line).groups()
        assert name not in found
        assert last is None or int(size) <= last
        found[name], last = (int(count), int(size)), int(size)
    return found, notes


@pytest.mark.python(minimum=OLDEST)
def test_counts_to_the_object(probe, python):
    number, kinds = (1_000_000, KINDS[:2]) if python.version[:2] == (3, 14) else (50_000, KINDS)
    target = python.run(SCRIPT, str(number), str(len(kinds)))
    settle(target)  # pools that change meanwhile are counted less well
    found, notes = census(probe, target)
    for kind in kinds:
        count, size = found[f"__main__.{kind}"]
        assert count == number, kind
        assert 16 * number <= size <= 512 * number
    assert found["__main__.Gone"][0] == number // 2
    assert found["int"][0] >= number - 1000  # most of range()
    assert found["str"][0] > 1000
    assert "__main__.Nothing" not in found
    assert re.match(r"# \d+ objects in [\d.]+ MB of pools", notes[0])
    assert not [note for note in notes if "cut" in note or "changed" in note]
    query = probe.path / str(target.pid) / "query"
    rows = {row["type"]: row for row in ask(query, "SELECT * FROM heap")}
    for kind in kinds:
        assert (int(rows[f"__main__.{kind}"]["count"]),
                int(rows[f"__main__.{kind}"]["bytes"])) == found[f"__main__.{kind}"]
    assert int(value(query, "SELECT count FROM heap WHERE type IS NULL")) > 0


def test_debug_allocator(probe, python):
    """It puts 16 bytes in front of each block."""
    target = python.run(SCRIPT, "2000", env={"PYTHONMALLOC": "debug"})
    found, _ = census(probe, target)
    assert {kind: found[f"__main__.{kind}"][0] for kind in KINDS} == dict.fromkeys(KINDS, 2000)


def test_no_pools(probe, any_python):
    """malloc() gives everything: then there is nothing that could be counted, and the file says so."""
    target = any_python.run(SCRIPT, "2000", env={"PYTHONMALLOC": "malloc"})
    found, notes = census(probe, target)
    assert found == {} and notes[0].startswith("# 0 objects in 0.0 MB of pools")
    assert re.match(r"# not in it: [1-9]", notes[1])


def diff(probe, target, between):
    """{type: (count, bytes)}, in the file's order."""
    lines = [line for line in probe.read(target.pid, "heap", "diff", between).splitlines() if not line.startswith("#")]
    found = [re.fullmatch(r"([+-]\d+) ([+-]\d+) (\S.*)", line).groups() for line in lines]
    assert [int(size) for _, size, _ in found] == sorted((int(size) for _, size, _ in found), reverse=True)
    return {name: (int(count), int(size)) for count, size, name in found}


def test_what_grew(probe, any_python):
    target = any_python.run(SCRIPT, "1000")
    ctl, diffs = probe.path / str(target.pid) / "ctl", probe.path / str(target.pid) / "heap" / "diff"
    assert list(diffs.iterdir()) == []
    write(ctl, "heap mark before\n")
    target.send("3000")
    target.expect("made")
    write(ctl, "heap mark after\n")
    assert "HeapMarks: before after\n" in probe.read(target.pid, "ctl")
    assert {path.name for path in diffs.iterdir()} == {"before..after", "before..now", "after..now"}
    for between in "before..after", "before..now":
        found = diff(probe, target, between)
        for kind in KINDS:
            assert found[f"__main__.{kind}"][0] == 3000
        assert "__main__.Gone" not in found
    assert not {f"__main__.{kind}" for kind in KINDS} & diff(probe, target, "after..now").keys()
    write(ctl, "heap mark before\n")  # the same once more: it is the younger one now
    assert {path.name for path in diffs.iterdir()} == {"after..before", "after..now", "before..now"}
    write(ctl, "heap drop after\n")
    assert {path.name for path in diffs.iterdir()} == {"before..now"}
    with pytest.raises(FileNotFoundError):
        (diffs / "after..now").read_text()


def test_marks_that_are_none(probe, any_python):
    target = any_python.run(SCRIPT, "1")
    ctl = probe.path / str(target.pid) / "ctl"
    for line, words in {"heap": "write it as: heap mark", "heap mark": "write it as: heap mark",
                        "heap mark now": "letters, digits", "heap mark a..b": "letters, digits",
                        "heap mark " + 32 * "x": "letters, digits", "heap drop nothing": "no mark of this name",
                        "heap burn x": "heap mark NAME|drop NAME"}.items():
        assert failure(write, ctl, line + "\n") == errno.EINVAL
        assert words in probe.read(target.pid, "ctl")
    for number in range(16):
        write(ctl, f"heap mark m{number}\n")
    assert failure(write, ctl, "heap mark more\n") == errno.EDQUOT
    assert "drop some" in probe.read(target.pid, "errors")
    write(ctl, "heap mark m3\n")  # in place of another
    names = (probe.path / str(target.pid) / "heap" / "diff")
    assert len(list(names.iterdir())) == 16 + 15
    for word in "m1..m99", "m1", "..", "m1..", "..now", "now..m1", "m1..now..m2":
        assert not (names / word).exists() or word == ".."


def referrers(probe, target, what):
    """The lines, and their beginning without an address."""
    lines = [line for line in probe.read(target.pid, "heap", "referrers", what).splitlines()
             if not line.startswith("#")]
    return [re.sub(" 0x[0-9a-f]+", "", line) for line in lines]


def test_who_refers(probe, python):
    target = python.run("held.py", ready=False)
    places = {}
    while (line := target.readline()) != "ready":
        address, where = line.split(" ", 1)
        places[address] = where.strip()
    assert len(places) == 13
    for address, where in places.items():
        lines = referrers(probe, target, address)
        wanted = f"1 frame {target.pid}" if where == "frame wait" else f"1 {where}"
        if where == "frame wait":
            local = r"1 frame \d+ wait \(.*held.py:\d+\) local"
            assert [line for line in lines if re.match(local, line)], (where, lines)
        else:
            if where.endswith(".attribute") and python.version < (3, 11):
                wanted = "1 dict ['attribute'] < __main__.Plain < module __main__ plain"
            assert [line for line in lines if line.startswith(wanted)], (where, lines)
    lines = referrers(probe, target, "__main__.Leak")
    assert lines[0].startswith("5000 list [0] < "), lines
    assert re.search(r"__main__.Trainer .history|\['history'\] < __main__.Trainer", lines[0]), lines
    assert lines[0].endswith("module __main__ trainer"), lines
    assert list((probe.path / str(target.pid) / "heap" / "referrers").iterdir()) == []
    for word in "0x", "0xyz", "0x7", "0x10000000000000000":
        with pytest.raises(FileNotFoundError):
            probe.read(target.pid, "heap", "referrers", word)
    with pytest.raises(FileNotFoundError):
        probe.read(target.pid, "heap", "referrers", "__main__.Nothing")
    assert "is of a type __main__.Nothing" in probe.read(target.pid, "errors")


def sites(probe, target):
    """[(living, allocated, stack)], and the first line."""
    head, *lines = probe.read(target.pid, "heap", "sites").splitlines()
    found = [re.fullmatch(r"(\d+) (\d+) (.*)", line).groups() for line in lines]
    return [(int(living), int(allocated), stack) for living, allocated, stack in found], head


def of_line(found, name):
    """What the stacks that end in a function have in all."""
    mine = [site for site in found if re.search(rf"{name} \([^;]*\)$", site[2])]
    return sum(site[0] for site in mine), sum(site[1] for site in mine)


@pytest.mark.python(minimum=(3, 10))
def test_sites(probe, python):
    target = python.run("sites.py")
    ctl = probe.path / str(target.pid) / "ctl"
    assert probe.read(target.pid, "heap", "sites") == "# nothing is sampled: write `heap sites on` to ctl\n"
    write(ctl, "heap sites on 16K\n")
    assert sites(probe, target)[1].startswith("# on, for ")

    def make(order):
        target.send(order)
        target.expect("done")
        return sites(probe, target)[0]

    number = 20_000
    found = make(str(number))
    living, allocated = of_line(found, "keep")
    assert abs(living / (number * 1033) - 1) < .2  # sqrt(1/1260) is .03
    assert abs(allocated / (number * 1033) - 1) < .2
    living, allocated = of_line(found, "drop")
    assert abs(allocated / (number * 3033) - 1) < .2
    assert living < .01 * allocated
    stack = next(stack for _, _, stack in found if "keep (" in stack)
    assert re.fullmatch(r"<module> \(.*sites.py:26\);work \(.*sites.py:17\);keep \(.*sites.py:8\)", stack)
    living, allocated = of_line(make("clear"), "keep")
    assert living < .01 * allocated
    before = of_line(make("1"), "drop")[1]
    write(ctl, "heap sites off\n")
    assert of_line(make("1000"), "drop")[1] == before
    assert sites(probe, target)[1].startswith("# off, for ")
    write(ctl, "heap sites on\n")  # anew
    assert of_line(sites(probe, target)[0], "drop")[1] == 0
    make("1000")
    write(ctl, "detach\n")
    assert probe.read(target.pid, "ctl").startswith("Agent: none\n")  # the library has gone
    target.send("1000")
    target.expect("done")
    assert probe.read(target.pid, "heap", "sites").startswith("# nothing is sampled")
    for line in "heap sites", "heap sites maybe", "heap sites on 1", "heap sites on 4G", "heap sites off 1":
        assert failure(write, ctl, line + "\n") == errno.EINVAL


@pytest.mark.python(minimum=(3, 10))
def test_memory_that_grows(probe, python):
    """Which type, which line, who holds it: in three commands, on a job that knows of nothing."""
    target = python.run("leaky.py")
    heap = probe.path / str(target.pid) / "heap"
    assert shell("printf 'heap mark before\nheap sites on 1K\n' > $1", heap.parent / "ctl").returncode == 0
    for _ in range(5):
        target.send("epoch")
        target.expect("done")

    grew = shell("grep -v '^#' $1/diff/before..now | head -6", heap).stdout.splitlines()
    assert "+10000" in [line.split()[0] for line in grew if line.endswith(" __main__.Sample")], grew
    sites = shell("sort -rn $1/sites | head -4", heap).stdout
    assert re.search(r"Trainer\.step|step \(.*leaky.py:\d+\)", sites), sites
    assert re.search(r"(Sample\.)?__init__ \(.*leaky.py:9\)", sites), sites
    held = shell("grep -v '^#' $1/referrers/__main__.Sample | head -1", heap).stdout
    assert re.match(r"12000 dict 0x[0-9a-f]+ \[\d+\] < __main__.Trainer 0x[0-9a-f]+ \.seen|"
                    r"12000 dict 0x[0-9a-f]+ \[\d+\] < dict 0x[0-9a-f]+ \['seen'\] < __main__.Trainer", held), held
    assert re.search(r" < frame \d+ (main|Trainer.epoch|epoch) \(.*leaky.py:\d+\) (trainer|self)$", held), held


def folded(probe, target, name):
    """What the stacks of profile/folded that end in a function weigh."""
    lines = probe.read(target.pid, "profile", "folded").splitlines()
    return sum(int(line.rsplit(" ", 1)[1]) for line in lines if re.search(rf";{name} \([^;]*\) \d+$", line))


@pytest.mark.python(minimum=(3, 10))
@pytest.mark.parametrize("mode", ["alloc", "heap"])
def test_profile(probe, any_python, mode):
    target = any_python.run("sites.py")
    ctl = probe.path / str(target.pid) / "ctl"
    write(ctl, f"profile {mode}\n")
    number = 200_000
    target.send(str(number))
    target.expect("done")
    kept, dropped = folded(probe, target, "keep"), folded(probe, target, "drop")
    assert abs(kept / (number * 1033) - 1) < .3  # sqrt(1/394) is .05
    if mode == "alloc":
        assert abs(dropped / (number * 3033) - 1) < .3
    else:
        assert dropped < .05 * kept
    target.send("clear")
    target.expect("done")
    left = folded(probe, target, "keep")
    assert left == kept if mode == "alloc" else left < .05 * kept
    assert re.search(r"(?m)agent", probe.read(target.pid, "profile", "status"))
    write(ctl, "profile off\n")
    assert sites(probe, target)[1].startswith("# off")
    assert failure(write, ctl, f"profile cpu {mode}\n") == errno.EINVAL
    assert "one after the other" in probe.read(target.pid, "errors")


def test_which_line_faults(probe, any_python):
    """Who makes the memory grow, C libraries too, from outside."""
    target = any_python.run("grows.py")
    ctl = probe.path / str(target.pid) / "ctl"
    try:
        write(ctl, "profile faults\n")
    except OSError:
        pytest.skip("page faults can't be sampled without bpf")
    target.send("round")
    truth = json.loads(target.readline())
    write(ctl, "profile off\n")
    # more than the buffer holds comes to that, where the daemon gets no processor meanwhile
    lost = int(re.search(r"(?m)^Lost: (\d+)", probe.read(target.pid, "profile", "status"))[1])
    found = dict.fromkeys(truth, 0)
    for frames, pages in stacks(probe.read(target.pid, "profile", "folded")):
        for name in found:
            found[name] += pages * any(frame.startswith(name + " (") for frame in frames)
    assert truth["in_bytes"] > 10 * 2048 and truth["again"] < 1000
    for name, pages in truth.items():
        part = 0.05 * sum(truth.values())
        assert -part < pages - found[name] < part + lost, (name, found, truth)
