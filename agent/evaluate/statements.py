"""Compiling the statements of a unit, and running them.

Names that the program's globals lack are found by a mapping, the code's local namespace (names.py).
Functions, lambdas and comprehensions inside the code can't see that: a statement in which they use
such names is compiled as a function that has them as cells.
"""
from _ast import (
    AST, AnnAssign, Assign, AsyncFunctionDef, Call, Expr, Expression, FunctionDef, Global, Load, Module,
    Name, Nonlocal, Pass, PyCF_ALLOW_TOP_LEVEL_AWAIT, PyCF_ONLY_AST, Return, arg, arguments)

CO_COROUTINE = 0x80  # Include/cpython/code.h
NESTED = "<module>.<locals>.<module>.<locals>."  # what enclose() puts before qualified names
Function = type(lambda: None)
Code = type((lambda: None).__code__)
Cell = type((lambda name: (lambda: name))(0).__closure__[0])


class Unit:
    """Statements compiled together, and run one after the other."""

    def __init__(self, source, before):
        self.source = source
        self.before = before  # lines that come before it in the whole text
        self.steps = []  # (node, code, whether its value is shown)
        self.compiled = False

    def parse(self):
        """The tree, with the lines of the whole text."""
        if "\\" not in self.source:  # of which the parser itself may warn
            try:
                tree = compile(self.source, FILE, "exec", PyCF_ONLY_AST, True)
            except SyntaxError:
                pass  # it comes again, and may tell of other lines, too
            else:
                return moved(tree, self.before)
        return compile("\n" * self.before + self.source, FILE, "exec", PyCF_ONLY_AST, True)

    def compile(self):
        """Compiles all of them before the first runs."""
        for node in self.parse().body:
            shown = type(node) is Expr
            if shown:
                tree, mode = Expression(node.value), "eval"
            else:
                show_values(node)
                tree, mode = Module([node], []), "exec"
            code = compile(tree, FILE, mode, PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
            self.steps.append((node, code, shown))
        self.compiled = True

    def covers(self, problem):
        """Whether a SyntaxError is of this text, and not of one that it compiles itself."""
        return not self.compiled

    def run(self, names, sink, thread, shower):
        def display(value):
            shower(value, sink)
        names.display = display
        for node, code, shown in self.steps:
            value = execute(node, code, names, thread)
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
                return self.source.split("\n")[number - self.before - 1].strip()
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


def execute(node, code, names, thread):
    """Runs one statement; the value, if it is an expression."""
    inner, wanted = nested(code), set()
    while inner:
        each = inner.pop()
        inner += nested(each)
        wanted.update(each.co_names)
    function = None
    if any(names.in_frames(name) for name in wanted):
        function, cells, before = enclose(node, code, names, wanted)
    try:
        if function is not None:
            value = function()
        elif names.needed(code):
            value = eval(code, names.home, names)
        else:
            value = eval(code, names.home)
        if code.co_flags & CO_COROUTINE:
            value = run_coroutine(value, names, thread)
    finally:
        if function is not None:
            write_back(cells, before, names)
    return value


def enclose(node, code, names, wanted):
    """The statement as a function, whose cells are the variables of frames that it uses: (function,
    cells, what was in them). (None, {}, {}) where it can't be one: `import *`."""
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
    others = sorted(every.difference(cells))
    body = [place(Global(others))] if others else []
    body += [place(Nonlocal(list(cells)))] if cells else []
    body += [place(Return(node.value), node) if type(node) is Expr else node]
    kind = AsyncFunctionDef if code.co_flags & CO_COROUTINE else FunctionDef
    inner = define(kind, [], body, node)
    outer = define(FunctionDef, [*cells, DISPLAY], [inner], node)
    try:
        made = inside(Sink(0), compile, Module([outer], []), FILE, "exec", 0, True)
    except SyntaxError:
        return None, {}, {}
    made = renamed(nested(nested(made)[0])[0])
    closure = {**cells, DISPLAY: Cell(names.display)}
    return (Function(made, names.home, "<module>", None,
                     tuple(closure[name] for name in made.co_freevars)), cells, before)


def define(kind, parameters, body, like):
    parameters = arguments([], [place(arg(name)) for name in parameters], None, [], [], None, [])
    function = place(kind("<module>", parameters, body, []), like)
    function.type_params = []
    return function


def moved(tree, lines):
    """The tree of what stands so many lines further down."""
    waiting = [tree] if lines else []
    while waiting:
        node = waiting.pop()
        if hasattr(node, "end_lineno"):
            node.lineno += lines
            node.end_lineno += lines
        for name in node._fields:
            value = getattr(node, name)
            waiting += [each for each in (value if type(value) is list else [value])
                        if isinstance(each, AST)]
    return tree


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
        except ValueError:  # deleted
            if before[name] and names.owns(name):
                names[name] = None
            else:
                names.home.pop(name, None)
            continue
        if not before[name] or value is not before[name][0]:
            names[name] = value
