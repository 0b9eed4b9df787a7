"""Fixtures of the end-to-end cases.

python      each interpreter found, one test for each; @pytest.mark.python(minimum=(3, 12),
            maximum=(3, 14)) narrows that
any_python  one of them, for a case where the version doesn't matter
probe       the running daemon: probe.read(pid, "backtrace"), probe.path, probe.mount(...)
"""
import os
import signal
import threading

import pytest

import interpreters as machine
import mount as daemon

os.environ["PYTHONUNBUFFERED"] = "1"  # what a case's own programs print arrives at once

# what a shell starts in the background has SIGINT ignored, under nohup SIGHUP too, and would hand
# that on to what the cases start; a handler isn't inherited
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, lambda *_: None)

DEADLINE = 120  # seconds for one test, unless @pytest.mark.deadline(seconds) says otherwise


def pytest_configure(config):
    config.addinivalue_line("markers", "python(minimum, maximum): versions a case is for")
    config.addinivalue_line("markers", "deadline(seconds): after which the daemon is killed")


def pytest_generate_tests(metafunc):
    if "python" not in metafunc.fixturenames:
        return
    minimum, maximum = machine.OLDEST, machine.NEWEST
    for mark in metafunc.definition.iter_markers("python"):
        minimum = max(minimum, mark.kwargs.get("minimum", minimum))
        maximum = min(maximum, mark.kwargs.get("maximum", maximum))
    chosen = [i for i in machine.interpreters() if minimum <= i.version[:2] <= maximum]
    metafunc.parametrize("python", chosen, ids=[i.id for i in chosen], indirect=True)


@pytest.fixture
def python(request):
    return request.param


@pytest.fixture
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
    mark = request.node.get_closest_marker("deadline")
    watchdog = threading.Timer(mark.args[0] if mark else DEADLINE, _give_up, [probe])
    watchdog.daemon = True
    watchdog.start()
    yield
    watchdog.cancel()
    for target in list(machine.running):
        target.close()
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


def _give_up(probe):
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


def pytest_sessionfinish():
    for target in list(machine.running):
        target.close()
    machine.remove_directories()


def pytest_terminal_summary(terminalreporter):
    machine.interpreters()
    tested = ", ".join(i.id for i in machine.interpreters())
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
