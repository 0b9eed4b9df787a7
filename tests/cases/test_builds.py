"""Every version, and other builds of it than those that all cases run under: what can be looked at, and what takes an
agent."""
import pytest

import builds

AGENT_OLDEST = (3, 10)


def tried(probe, kind, target, agent=True, look="yes"):
    """Does all of it, and notes it."""
    builds.looked_at(probe, target)
    if agent:
        builds.acted_in(probe, target)
    else:
        builds.not_acted_in(probe, target)
    builds.ends(target)
    yes = "yes" if agent else "no"
    builds.note(kind, target.interpreter.version, look=look, write=yes, breakpoints=yes)


def test_version(probe, python):
    tried(probe, "CPython", python.run_source(builds.SCRIPT, name="tried.py"), python.version >= AGENT_OLDEST)


@pytest.mark.parametrize("kind, minor",
                         [("pydebug", 13), ("pydebug", 14), ("pydebug", 15), ("no PIE", 14), ("no PIE", 15)])
def test_build(probe, kind, minor):
    interpreter = builds.aside(kind, minor)
    if not interpreter:
        pytest.skip(f"no python3.{minor}-{builds.ASIDE[kind][0]}: tests/sid-root unpacks it")
    tried(probe, kind, interpreter.run_source(builds.SCRIPT, name="tried.py"))
