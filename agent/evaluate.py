"""The Python side of eval: what runs inside the target for one write to an `eval` file.

The agent executes this source once for each interpreter, in a private dict that already holds
`_probe`, and calls evaluate(), then restore(), under the GIL on its own thread; close() when it
detaches. Nothing here is visible to the program: no module, no hook, no patched name, but for
sys.stdout and sys.stderr while an evaluation lasts. A KeyboardInterrupt may come at any step.

How it works:
  The text is cut into units, the pieces that a prompt would take at once. Each is compiled and run
  on its own, as soon as nothing that may follow can change it: how a shell splits its writes doesn't
  matter.
  Names that the program's globals lack are found in its frames by a mapping (Names), which is the
  code's local namespace. Functions, lambdas and comprehensions inside the code can't see that: a
  statement in which they use such names is compiled as a function that has them as cells.
  What the code prints is told from what others print by a context variable: whoever writes to
  sys.stdout outside of the evaluation's context writes to the program's own object.
"""
import sys
from _ast import (
    AnnAssign, Assign, AsyncFor, AsyncFunctionDef, AsyncWith, Call, ClassDef, Expr, Expression, For,
    FunctionDef, Global, If, Load, Match, Module, Name, Nonlocal, Pass, PyCF_ONLY_AST,
    PyCF_ALLOW_TOP_LEVEL_AWAIT, Return, Try, While, With, arg, arguments)
from _contextvars import Context, ContextVar
from _io import UnsupportedOperation
from _thread import allocate_lock

try:
    from _ast import TryStar
except ImportError:  # before 3.11
    TryStar = Try

FILE = "<probe>"
OWN_FILE = (lambda: None).__code__.co_filename
ENOENT, ESRCH, EINTR, EIO, ENOMEM, EINVAL = 2, 3, 4, 5, 12, 22  # errno(3)
EVAL_ON_THREAD, EVAL_IN_FRAME = 2, 4  # agent/proto.h
CO_OPTIMIZED, CO_COROUTINE = 0x1, 0x80  # Include/cpython/code.h
ALLOW_INCOMPLETE = 0x4000 if sys.version_info >= (3, 11) else 0  # PyCF_ALLOW_INCOMPLETE_INPUT
WRITE_THROUGH = sys.version_info >= (3, 13)  # frame.f_locals is no copy (PEP 667)

FRAMES_MAX = 1 << 14     # frames of a thread that are searched
TRACEBACK_MAX = 1 << 18  # bytes
CHAIN_MAX = 100          # exceptions in a chain whose tracebacks are cleaned
SMALL = 1 << 16          # items and characters up to which a value is shown by repr() alone
TICK = 0.02              # seconds until an interrupt is noticed while an event loop runs the code
CANCEL_TICKS = 50        # in which a cancelled task has to end

BLOCKS = (If, For, AsyncFor, While, With, AsyncWith, Try, TryStar, Match)
COMPOUND = (*BLOCKS, FunctionDef, AsyncFunctionDef, ClassDef)
CONTINUATIONS = {"else", "elif", "except", "finally"}
DISPLAY = "<display>"    # the function that shows a value; no identifier, so nobody's own name
NESTED = "<module>.<locals>.<module>.<locals>."

Function = type(lambda: None)
Code = type((lambda: None).__code__)
Cell = type((lambda name: (lambda: name))(0).__closure__[0])


# Output

current = ContextVar("probe", default=None)  # the Sink of the evaluation in whose context this runs


class Sink:
    """The first `limit` bytes of what is written to it."""
    __slots__ = "data", "limit", "cut", "open"

    def __init__(self, limit):
        self.data = bytearray()
        self.limit = limit
        self.cut = False   # something was dropped
        self.open = True   # False: the evaluation is over, late writers mean the program's stream

    def add(self, data):
        if self.cut:
            return
        room = self.limit - len(self.data)
        if len(data) > room:
            self.cut = True
            data = clip(data, room)
        self.data += data

    def write(self, text):
        if not self.cut:
            self.add(text[:self.limit - len(self.data) + 1].encode("utf-8", "backslashreplace"))

    def end(self, data):
        """Adds data at the end, at the cost of what came before."""
        data = clip(data, self.limit)
        if len(self.data) + len(data) > self.limit:
            self.cut = True
            self.data = clip(self.data, self.limit - len(data))
        self.data += data


def clip(data, size):
    """At most size bytes of UTF-8, no character cut."""
    if len(data) <= size:
        return data
    while size and data[size] & 0xC0 == 0x80:
        size -= 1
    return data[:size]


class Nothing:
    """Stands for a program's sys.stdout that is None."""
    __slots__ = ()

    def write(self, text):
        return len(text)

    def flush(self):
        pass


class Lost:
    """Stands for a program's sys.stdout that was deleted."""
    __slots__ = ()

    def write(self, text):
        raise RuntimeError("lost sys.stdout")


NOTHING, LOST = Nothing(), Lost()


class Buffer:
    """sys.stdout.buffer inside an evaluation."""
    closed = False
    mode = "wb"

    def __init__(self, sink, own):
        self._sink, self._own = sink, own

    def write(self, data):
        data = memoryview(data).tobytes()
        if not self._sink.open:
            return self._own.buffer.write(data)
        self._sink.add(data)
        return len(data)

    def flush(self):
        pass

    def writable(self):
        return True

    def __getattr__(self, name):
        return getattr(self._own.buffer, name)


class Output:
    """sys.stdout or sys.stderr inside an evaluation: not a terminal, and without a descriptor, by
    which a child process would write to the program's own output."""
    closed = False
    encoding = "utf-8"
    errors = "backslashreplace"
    line_buffering = False
    newlines = None

    def __init__(self, sink, own):
        self._sink, self._own = sink, own

    def write(self, text):
        if not self._sink.open:
            return self._own.write(text)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._sink.write(text)
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    @property
    def buffer(self):
        return Buffer(self._sink, self._own)

    def flush(self):
        pass

    close = flush

    def reconfigure(self, **_):
        pass

    def isatty(self):
        return False

    def writable(self):
        return True

    def fileno(self):
        raise UnsupportedOperation("fileno")

    def __getattr__(self, name):
        return getattr(self._own, name)


class Stream:
    """Takes the place of the program's sys.stdout or sys.stderr. In the context of an evaluation it
    is that one's Output, for all others the program's object in every respect but identity, also
    when somebody kept it longer than the evaluation lasted."""
    __slots__ = ("_own",)

    def __init__(self, own):
        set_own(self, own)

    def __getattribute__(self, name):
        return getattr(behind(self), name)

    def __setattr__(self, name, value):
        setattr(behind(self), name, value)

    def __delattr__(self, name):
        delattr(behind(self), name)

    def __repr__(self):
        return repr(get_own(self))

    def __eq__(self, other):
        return self is other or get_own(self) == other

    def __hash__(self):
        return hash(get_own(self))

    def __dir__(self):
        return dir(behind(self))

    def __iter__(self):
        return iter(get_own(self))

    def __next__(self):
        return next(get_own(self))

    def __enter__(self):
        return get_own(self).__enter__()

    def __exit__(self, *problem):
        return get_own(self).__exit__(*problem)


set_own = Stream._own.__set__
get_own = Stream._own.__get__


def behind(stream):
    own = get_own(stream)
    sink = current.get()
    if sink is not None and sink.open:
        return Output(sink, own)
    return NOTHING if own is None else own


def install():
    for name in "stdout", "stderr":
        own = getattr(sys, name, LOST)
        if type(own) is not Stream:
            setattr(sys, name, Stream(own))


def restore():
    """Gives sys.stdout and sys.stderr back to the program, unless somebody has replaced them."""
    for name in "stdout", "stderr":
        stream = getattr(sys, name, None)
        if type(stream) is Stream:
            own = get_own(stream)
            if own is LOST:
                delattr(sys, name)
            else:
                setattr(sys, name, own)


def inside(sink, function, *arguments):
    """Calls it in a new context, whose output goes to sink."""
    context = Context()
    context.run(current.set, sink)
    return context.run(function, *arguments)


# Names

def variables(frame):
    """The names of a function's own variables, its cells and free variables."""
    code = frame.f_code
    return {*code.co_varnames, *code.co_cellvars, *code.co_freevars}


class Names:
    """The local namespace of evaluated code: the variables of frames, then the globals `home`.

    own    the frame whose variables come first and take assignments; None: there is none
    outer  the frame from which on outwards names are looked up that home doesn't have
    """

    def __init__(self, home, own, outer):
        self.home, self.own, self.outer = home, own, outer
        self.touched = []  # frames of which CPython up to 3.12 made a dict of locals for us

    def locals(self, frame):
        if not WRITE_THROUGH and frame.f_code.co_flags & CO_OPTIMIZED:
            self.touched.append(frame)
        return frame.f_locals

    def variable(self, frame, name):
        if not WRITE_THROUGH and frame.f_code.co_flags & CO_OPTIMIZED:
            if name not in variables(frame):
                raise KeyError(name)
        return self.locals(frame)[name]

    def owns(self, name):
        """Whether assigning to it changes a variable of the frame."""
        frame = self.own
        if frame is None:
            return False
        if not frame.f_code.co_flags & CO_OPTIMIZED:
            return frame.f_locals is not self.home
        return name in variables(frame) or WRITE_THROUGH and name in frame.f_locals

    def outwards(self, name):
        frame = self.outer
        for _ in range(FRAMES_MAX):
            if frame is None:
                break
            try:
                return self.variable(frame, name)
            except KeyError:
                frame = frame.f_back
        raise KeyError(name)

    def __getitem__(self, name):
        if self.own is not None:
            try:
                return self.variable(self.own, name)
            except KeyError:
                pass
        if name in self.home:
            return self.home[name]
        return self.outwards(name)

    def __setitem__(self, name, value):
        if not self.owns(name):
            self.home[name] = value
        elif WRITE_THROUGH or not self.own.f_code.co_flags & CO_OPTIMIZED:
            self.own.f_locals[name] = value
        else:
            self.touched.append(self.own)
            _probe.write_local(self.own, name, value)

    def __delitem__(self, name):
        if not self.owns(name):
            del self.home[name]
        elif not self.own.f_code.co_flags & CO_OPTIMIZED:
            del self.own.f_locals[name]
        else:
            raise NameError(f"the frame's variable {name!r} can't be deleted")

    def keys(self):
        return self.home.keys() if self.own is None else self.locals(self.own).keys()

    def __contains__(self, name):
        return name in self.keys()

    def __iter__(self):
        return iter(self.keys())

    def __len__(self):
        return len(self.keys())

    def __repr__(self):
        return repr({name: self[name] for name in self.keys()})

    def in_frames(self, name):
        """Whether it means something else than the globals and builtins that functions see."""
        if self.own is not None and self.owns(name):
            return True
        if name in self.home:
            return False
        try:
            self.outwards(name)
        except KeyError:
            return False
        return True

    def needed(self, code):
        """Whether code must run with this as its locals, rather than with home itself."""
        if self.own is not None and self.own.f_locals is not self.home:
            return True
        return any(name == DISPLAY or self.in_frames(name) for name in code.co_names)

    def release(self):
        """Lets go of the frames, and empties the dicts of locals that reading made CPython keep in
        them, so that objects don't live longer; unless somebody else may be using those: a tracing
        function, which holds its frame, or who called locals()."""
        self.own = self.outer = None
        while self.touched:
            frame = self.touched.pop()
            if frame in self.touched or frame.f_trace is not None:
                continue
            # the interpreter, up to 3.10 the frame that it called too, `frame`, the argument
            if sys.getrefcount(frame) > (3 if sys.version_info >= (3, 11) else 4):
                continue
            snapshot = frame.f_locals
            if sys.getrefcount(snapshot) <= 3:  # the frame, `snapshot`, the argument
                snapshot.clear()


class Missing(Exception):
    """There is no such thread or frame: errno, words."""


def resolve(thread, depth, flags):
    """The names that an evaluation sees."""
    if not flags & (EVAL_ON_THREAD | EVAL_IN_FRAME):
        return Names(main_globals(), None, sys._current_frames().get(_probe.main_thread))
    frame = sys._current_frames().get(thread)
    if frame is None:
        raise Missing(ESRCH, "the thread has ended, or runs no Python code now")
    for level in range(depth):
        frame = frame.f_back
        if frame is None:
            raise Missing(ENOENT, f"no frame {depth}: the thread has {level + 1} now")
    return Names(frame.f_globals, frame, None if flags & EVAL_IN_FRAME else frame.f_back)


def main_globals():
    """__main__'s; where a program has none, a dict of our own."""
    modules = sys.modules
    main = modules.get("__main__") if isinstance(modules, dict) else None
    home = getattr(main, "__dict__", None)
    return home if type(home) is dict else without_main


without_main = {"__name__": "__main__"}


# Units

def split(text, last):
    """The complete lines of text, each as str that ends in \\n, and how many bytes each has. How much of
    a text is there doesn't change the lines that are complete."""
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
        return None, error, not last and incomplete(source, error)


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
    """Yields the first line and the one after the last of each unit that can be run; when a line can't
    be parsed the last one ends with it. A pair of equal numbers says how far there is nothing."""
    begin = 0
    while begin < len(lines):
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
        if error is None:
            yield stop, stop
        elif stop == begin:
            if not unfinished:
                yield begin, begin + shortest(lines[begin:], last)
            return
        begin = stop


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
    starts = [number for number, line in enumerate(lines) if line[0] not in " \t\f\n#"]
    bound = getattr(error, "lineno", None) or len(lines)
    while len(starts) > 1:
        number = starts.pop()
        if number >= bound:
            continue
        tree, error, _ = parse(lines[:number])
        if error is not None:
            bound = min(number, getattr(error, "lineno", None) or number)
        elif not (tree.body and isinstance(tree.body[-1], COMPOUND)
                  and first_word(lines[number]) in CONTINUATIONS):
            return number
    return 0


def first_word(line):
    end = 0
    while line[end].isalpha():
        end += 1
    return line[:end]


def shortest(lines, last):
    """How many lines it takes to see that a unit can't be parsed: as many as had come if each came alone,
    so that the same is said of it."""
    low, high = 0, len(lines)
    while low + 1 < high:
        middle = (low + high) // 2
        _, error, unfinished = parse(lines[:middle], False)
        if error is None or unfinished:
            low = middle
        else:
            high = middle
    return high


# Running

class Unit:
    """Statements compiled together, and run one after the other."""

    def __init__(self, source):
        self.source = source
        self.steps = []  # (node, code, whether its value is shown)

    def compile(self):
        """Compiles all of them before the first runs."""
        for node in compile(self.source, FILE, "exec", PyCF_ONLY_AST, True).body:
            shown = type(node) is Expr
            if shown:
                code = compile(Expression(node.value), FILE, "eval", PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
            else:
                show_values(node)
                code = compile(Module([node], []), FILE, "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
            self.steps.append((node, code, shown))

    def run(self, names, sink, thread):
        def display(value):
            show(value, sink)
        for node, code, shown in self.steps:
            value = execute(node, code, names, display, thread)
            if shown:
                display(value)

    def line(self, number, function):
        """The source of a line in a traceback, if it is in this unit's function of that name."""
        codes = [code for _, code, _ in self.steps]
        while codes:
            code = codes.pop()
            codes += nested(code)
            numbers = [line for _, _, line in code.co_lines() if line]
            if code.co_name == function and numbers and min(numbers) <= number <= max(numbers):
                return self.source.split("\n")[number - 1].strip()
        return ""


def nested(code):
    return [constant for constant in code.co_consts if type(constant) is Code]


def bodies(node):
    """Yields the lists of statements inside a block that belong to the same scope, at any depth."""
    for name in "body", "orelse", "finalbody":
        body = getattr(node, name, None)
        if type(body) is list:
            yield body
            for inner in body:
                if isinstance(inner, BLOCKS):
                    yield from bodies(inner)
    for part in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
        yield from bodies(part)


def place(node, like=None):
    node.lineno = node.end_lineno = 1
    node.col_offset = node.end_col_offset = 0
    for field in "lineno", "end_lineno", "col_offset", "end_col_offset":
        if like is not None:
            setattr(node, field, getattr(like, field))
    return node


def show_values(node):
    """Makes the expressions inside a block show their values."""
    if isinstance(node, BLOCKS):
        for body in bodies(node):
            for each in body:
                if type(each) is Expr:
                    value = each.value
                    function = place(Name(DISPLAY, Load()), value)
                    each.value = place(Call(function, [value], []), value)


def execute(node, code, names, display, thread):
    """Runs one statement; the value, if it is an expression."""
    inner, wanted = nested(code), set()
    while inner:
        each = inner.pop()
        inner += nested(each)
        wanted.update(each.co_names)
    function = None
    if any(names.in_frames(name) for name in wanted):
        function, cells, before = enclose(node, code, names, display, wanted)
    try:
        if function is not None:
            value = function()
        elif names.needed(code):
            value = eval(code, names.home, Displaying(names, display))
        else:
            value = eval(code, names.home)
        if code.co_flags & CO_COROUTINE:
            value = run_coroutine(value, names, thread)
    finally:
        if function is not None:
            write_back(cells, before, names)
    return value


class Displaying:
    """Names, and the function that shows values."""

    def __init__(self, names, display):
        self._names, self._display = names, display

    def __getitem__(self, name):
        return self._display if name == DISPLAY else self._names[name]

    def __setitem__(self, name, value):
        self._names[name] = value

    def __delitem__(self, name):
        del self._names[name]

    def __getattr__(self, name):
        return getattr(self._names, name)

    def __contains__(self, name):
        return name in self._names

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)

    def __repr__(self):
        return repr(self._names)


def enclose(node, code, names, display, wanted):
    """The statement as a function, whose cells are the variables of frames that it uses: (function, cells,
    what was in them). (None, {}, {}) where it can't be one: `import *`."""
    every = {name for name in (*code.co_names, *wanted) if name.isidentifier()}
    declared = set()
    for body in [[node], *bodies(node)] if isinstance(node, BLOCKS) else [[node]]:
        for number, each in enumerate(body):
            if type(each) is Global:
                declared.update(each.names)
            elif type(each) is AnnAssign and each.simple:  # a function can't annotate its cells
                plain = Assign([each.target], each.value) if each.value else Pass()
                body[number] = place(plain, each)
                node = plain if each is node else node
    before = {}
    for name in every - declared:
        if names.in_frames(name):
            try:
                before[name] = (names[name],)
            except KeyError:
                before[name] = ()
    cells = {name: Cell(*value) for name, value in before.items()}
    others = [name for name in code.co_names if name in every and name not in cells]
    body = [place(Global(others))] if others else []
    body += [place(Nonlocal(list(cells)))] if cells else []
    body += [place(Return(node.value), node) if type(node) is Expr else node]
    kind = AsyncFunctionDef if code.co_flags & CO_COROUTINE else FunctionDef
    inner = define(kind, [], body)
    outer = define(FunctionDef, [*cells, DISPLAY], [inner])
    try:
        made = compile(Module([outer], []), FILE, "exec", 0, True)
    except SyntaxError:
        return None, {}, {}
    made = renamed(nested(nested(made)[0])[0])
    closure = {**cells, DISPLAY: Cell(display)}
    return (Function(made, names.home, "<module>", None,
                     tuple(closure[name] for name in made.co_freevars)), cells, before)


def define(kind, parameters, body):
    parameters = arguments([], [place(arg(name)) for name in parameters], None, [], [], None, [])
    function = place(kind("<module>", parameters, body, []))
    function.type_params = []
    return function


def renamed(code):
    """Code whose functions have the qualified names that they have at a prompt."""
    def name(text):
        return text[len(NESTED):] if text.startswith(NESTED) else text
    changes = {"co_qualname": name(code.co_qualname)} if hasattr(code, "co_qualname") else {}
    return code.replace(co_consts=tuple(
        renamed(each) if type(each) is Code else name(each) if type(each) is str else each
        for each in code.co_consts), **changes)


def write_back(cells, before, names):
    """Assignments to cells become assignments to what they stand for."""
    for name, cell in cells.items():
        try:
            value = cell.cell_contents
        except ValueError:
            if before[name]:
                del names[name]
            continue
        if not before[name] or value is not before[name][0]:
            names[name] = value


# Values

def show(value, sink):
    """What a prompt shows of the value of an expression."""
    if value is None:
        return
    page = Sink(max(sink.limit - len(sink.data), 0))
    if sink.cut or is_small(value):
        page.write(repr(value))
    else:
        for piece in pieces(value, page.limit + 1, []):
            page.write(piece)
            if page.cut:
                break
    page.write("\n")
    sink.add(page.data)
    sink.cut = sink.cut or page.cut


def is_small(value):
    budget, stack = SMALL, [value]
    while stack and budget >= 0:
        each = stack.pop()
        kind = type(each)
        if kind in (list, tuple, set, frozenset):
            budget -= 1 + len(each)
            if budget >= 0:
                stack += each
        elif kind is dict:
            budget -= 1 + 2 * len(each)
            if budget >= 0:
                stack += list(each) + list(each.values())
        elif kind in (str, bytes, bytearray):
            budget -= len(each)
    return budget >= 0


BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), dict: ("{", "}"),
            frozenset: ("frozenset({", "})")}


def pieces(value, limit, active):
    """Yields repr(value) piece by piece, so that one of gigabytes need not be made to show its
    beginning; limit: how many characters are wanted, active: the containers around it."""
    kind = type(value)
    if kind in (str, bytes, bytearray):
        yield repr(value[:limit])
        return
    if kind not in BRACKETS or not value:
        yield repr(value)
        return
    opening, closing = BRACKETS[kind]
    if any(value is each for each in active):
        yield f"{kind.__name__}(...)" if kind in (set, frozenset) else f"{opening}...{closing}"
        return
    active.append(value)
    yield opening
    many = range(limit // 3 + 2)  # each takes at least three characters
    separator = ""
    for _, each in list(zip(many, value.items() if kind is dict else value)):
        yield separator
        separator = ", "
        if kind is dict:
            yield from pieces(each[0], limit, active)
            yield ": "
            each = each[1]
        yield from pieces(each, limit, active)
    yield ",)" if kind is tuple and len(value) == 1 else closing
    active.pop()


# Coroutines

class Outcome:
    """How a coroutine ended."""
    __slots__ = "value", "error", "task", "cancelled", "ended", "lock"

    def __init__(self):
        self.value = self.error = self.task = None
        self.cancelled = self.ended = False
        self.lock = allocate_lock()
        self.lock.acquire()

    def end(self, *_):
        if not self.ended:
            self.ended = True
            self.lock.release()

    async def guard(self, coroutine):
        """Awaits it, and lets nothing through to an event loop of the program."""
        try:
            self.value = await coroutine
        except BaseException as error:
            self.error = error

    def take(self):
        value, error = self.value, self.error
        self.value = self.error = self.task = None
        try:
            if error is not None:
                raise error
            return value
        finally:
            del error


def run_coroutine(coroutine, names, thread):
    """Its result; it runs on the event loop that runs in the thread, else on one of our own."""
    loop = running_loop(names, thread)
    outcome = Outcome()
    if loop is not None:
        run_on(loop, coroutine, outcome)
    else:
        run_alone(coroutine, outcome)
    return outcome.take()


def running_loop(names, thread):
    kind = getattr(sys.modules.get("asyncio.events"), "AbstractEventLoop", None)
    frame = sys._current_frames().get(thread) if kind else None
    for _ in range(FRAMES_MAX):
        if frame is None:
            return None
        for name in "self", "loop":
            try:
                found = names.variable(frame, name)
            except KeyError:
                continue
            if type(found).__module__ == "asyncio.runners":
                found = getattr(found, "_loop", None)  # uvloop's own methods have no Python frame
            if issubclass(type(found), kind) and found.is_running() \
                    and getattr(found, "_thread_id", thread) == thread:
                return found
        frame = frame.f_back


def run_on(loop, coroutine, outcome):
    """On a loop that runs in another thread."""
    def start():
        if outcome.cancelled:
            coroutine.close()
            outcome.end()
            return
        guard = outcome.guard(coroutine)
        try:
            outcome.task = loop.create_task(guard)
            outcome.task.add_done_callback(outcome.end)
        except BaseException as error:
            outcome.error = error
            guard.close()
            coroutine.close()
            outcome.end()

    def cancel():
        if outcome.task is not None:
            outcome.task.cancel()

    try:
        loop.call_soon_threadsafe(start)
        while not outcome.lock.acquire(True, TICK):
            if loop.is_closed():
                raise RuntimeError("the event loop was closed")
    except BaseException:
        outcome.cancelled = True
        if loop.is_closed():
            coroutine.close()
        else:
            loop.call_soon_threadsafe(cancel)
            for _ in range(CANCEL_TICKS):
                if outcome.lock.acquire(True, TICK):
                    break
        raise


def run_alone(coroutine, outcome):
    """On a loop made for it, as asyncio.run() does; that would ask for the current thread, and so make
    ours known to the program."""
    import asyncio

    def tick():  # lets Python notice an interrupt
        loop.call_later(TICK, tick)

    loop = asyncio.new_event_loop()
    try:
        loop.call_soon(tick)
        loop.run_until_complete(outcome.guard(coroutine))
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
            coroutine.close()


# Errors

def report(problem, unit, sink):
    """Ends the output with the traceback, as Python shows it."""
    clean(problem)
    if unit is not None and isinstance(problem, SyntaxError) and problem.filename == FILE \
            and not problem.text and problem.lineno:
        lines = unit.source.split("\n")  # an error found after parsing comes without its line
        problem.text = lines[min(problem.lineno, len(lines)) - 1] + "\n"
    try:
        text = rendered(problem)
    except Exception:
        text = summary(problem) + "\n"
    if unit is not None:
        text = "\n".join(with_source(line, unit) for line in text.split("\n"))
    if text and not text.endswith("\n"):
        text += "\n"
    sink.end(text.encode("utf-8", "backslashreplace"))


def rendered(problem):
    if sys.version_info >= (3, 13):  # sys.__excepthook__ does this, but in colours
        from traceback import format_exception
        return "".join(format_exception(type(problem), problem, problem.__traceback__))
    page = Sink(TRACEBACK_MAX)
    install()  # if the code has replaced sys.stderr
    inside(page, sys.__excepthook__, type(problem), problem, problem.__traceback__)
    return page.data.decode("utf-8", "replace")


def with_source(line, unit):
    """A line of a traceback, followed by the source if it is of this unit."""
    indent, _, rest = line.partition(f'File "{FILE}", line ')
    number, _, function = rest.partition(", in ")
    if not number.isdecimal() or indent.strip(" |"):
        return line
    source = unit.line(int(number), function)
    return f"{line}\n{indent}  {source}" if source else line


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
        while trace is not None and trace.tb_frame.f_code.co_filename == OWN_FILE:
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


# What the agent calls

def evaluate(text, last, thread, depth, flags, output_max):
    """Runs what is complete of text (bytes), all of it if last.

    thread, depth  as in struct proto_eval; flags: EVAL_ON_THREAD or EVAL_IN_FRAME, or neither
    output_max     bytes of output that are kept
    Returns (errno or 0, bytes of text that are done with, output, whether some of it was dropped, what
    failed in words). After an error nothing more of the text is run.
    """
    sink = Sink(output_max)
    names = unit = None
    error, done, words = 0, 0, ""
    stage = EINVAL
    install()
    try:
        names = resolve(thread, depth, flags)
        at = flags and thread or _probe.main_thread
        lines, sizes = split(text, last)
        for begin, end in units(lines, last):
            done = sum(sizes[:end])
            if begin == end:
                continue
            context, stage = Context(), EINVAL
            context.run(current.set, sink)
            unit = Unit("".join(lines[begin:end]))
            context.run(unit.compile)
            stage = EIO
            context.run(unit.run, names, sink, at)
    except Missing as missing:
        error, words = missing.args
    except BaseException as problem:
        error = EINTR if isinstance(problem, KeyboardInterrupt) else stage
        words = summary(problem)
        report(problem, unit, sink)
        if error == EINTR:
            # one that left an exec() of a string makes CPython up to 3.13 end with SIGINT when the
            # program ends, unless another exec() follows (pythonrun.c, unhandled_keyboard_interrupt)
            exec("", {})
    finally:
        sink.open = False
        if names is not None:
            names.release()
    return error, done, bytes(sink.data), sink.cut, words


def close():
    """Lets go of the agent, also where somebody kept an object of ours."""
    global _probe
    restore()
    _probe = None
    without_main.clear()
