"""The formats of a profile as the real tools read them, of each part of the tree. flamegraph.pl is part of a Debian
package, speedscope and profiler-cli come by npm, which tests/run does; go is large, and inferno-flamegraph takes
minutes to compile: these are taken from PATH where they are. PROBEFS_TEST_PICTURES: a directory for pictures."""
import collections
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

import browser as browsers
import shares
from commands import Commands
from interpreters import CACHE, eventually, patience
from mount import REPOSITORY

pytestmark = pytest.mark.deadline(300)

FORMATS = "folded", "flamegraph.html", "speedscope.json", "gecko.json", "pprof"
SCREEN = 1300, 850  # pixels
PARTS = "whole", "thread", "mark", "mode", "all", "job"
PICTURES = os.environ.get("PROBEFS_TEST_PICTURES")

PLACES = os.environ["PATH"], CACHE / "viewers" / "node_modules" / ".bin", "/usr/share/perl5/Devel/NYTProf"


def tool(name):
    """Where a program is, or skips by its name."""
    found = shutil.which(name, path=os.pathsep.join(map(str, PLACES)))
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=patience(100),
                          **more)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def samples(probe, target):
    text = probe.read(target.pid, "profile", "status")
    return int(dict(line.split(": ", 1) for line in text.splitlines()).get("Samples", 0))


@pytest.fixture(scope="module")
def saved(probe, any_python, tmp_path_factory):
    """What the profiles of two ranks left, native frames and all: a directory for each part of the tree."""
    made = tmp_path_factory.mktemp("profiles")
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(40000 + os.getpid() % 20000), "WORLD_SIZE": "4"}
    ranks = [any_python.run("shares.py", "threads", env={**job, "RANK": rank}) for rank in "13"]
    try:
        for target in ranks:
            control = Commands(probe, target.pid)
            control.run("ctl", "profile wall 997hz native\n")
            for mark in "cold", "warm":
                control.run("ctl", f"profile mark {mark}\n")
                before = samples(probe, target)
                eventually(lambda: samples(probe, target) > before + 500, patience(60), "samples")
        for target in ranks:
            Commands(probe, target.pid).run("ctl", "profile off\n")
        one = probe.path / str(ranks[0].pid) / "profile"
        for part, path in {"whole": one, "thread": one / "threads" / str(ranks[0].pid), "mark": one / "marks" / "warm",
                           "mode": one / "modes" / "nogil", "diff": one / "diff" / "cold..warm",
                           "all": probe.path / "all" / "profile",
                           "job": probe.path / "jobs" / f"127.0.0.1:{job['MASTER_PORT']}" / "profile"}.items():
            (made / part).mkdir()
            for name in FORMATS if part != "diff" else ("folded", "flamegraph.html"):
                data = (path / name).read_bytes()
                assert data, (part, name)
                (made / part / name).write_bytes(data)
    finally:
        for target in ranks:
            target.close()
    return made


def stacks(saved, part):
    """[(frames, us)]: functions without places."""
    return [([re.sub(r" (\[native\]|\([^()]*:\d+\))$", "", frame) for frame in frames], count)
            for frames, count in shares.stacks((saved / part / "folded").read_text())]


def by_function(found):
    """{function: [self, total]}"""
    weights = collections.defaultdict(lambda: [0, 0])
    for frames, count in found:
        weights[frames[-1]][0] += count
        for name in set(frames):
            weights[name][1] += count
    return dict(weights)


def near(one, other, share=0.001):
    return abs(one - other) <= max(share * max(abs(one), abs(other)), 100)


@pytest.mark.parametrize("part", PARTS)
def test_go_reads_pprof(saved, part):
    text = run(tool("go"), "tool", "pprof", "-top", "-unit=us", "-nodecount=10000", "-nodefraction=0",
               saved / part / "pprof")
    assert re.search(r"^Type: " + ("nogil" if part == "mode" else "wall") + "$", text, re.M)
    found = {}
    for line in re.search(r"flat%.*?\n(.*)", text, re.S)[1].splitlines():
        flat, _, _, total, _, name = line.split(None, 5)
        found[name.removesuffix(" (inline)")] = [float(value.removesuffix("us")) for value in (flat, total)]
    wanted = by_function(stacks(saved, part))
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert all(map(near, found[name], wanted[name])), (name, found[name], wanted[name])
    tags = run(tool("go"), "tool", "pprof", "-tags", saved / part / "pprof")
    assert "MainThread" in tags if part != "mode" else "in_c_nogil" in tags


def plain(name):
    """As flamegraph.pl writes them, some versions of it."""
    return name.translate(str.maketrans("<>", "()"))


@pytest.mark.parametrize("program", ["flamegraph.pl", "inferno-flamegraph"])
def test_flame_graphs_of_folded(saved, program):
    for part in PARTS + ("diff",):
        picture = html.unescape(run(tool(program), saved / part / "folded"))
        titles = re.findall(r"<title>(.*?) \(([\d,]+) samples, ([\d.]+)%(.*?)\)</title>", picture)
        frames = {plain(name): int(count.replace(",", "")) for name, count, *_ in titles}
        lines = [line.rsplit(" ", 2 if part == "diff" else 1)
                 for line in (saved / part / "folded").read_text().splitlines()]
        assert frames["all"] == sum(int(line[-1]) for line in lines), part
        roots = collections.Counter()
        for line in lines:
            roots[plain(line[0].split(";")[0])] += int(line[-1])
        for name, count in roots.items():
            if sum(name in plain(line[0]).split(";") for line in lines) == sum(plain(line[0]).split(";")[0] == name
                                                                               for line in lines):
                assert count < roots.total() / 1000 or name in frames, (part, name)
        if part == "diff":
            assert any(re.search(r"[-+]\d", more) for *_, more in titles)


def test_the_schema_of_speedscope(saved):
    """tests/speedscope/ has it."""
    jsonschema = pytest.importorskip("jsonschema", reason="python3-jsonschema is not installed")
    schema = json.loads((REPOSITORY / "tests" / "speedscope" / "file-format-schema.json").read_text())
    for part in PARTS:
        jsonschema.validate(json.loads((saved / part / "speedscope.json").read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"$schema": "x", "profiles": [], "shared": {"frames": []}}, schema)


@pytest.fixture
def page():
    if not browsers.PROGRAM:
        pytest.skip("chromium is not installed")
    shown = browsers.Browser()
    try:
        shown.screen(*SCREEN)
        yield shown
        assert shown.errors == []
    finally:
        shown.close()


def picture(page, name):
    if PICTURES:
        page.picture(pathlib.Path(PICTURES) / f"profile-{name}.png")


@pytest.mark.long
def test_speedscope_shows_it(page, saved, tmp_path):
    """Its own page, given a file as its command does it; the table of functions, of the thread that it shows first."""
    release = pathlib.Path(tool("speedscope")).resolve().parent.parent / "dist" / "release"
    for part in "whole", "job":
        text = (saved / part / "speedscope.json").read_text()
        profile = json.loads(text)
        thread = profile["profiles"][profile["activeProfileIndex"]]
        load = tmp_path / f"{part}.js"
        load.write_text(f"speedscope.loadFileFromBase64({json.dumps(part)}, "
                        f"btoa(unescape(encodeURIComponent({json.dumps(text)}))))")
        page.open("about:blank")
        page.open(f"file://{release}/index.html#localProfilePath={load}")
        page.until("document.title.includes('speedscope') && document.body.innerText.includes('Sandwich') && "
                   f"document.body.innerText.includes({json.dumps(thread['name'])})", "the thread's name")
        page.run("[...document.querySelectorAll('div')].findLast(e => e.innerText.includes('Sandwich')).click()")
        page.until("document.body.innerText.includes('Symbol Name')", "the table")
        picture(page, f"speedscope-{part}")
        page.screen(1300, 400 + 40 * len(profile["shared"]["frames"]))  # it draws only the rows that can be seen
        whole = thread["endValue"]
        for number, frame in enumerate(profile["shared"]["frames"]):
            total = sum(weight for stack, weight in zip(thread["samples"], thread["weights"]) if number in stack)
            if total > whole / 100:
                page.until("[...document.querySelectorAll('tr')]"
                           f".some(row => row.cells[2]?.innerText.trim().startsWith({json.dumps(frame['name'])}))",
                           f"a row of {frame['name']}")
        page.screen(*SCREEN)


@pytest.mark.long
def test_the_profiler_of_firefox_reads_gecko(saved, tmp_path):
    sessions = tempfile.mkdtemp()  # short: there is a socket in it
    home = {**os.environ, "HOME": str(tmp_path), "PROFILER_CLI_SESSION_DIR": sessions}

    def ask(*words):
        return json.loads(run(program, *words, "--json", env=home))

    program = tool("profiler-cli")
    try:
        for part in "mode", "job":
            said = subprocess.run([program, "load", str(saved / part / "gecko.json")], env=home, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
            # its server may need longer than it waits for it
            eventually(lambda: not subprocess.run([program, "profile", "info"], env=home,
                                                  capture_output=True).returncode,
                       patience(20), f"its server ({said})")
            processes = ask("profile", "info", "--all")["processes"]
            assert len(processes) == (2 if part in {"all", "job"} else 1)
            found = collections.Counter()
            for process in processes:
                for thread in process["threads"]:
                    functions = ask("thread", "functions", "--thread", thread["threadHandle"], "--limit", "0",
                                    "--include-idle")["functions"]
                    for function in functions:
                        found[function["name"]] += function["selfSamples"] * 1000
            wanted = by_function(stacks(saved, part))
            assert found.keys() == wanted.keys()
            for name, (own, _) in wanted.items():
                assert near(found[name], own), (part, name, found[name], own)
            run(program, "stop", "--all", env=home)
    finally:
        subprocess.run([program, "stop", "--all"], env=home, capture_output=True)
        shutil.rmtree(sessions)


def opened(page, path):
    page.open("about:blank")
    page.open(f"file://{path}")
    page.until("document.body?.dataset.ready", "the flame graph")


def at(page, x, y):
    """What is said of the frame at a place of the canvas, once it is shown: only then it has lines."""
    def said():
        page.run(f"""(() => {{ const c = document.querySelector('canvas'), r = c.getBoundingClientRect();
            c.dispatchEvent(new MouseEvent('mousemove',
                {{clientX: r.left + {x}, clientY: r.top + {y}, bubbles: true}})); }})()""")
        text = page.text("#tip")
        return text if "\n" in text else None
    return eventually(said, what="what is said of a frame")


def click(page, x, y):
    page.run(f"""(() => {{ const c = document.querySelector('canvas'), r = c.getBoundingClientRect();
        c.dispatchEvent(new MouseEvent('click',
            {{clientX: r.left + {x}, clientY: r.top + {y}, bubbles: true}})); }})()""")


def coloured(page, x, y):
    """Whether something is drawn there, as [red, green, blue]."""
    return page.run(f"(() => {{ const s = devicePixelRatio || 1; return [...pen.getImageData({x} * s, {y} * s, 1, "
                    f"1).data]"
                    ".slice(0, 3); })()")


@pytest.mark.long
def test_a_browser_draws_it(page, saved):
    for part in PARTS + ("diff",):
        opened(page, saved / part / "flamegraph.html")
        assert page.run("performance.getEntriesByType('resource').length") == 0  # nothing is loaded
        whole = sum(count for _, count in stacks(saved, part)) if part != "diff" else None
        said = at(page, 5, 5)
        assert said.splitlines()[0] == "all"
        if whole:
            seconds = re.search(r"([\d.]+) (s|ms|us)", said)
            shown = float(seconds[1]) * {"s": 1e6, "ms": 1e3, "us": 1}[seconds[2]]
            assert near(shown, whole, .01), (part, said, whole)
        picture(page, part)
        page.screen(1300, 850, "dark")
        picture(page, f"{part}-dark")
        page.screen(1300, 850)
    assert "before" in at(page, 5, 23)
    assert "red: more" in page.text("header")

    opened(page, saved / "job" / "flamegraph.html")
    assert {at(page, x, 23).splitlines()[0] for x in (5, 1290)} == {"rank 1", "rank 3"}
    page.run("at('search').value = 'burn10'; at('search').dispatchEvent(new Event('input'))")
    share = sum(count for frames, count in stacks(saved, "job") if "burn10" in frames) / \
        sum(count for _, count in stacks(saved, "job"))
    assert abs(float(re.search(r"([\d.]+) %", page.text("#found"))[1]) - 100 * share) < .1
    picture(page, "search")
    page.run("at('search').value = ''; at('search').dispatchEvent(new Event('input'))")
    click(page, 1290, 23)  # the narrower one is as wide as all then
    inside = at(page, 5, 23).splitlines()[0]
    assert inside == at(page, 1290, 23).splitlines()[0] != at(page, 5, 41).splitlines()[0]
    picture(page, "zoom")
    page.press("Escape")
    assert {at(page, x, 23).splitlines()[0] for x in (5, 1290)} == {"rank 1", "rank 3"}
    name = page.run("at('thread').options[1].text")
    page.run("at('thread').value = 0; at('thread').dispatchEvent(new Event('change'))")
    assert at(page, 5, 23).splitlines()[0] == at(page, 1290, 23).splitlines()[0], name  # a thread is of one rank
    page.screen(420, 800)
    assert page.run("document.documentElement.scrollWidth") <= 420
    picture(page, "narrow")


@pytest.mark.long
def test_as_many_nodes_as_are_kept(page, probe, any_python, tmp_path):
    target = any_python.run("wide.py")
    Commands(probe, target.pid).run("ctl", "profile cpu 9973hz\n")
    status = probe.path / str(target.pid) / "profile" / "status"
    eventually(lambda: re.search(r"Stacks: (\d+)", status.read_text()) and
               int(re.search(r"Stacks: (\d+)", status.read_text())[1]) > 60000, patience(60), "60,000 nodes")
    Commands(probe, target.pid).run("ctl", "profile off\n")
    for name in FORMATS:
        data = (status.parent / name).read_bytes()
        assert data
        (tmp_path / name).write_bytes(data)
    target.close()  # it would take a processor from those who read now
    opened(page, tmp_path / "flamegraph.html")
    assert page.run("+document.body.dataset.frames") > 50000
    assert at(page, 5, 23).splitlines()[0] == "<module>"
    assert coloured(page, 5, 40) != [0, 0, 0]
    assert page.run("scroll.scrollWidth <= scroll.clientWidth && canvas.clientWidth === scroll.clientWidth")
    picture(page, "many")
    if shutil.which("go"):
        assert "<module>" in run("go", "tool", "pprof", "-top", tmp_path / "pprof")
