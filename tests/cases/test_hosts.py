"""contrib/across over real ssh: hosts that are namespaces, each with an sshd, a daemon and ranks of one job."""
import os
import re

import pytest

from hosts import Hosts
from losses import lose

pytestmark = [pytest.mark.long, pytest.mark.deadline(300)]
FULL = os.environ.get("PROBEFS_TEST_FULL") == "1"


@pytest.fixture
def hosts(any_python):
    if os.geteuid():
        pytest.skip("namespaces want root")
    with Hosts(16 if FULL else 3, 16 if FULL else 2, any_python.executable) as made:
        made.wait_for_ranks()
        yield made


def test_hosts(hosts):
    first, *_ = hosts.across("backtrace").stdout.splitlines()
    assert first == f"{hosts.n} hosts, {hosts.world} processes, {hosts.world} threads, 2 different stacks"
    assert hosts.across("backtrace", engine="pdsh").stdout == hosts.across("backtrace").stdout
    rows = hosts.across("query", "SELECT host, rank, world FROM process").stdout.splitlines()
    assert sorted(rows[1:]) == sorted(f"h{n // hosts.local + 1},{n},{hosts.world}" for n in range(hosts.world))
    said = hosts.across("eval", "print('it''s \"$HOME\"', rank == bad)").stdout
    assert f"rank {hosts.bad} (1): its \"$HOME\" True\n" in said and said.count("\n") == 2
    assert hosts.across("write", "all/breakpoints", "log rank.py:9999").returncode == 0
    if FULL:
        lose(hosts, 20, "of a case")
    gone, dumb = hosts.all[-1], hosts.all[-2]
    gone.kill()
    dumb.kill_daemon()
    said = hosts.across("backtrace")
    assert said.returncode == 1
    assert re.search(f"^across: {gone.name}: missing: .+\n", said.stderr, re.M), said.stderr
    assert re.search(f"^across: {dumb.name}: failed: .*/all/backtrace is not there\n", said.stderr, re.M), said.stderr
    here = hosts.world - 2 * hosts.local
    assert f": ranks 0-{here - 1} of {hosts.world}, missing: {here}-{hosts.world - 1}\n" in said.stdout, said.stdout
