"""Fixtures of the end-to-end cases.

python      each interpreter found, one test for each; @pytest.mark.python(minimum=(3, 12),
            maximum=(3, 14)) narrows that, builds=True to one of each maker: they differ in how they were compiled;
            free_threaded=True adds those without a GIL, "only" leaves nothing else
any_python  one of them, for a case where the version doesn't matter
probe       the running daemon: probe.read(pid, "backtrace"), probe.path, probe.mount(...)

@pytest.mark.alone is for what acts on every Python process: it runs only in a pid namespace of the
suite's own, which tests/alone makes (tests/alone python3 -m pytest tests/cases; tests/run does so).

What is done INSIDE of Python is tried on one interpreter of each minor version, with PROBEFS_TEST_FULL=1 on all.

With PROBEFS_TEST_DAEMON only cases with a daemon are run, and those where it only hands on what is done inside on the
newest interpreter alone.

With PROBEFS_TEST_IN_TURN=1 each case is tried on one of its interpreters alone, as its name has it, and unless -k says
which ones are of interest with one of its parameters alone.

Several pytests can share the cases: each takes the next file that none of them has taken, by making a
directory of its name in PROBEFS_TEST_QUEUE.
"""
import functools
import os
import pathlib
import signal
import sys
import threading
import time
import zlib

import pytest

import harm
import interpreters as machine
import mount as daemon
import storming

os.environ["PYTHONUNBUFFERED"] = "1"  # what a case's own programs print arrives at once
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # and they leave nothing beside what they import

# what a shell starts in the background has SIGINT ignored, under nohup SIGHUP too, and would hand
# that on to what the cases start; a handler isn't inherited, what is blocked is
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _end(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise KeyboardInterrupt


signal.signal(signal.SIGTERM, _end)
signal.signal(signal.SIGHUP, lambda *_: None)

FAILED = pytest.StashKey()
STATUS = pytest.StashKey()
LONGEST = [f"test_{name}" for name in ("torch", "storm", "step", "watch_hw", "watch", "breakpoint_life",
                                        "evaluate_output", "spans", "locals", "worst", "torch_jobs", "breakpoint_code",
                                        "agent_end", "eval", "evaluate_text", "native", "exceptions")]
# What these ask for is done inside of Python, by its own rules, which are those of a minor version; how it was built,
# and where its structures lie, is the others' subject.
INSIDE = {f"test_{name}" for name in ("agent", "agent_channel", "agent_end", "agent_program", "as_pdb",
                                      "breakpoint_code", "breakpoint_life", "breakpoints", "breakpoints_file",
                                      "breakpoints_set", "crash", "crash_files", "dap", "debugger", "eval",
                                      "evaluate_names", "evaluate_output", "evaluate_text", "events", "exceptions",
                                      "here", "jump", "probing", "programs", "record", "record_ctl", "record_end",
                                      "record_gc", "record_loop", "record_process", "recorded_sql", "spans", "step",
                                      "stop", "stop_events", "thread_ctl", "trace", "watch")}
IN_TURN = os.environ.get("PROBEFS_TEST_IN_TURN") == "1"
DEADLINE = 120  # seconds for one test, unless @pytest.mark.deadline(seconds) says otherwise


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: acts on every Python process that there is")
    config.addinivalue_line("markers", "attack: somebody who isn't allowed, or who is hostile, tries")
    config.addinivalue_line("markers", "long: seconds of a processor, or ten of waiting; not of tests/run --quick")
    config.addinivalue_line("markers", "harms: harms its victims itself, as nothing else may")
    config.addinivalue_line("markers", "python(minimum, maximum, builds, free_threaded): which it is for")
    config.addinivalue_line("markers", "deadline(seconds): after which the daemon is killed")


def pytest_sessionfinish(session, exitstatus):
    session.config.stash[STATUS] = exitstatus


def pytest_unconfigure(config):
    """A thread that a failed case has left, and which nothing ends, would have Python wait for it for ever."""
    left = [thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon]
    if left:
        print(f"left: {left}", flush=True)
        sys.stderr.flush()
        os._exit(config.stash.get(STATUS, 1))


@pytest.hookimpl(trylast=True)  # of what is left by then
def pytest_collection_modifyitems(config, items):
    """Where only the daemon is of interest, as in a build of it with sanitizers, cases without one are left out. What
    takes longest comes first, so that nobody who shares the cases waits for it in the end."""
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
    chosen = items
    if os.environ.get("PROBEFS_TEST_DAEMON"):
        chosen = [item for item in items if _has_daemon(item)]
    if IN_TURN and not config.option.keyword:
        chosen = _one_of_each(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def _one_of_each(items):
    """Each case with one of its parameters."""
    found = {}
    for item in items:
        found.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [same[zlib.crc32(case.encode()) % len(same)] for case, same in found.items()]


def _has_daemon(item):
    """Whether it asks one, or runs a program that is built of its parts."""
    return "probe" in item.fixturenames or any(value is daemon or value is storming or
                                               getattr(value, "__module__", "") in ("mount", "rings", "storming")
                                               for value in vars(item.module).values())


def pytest_runtest_setup(item):
    if item.get_closest_marker("alone") and not machine.alone():
        pytest.skip("acts on every Python process: wants a pid namespace of its own (tests/alone, as root)")


def pytest_runtest_protocol(item):
    queue = os.environ.get("PROBEFS_TEST_QUEUE")
    return True if queue and not _taken(pathlib.Path(queue, item.path.stem)) else None


@functools.lru_cache(maxsize=None)
def _taken(claim):
    """Whether it is ours to run."""
    try:
        claim.mkdir()
    except FileExistsError:
        return False
    return True


def pytest_generate_tests(metafunc):
    if "python" not in metafunc.fixturenames:
        return
    marks = [mark.kwargs for mark in metafunc.definition.iter_markers("python")]
    minimum = max([mark["minimum"] for mark in marks if "minimum" in mark], default=machine.USUAL)
    maximum = min([mark["maximum"] for mark in marks if "maximum" in mark], default=machine.NEWEST)
    chosen = [i for i in machine.interpreters() if minimum <= i.version[:2] <= maximum]
    if any(mark.kwargs.get("builds") for mark in metafunc.definition.iter_markers("python")):
        chosen = _of_each_maker(chosen)
    elif metafunc.module.__name__ in INSIDE:
        chosen = _of_each_minor_version(chosen)
    wanted = [mark["free_threaded"] for mark in marks if "free_threaded" in mark]
    if wanted:
        chosen = [i for i in machine.free_threaded() if minimum <= i.version[:2] <= maximum] + \
            ([] if "only" in wanted else chosen)
    if IN_TURN and chosen:
        chosen = [chosen[zlib.crc32(metafunc.definition.nodeid.encode()) % len(chosen)]]
    metafunc.parametrize("python", chosen, ids=[i.id for i in chosen], indirect=True)


def _of_each_minor_version(interpreters):
    """A distribution's own rather than one that was built by hand."""
    if os.environ.get("PROBEFS_TEST_FULL") == "1":
        return interpreters
    found = {i.version[:2]: i for i in sorted(interpreters, key=lambda i: i.source != "pyenv")}
    found = [found[version] for version in sorted(found)]
    return found[-1:] if os.environ.get("PROBEFS_TEST_DAEMON") else found


def _of_each_maker(interpreters):
    """The newest one that each has made."""
    if os.environ.get("PROBEFS_TEST_FULL") == "1":
        return interpreters
    found = {i.source: i for i in sorted(interpreters, key=lambda i: i.version)}
    return [i for i in interpreters if i in found.values()]


@pytest.fixture
def python(request):
    return request.param


@pytest.fixture(scope="session")
def any_python():
    """Debian's own where there is one, since every user may run it; else the newest."""
    found = machine.interpreters()
    if not found:
        pytest.skip("no interpreter found")
    return next((i for i in found if i.source == "debian"), found[-1])


@pytest.fixture(scope="session")
def probe():
    """One daemon for the whole run; _survives checks it after each test."""
    mounted = daemon.Probe()
    yield mounted
    mounted.close()


@pytest.fixture(autouse=True)
def _survives(request):
    """Ends what a test started. A daemon that died fails the test that it died in, and is started
    anew for the next; one that answers no more is killed, so that readers get an error."""
    probe = request.getfixturevalue("probe") if "probe" in request.fixturenames else None
    machine.gave_up = False
    harm.expected = request.node.get_closest_marker("harms") is not None
    mark = request.node.get_closest_marker("deadline")
    over = threading.Event()
    threading.Thread(target=_watch, args=(over, mark.args[0] if mark else DEADLINE, probe), daemon=True).start()
    yield
    over.set()
    for target in list(machine.running):
        target.close()
    failed = request.node.stash.get(FAILED, True)
    machine.judge_crashed(failed)
    harmed = any(kind in harm.ENDS_THE_RUN for kind, *_ in harm.kept)
    if harmed:
        request.session.shouldfail = "a target was harmed"
    assert failed or not harmed, "\n".join(harm.report())
    if probe is None:
        return
    extra, probe.extra = probe.extra, []
    try:
        for other in extra:
            other.close()
        assert probe.alive(), f"the daemon died ({probe.process.returncode}): {probe.log()}"
    finally:
        if not probe.alive():
            probe.kill()
            probe.start()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if call.when == "call":
        item.stash[FAILED] = report.failed


def _watch(over, seconds, probe):
    """Gives up at the deadline, which is as far as the load of now asks for, unless it is over before."""
    begun = time.monotonic()
    while not over.wait(5):
        if time.monotonic() - begun > machine.patience(seconds):
            _give_up(probe)
            return


def _give_up(probe):
    machine.gave_up = True
    for target in list(machine.running):
        target.process.kill()
    for one in [probe, *probe.extra] if probe else []:
        one.process.kill()


@pytest.fixture
def nobody():
    """The name of a second user, for tests of access."""
    if os.geteuid() != 0:
        pytest.skip("a second user needs root")
    return "nobody"


def pytest_sessionfinish(session):
    for target in list(machine.running):
        target.close()
    machine.judge_crashed(failed=True)
    machine.remove_directories()
    if any(kind in harm.ENDS_THE_RUN for kind, *_ in harm.kept):
        session.exitstatus = harm.STATUS


def pytest_terminal_summary(terminalreporter):
    machine.interpreters()
    machine.free_threaded()
    for line in harm.report():
        terminalreporter.write_line(line)
    tested = ", ".join(i.id for i in machine.interpreters() + machine.free_threaded())
    terminalreporter.write_line(f"interpreters: {tested or 'none'}")
    for reason in machine.unavailable:
        terminalreporter.write_line(f"skipped: {reason}")
    counts = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        counts[reason] = counts.get(reason, 0) + 1
    for reason, count in sorted(counts.items()):
        terminalreporter.write_line(f"skipped: {count} x {reason}")
