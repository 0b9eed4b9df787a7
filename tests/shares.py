"""What a profile says of tests/targets/shares.py, against what that measured itself."""
import collections
import json
import re

CALLERS = {"leaf_a": "hot_a", "leaf_b": "hot_b"}
FUNCTIONS = ["burn10", "burn20", "burn30", "burn40", "hot_a", "hot_b", "leaf_a", "leaf_b", "in_python", "in_c_gil",
             "in_c_nogil", "asleep", "tick_a", "tick_b"]
NAME = re.compile(r"(?<!\w)(" + "|".join(FUNCTIONS) + r")(?!\w)")

Judged = collections.namedtuple("Judged", "samples errors worst elsewhere impossible")


def begin(target):
    target.send("begin")


def hold(target):
    """Has it do nothing until begin() or end(), so that a profile begins and ends with what it measures."""
    target.send("hold")
    assert target.readline() == "held"


def end(target):
    """{function: (processor seconds, seconds)} since begin()."""
    target.send("end")
    return {name: tuple(spent) for name, spent in json.loads(target.readline()).items()}


def stacks(folded):
    """(the frames of a line, its count) of folded stacks."""
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        if stack and re.fullmatch(r"-?\d+(\.\d+)?", count):
            yield stack.split(";"), float(count)


def judge(folded, truth):
    """truth: {function: what it spent}. Shares in points of what fell into the functions; elsewhere and impossible
    stacks as points and as a count of everything."""
    got = collections.Counter()
    impossible = elsewhere = 0
    for stack, count in stacks(folded):
        hit = [found for frame in stack for found in NAME.findall(frame)[:1]]
        own = [name for name in hit if name not in CALLERS]
        if len(set(own)) > 1 or any(name in hit and caller not in hit for name, caller in CALLERS.items()):
            impossible += count
        if own:
            got[own[-1]] += count
        else:
            elsewhere += count
    total, whole = sum(got.values()), sum(truth.values())
    errors = {name: 100 * (got[name] / total - spent / whole) for name, spent in truth.items()} if total else {}
    return Judged(total + elsewhere, errors, max(map(abs, errors.values()), default=100.0),
                  100 * elsewhere / max(total + elsewhere, 1), impossible)
