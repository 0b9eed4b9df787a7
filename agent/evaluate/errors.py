"""Showing exceptions, as Python does, without a trace of our own."""
import sys

TRACEBACK_MAX = 1 << 18  # bytes
CHAIN_MAX = 100          # exceptions in a chain whose tracebacks are cleaned


def report(problem, ran, sink):
    """Ends the output with the traceback, as Python shows it. ran: the units, the last one last."""
    clean(problem)
    if ran and isinstance(problem, SyntaxError) and problem.filename == FILE and problem.lineno:
        locate(problem, ran[-1])
    try:
        text = rendered(problem)
    except Exception:
        text = summary(problem) + "\n"
    text = "\n".join(with_source(line, ran) for line in text.split("\n"))
    if text and not text.endswith("\n"):
        text += "\n"
    sink.end(text.encode("utf-8", "backslashreplace"))


def locate(problem, unit):
    """An error in the text of a unit gets its line there."""
    if not unit.covers(problem):
        return
    lines = unit.source.split("\n")
    if not problem.text:  # found after parsing
        problem.text = lines[min(problem.lineno - unit.before, len(lines)) - 1] + "\n"


def rendered(problem):
    if sys.version_info >= (3, 13):  # sys.__excepthook__ does this, but in colours
        try:
            from traceback import format_exception
        except ImportError:
            return plain(problem)
        return "".join(format_exception(type(problem), problem, problem.__traceback__))
    hook = sys.__excepthook__
    if type(hook) is not type(len):
        return summary(problem)  # not Python's own
    page = Sink(TRACEBACK_MAX)
    install()  # if the code has replaced sys.stderr
    inside(page, hook, type(problem), problem, problem.__traceback__)
    return page.data.decode("utf-8", "replace")


def plain(problem):
    """Without the module that Python has for it, which can't be imported."""
    lines, trace = [], problem.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        lines.append(f'  File "{code.co_filename}", line {trace.tb_lineno}, in {code.co_name}\n')
        trace = trace.tb_next
    head = "Traceback (most recent call last):\n" if lines else ""
    return f"{head}{''.join(lines)}{summary(problem)}\n"


def with_source(line, ran):
    """A line of a traceback, followed by the source if it is of one of these units."""
    indent, _, rest = line.partition(f'File "{FILE}", line ')
    number, _, function = rest.partition(", in ")
    if not number.isdecimal() or indent.strip(" |"):
        return line
    for unit in reversed(ran):
        source = unit.line(int(number), function)
        if source:
            return f"{line}\n{indent}  {source}"
    return line


def clean(problem):
    """Removes our frames from the tracebacks of an exception and those that it is chained to."""
    seen, waiting = [], [problem]
    while waiting and len(seen) < CHAIN_MAX:
        each = waiting.pop()
        if not isinstance(each, BaseException) or any(each is other for other in seen):
            continue
        seen.append(each)
        each.__traceback__ = without_own(each.__traceback__)
        waiting += [each.__context__, each.__cause__]
        waiting += getattr(each, "exceptions", None) or () if isinstance(each, GROUP) else ()


GROUP = getattr(sys.modules["builtins"], "BaseExceptionGroup", ())


def without_own(trace):
    def skip(trace):
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OWN_FILES):
            trace = trace.tb_next
        return trace
    first = trace = skip(trace)
    while trace is not None:
        following = skip(trace.tb_next)
        if following is not trace.tb_next:
            trace.tb_next = following
        trace = following
    return first


def summary(problem):
    """The exception in one line: what a traceback ends with."""
    kind = type(problem)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    try:
        message = str(problem.msg if isinstance(problem, SyntaxError) else problem)
    except Exception:
        message = "<exception str() failed>"
    message = message.partition("\n")[0]
    return f"{name}: {message}" if message else name
