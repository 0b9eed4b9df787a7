"""Calls whose line is hard to know: lines that step back, far ahead, or don't exist at all."""
import ast
import sys

import oracle


def steps_back(inner):
    (
        inner
    )(
        1 +
        2,
        [
            3
        ],
    )


def far(depth):
    """A function whose lines lie 400 and 70,000 lines apart, the later ones first."""
    source = "def jump(inner, flag):\n" + "\n" * 400 + "    x = 1\n" + "\n" * 400 + \
             "    return inner() if flag else None\n"
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Return):
            for part in ast.walk(node):
                if hasattr(part, "lineno"):
                    part.lineno = part.end_lineno = 70000 + depth
        if isinstance(node, ast.Assign):
            for part in ast.walk(node):
                if hasattr(part, "lineno"):
                    part.lineno = part.end_lineno = 3
    names = {}
    exec(compile(tree, "far.py", "exec"), names)
    return names["jump"]


def before_its_def():
    """A function whose body has smaller line numbers than its def."""
    tree = ast.parse("def early(inner):\n    inner()\n")
    function = tree.body[0]
    function.lineno = function.end_lineno = 500
    for part in ast.walk(function.body[0]):
        if hasattr(part, "lineno"):
            part.lineno = part.end_lineno = 7
    names = {}
    exec(compile(tree, "early.py", "exec"), names)
    return names["early"]


def in_a_loop(inner):
    for i in range(3):
        try:
            raise ValueError(i)
        except ValueError:
            if i < 2:
                continue
            with open("/dev/null") as _, \
                 open("/dev/null") as _:
                inner()
        finally:
            i = None


def park(*_):
    oracle.park()


early = before_its_def()
jump = far(sys.version_info[1])
steps_back(lambda *_: in_a_loop(lambda: jump(lambda: early(park), True)))
