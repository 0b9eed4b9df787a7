"""bindings.py: frames that bind names in every way there is: arguments of all kinds, cells, free
variables, comprehensions, generators, classes, exec, names that were never bound or are deleted.

Prints [[function, {name: repr(value)}], ...], innermost frame first, as f_locals has it in one
line of JSON, and then reads its standard input in the innermost frame."""
import json
import sys

at_module = [1]


def describe():
    frame = sys._getframe(1)
    said = []
    while frame is not None:
        said.append([frame.f_code.co_name,
                     {name: repr(value) for name, value in frame.f_locals.items()}])
        frame = frame.f_back
    print(json.dumps(said), flush=True)
    sys.stdin.read()


def innermost(positional, /, argument, default=7, *rest, keyword, **others):
    never = 0
    del never
    if positional is None:
        unbound = 1
    целое = 5
    describe()


def enclosing(argument, cell_argument):
    cell = "in a cell"
    unset = None
    del unset

    def inner(free_or_not):
        nonlocal cell
        local = [cell_argument, free_or_not]
        cell += "!"
        later = lambda: unset
        innermost(1, 2, 3, 4, 5, keyword="k", other={"x": None})
        return local

    return inner(("a", "b"))


def comprehension(source):
    shadow = "outer"
    return [enclosing(shadow, item) for shadow, item in source if item]


def generator(first):
    received = yield first
    comprehension([(1, received)])


async def coroutine(argument):
    local = argument * 2
    running = generator(local)
    next(running)
    running.send("sent")


def start():
    try:
        coroutine(21).send(None)
    except StopIteration:
        pass


def in_class(first):
    class Body:
        attribute = first
        other = __qualname__ * 2
        start()


globals_ = {"in_class": in_class, "__name__": "executed"}
exec("def executed(x, y=2):\n    in_class(x)\n", globals_)


def execute():
    local_mapping = {"given": 1}
    exec("assigned = 2\nexecuted(3)", {**globals_}, local_mapping)


def recurse(depth):
    if depth:
        recurse(depth - 1)
    else:
        execute()


recurse(3)
