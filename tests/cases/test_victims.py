"""The judges judged: a victim that nobody touches has nothing to complain of, and one that is
harmed notices."""
import pytest

import victims
from interpreters import eventually
from victims import Harm, Victim

pytestmark = pytest.mark.harms


@pytest.fixture(params=victims.KINDS)
def kind(request, any_python):
    if not victims.can_run(any_python, request.param):
        pytest.skip(f"{any_python} has no numpy")
    return request.param


@pytest.mark.long
def test_alone(any_python, kind):
    with Victim(any_python, kind) as victim:
        victim.judge()
        before = victim.footprint()
        victim.judge()
        # threads that were joined may still be on their way out of the kernel
        eventually(lambda: victim.footprint().leaked(before) == [], what="nothing left open")
        victim.end()


def test_notices_harm(any_python, kind):
    with Victim(any_python, kind) as victim:
        victim.ask("harm")
        with pytest.raises(Harm) as raised:
            for _ in range(5):
                victim.judge()
        assert raised.value.kind == "wrong"


def test_notices_death(any_python):
    with Victim(any_python, "sums") as victim:
        victim.target.signal(9)
        with pytest.raises(Harm) as raised:
            victim.judge()
        assert raised.value.kind == "crash"
