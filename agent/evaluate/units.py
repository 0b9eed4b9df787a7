"""Cutting a text into units: what a prompt would take at once.

A unit is run as soon as nothing that may follow can change it, so how a shell splits its writes
doesn't matter: any number of lines gives the beginning of what all give.
"""
import sys
from _ast import (
    AsyncFor, AsyncFunctionDef, AsyncWith, ClassDef, For, FunctionDef, If, Match, PyCF_ONLY_AST,
    Try, While, With)

try:
    from _ast import TryStar
except ImportError:  # before 3.11
    TryStar = Try

FILE = "<probe>"
ALLOW_INCOMPLETE = 0x4000 if sys.version_info >= (3, 11) else 0  # PyCF_ALLOW_INCOMPLETE_INPUT
BLOCKS = (If, For, AsyncFor, While, With, AsyncWith, Try, TryStar, Match)
COMPOUND = (*BLOCKS, FunctionDef, AsyncFunctionDef, ClassDef)
CONTINUATIONS = {"else", "elif", "except", "finally"}


def split(text, last):
    """The complete lines of text, each as str that ends in \\n, and how many bytes each has. How much
    of a text is there doesn't change the lines that are complete."""
    raw = text.splitlines(True)
    if raw and not last and not raw[-1].endswith(b"\n"):
        raw.pop()
    lines = [line.rstrip(b"\r\n").decode("utf-8", "surrogateescape") + "\n" for line in raw]
    return lines, [len(line) for line in raw]


def attempt(lines, last=True):
    """What parsing gives: (tree, None, False) or (None, error, whether more lines may mend it)."""
    source = "".join(lines)
    try:
        return compile(source, FILE, "exec", PyCF_ONLY_AST | (0 if last else ALLOW_INCOMPLETE),
                       True), None, False
    except Exception as error:
        unfinished = not last and incomplete(source, error)
        return None, error.with_traceback(None), unfinished  # no frames: they refer to each other


def incomplete(source, error):
    if not isinstance(error, SyntaxError):
        return False
    if ALLOW_INCOMPLETE:
        return error.msg == "incomplete input"
    # 3.10: an error that moves with the end of the text is about its end (codeop does the same)
    if "was never closed" in error.msg:
        return True
    try:
        compile(source + "\n", FILE, "exec", PyCF_ONLY_AST, True)
    except SyntaxError as moved:
        return (moved.msg, moved.lineno) != (error.msg, error.lineno)
    return True


def parse(lines, last=True):
    """attempt(), whose warnings nobody sees: they come again when the unit is compiled."""
    return inside(Sink(0), attempt, lines, last)


def units(lines, last):
    """Yields the first line and the one after the last of each unit that can be run; if a line can't
    be parsed the last one ends with it. A pair of equal numbers says how far there is nothing."""
    begin = 0
    while begin < len(lines):
        if lines[begin].strip()[:1] in ("", "#"):
            begin += 1
            continue
        tree, error, unfinished = parse(lines[begin:], last)
        stop = len(lines)
        if error is not None:
            stop = begin + broken(lines[begin:], error if not unfinished else None)
            tree = parse(lines[begin:stop])[0] if stop > begin else None
        spans = list(statements(tree, begin, stop)) if tree else []
        if error is None and not last and spans and spans[-1][2]:
            spans.pop()  # an open block: what follows may belong to it
            yield from (span[:2] for span in spans)
            return
        yield from (span[:2] for span in spans)
        if stop == begin:
            if not unfinished:
                yield begin, begin + shortest(lines[begin:])
            return
        begin = stop
    yield begin, begin


def statements(tree, begin, stop):
    """Yields (first line, line after the last, whether it is compound) of what stands in a tree;
    statements that share a line are one."""
    spans = []
    for node in tree.body:
        decorators = getattr(node, "decorator_list", ())
        first = begin + min([node.lineno, *(each.lineno for each in decorators)]) - 1
        if spans and first < spans[-1][1]:
            spans[-1][1] = begin + node.end_lineno
        else:
            spans.append([first, begin + node.end_lineno, isinstance(node, COMPOUND)])
    for span, following in zip(spans, [*spans[1:], [stop]]):
        yield span[0], following[0], span[2]


def broken(lines, error):
    """Where the first unit begins that can't be parsed; error: None if that is just unfinished."""
    if error is None:
        error = parse(lines)[1]
    bound = getattr(error, "lineno", None) or len(lines)
    starts = [number for number, line in enumerate(lines)
              if line[0] not in " \t\f\n#" or number == bound - 1]
    while len(starts) > 1:
        number = starts.pop()
        if number >= bound:
            continue
        tree, error, _ = parse(lines[:number])
        if error is not None:
            bound = min(number, getattr(error, "lineno", None) or number)
        elif not (isinstance(tree.body[-1], COMPOUND) and continues(lines[number])):
            return number
    return 0


def continues(line):
    """Whether a line can only belong to the block above it."""
    end = 0
    while line[end].isalpha():
        end += 1
    return line[0] in " \t\f" or line[:end] in CONTINUATIONS


def shortest(lines):
    """How many lines it takes to see that a unit can't be parsed: as many as had come if each came
    alone, so that the same is said of it."""
    low, high = 0, len(lines)
    while low + 1 < high:
        middle = (low + high) // 2
        _, error, unfinished = parse(lines[:middle], False)
        if error is None or unfinished:
            low = middle
        else:
            high = middle
    return high
