"""What probefs-dap runs in a process to show what an expression gives, and to complete a name.

It is executed in a dict of its own each time, and nothing of it stays. What it says is JSON behind a
SEPARATOR: in front of that stands what the expression printed.
"""
import sys

SEPARATOR = "\x1e"
TEXT = 2000     # characters of one value
CHILDREN = 100  # of one value
LEVELS = 3      # of values in one another
VALUES = 1000   # in all
NAMES = 500     # that complete a text


def quoted(text):
    def escaped(character):
        code = ord(character)
        if 0xD800 <= code < 0xE000:
            return "\\ufffd"
        return "\\u%04x" % code if code < 32 or character in '"\\' else character
    return '"' + "".join(map(escaped, text)) + '"'


def json(value):
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return quoted(value)
    return "[" + ",".join(map(json, value)) + "]"


def say(value):
    print(SEPARATOR + json(value))


def words(value, limit=TEXT):
    try:
        text = str.__str__(repr(value))
    except Exception as error:
        return "<repr() raised %s>" % type(error).__name__
    return text if limit is None or len(text) <= limit else text[:limit] + "..."


def attributes(value):
    """What it keeps by itself: no property is asked."""
    names = [name for name in getattr(value, "__dict__", ()) if isinstance(name, str)]
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    for name in sorted(set(names)):
        try:
            yield name, "." + name, getattr(value, name)
        except Exception:
            pass


def children(value):
    """(name, what stands behind the value's expression; None: nothing does, child)"""
    if isinstance(value, dict):
        for key, child in dict.items(value):
            yield words(key, 200), "[%s]" % words(key, None), child
    elif isinstance(value, (list, tuple)):
        for number, child in enumerate(value):
            yield str(number), "[%d]" % number, child
    elif isinstance(value, (set, frozenset)):
        for number, child in enumerate(value):
            yield str(number), None, child
    elif not isinstance(value, (int, float, complex, str, bytes, bytearray, type(None), type(json), type(len), type)):
        yield from attributes(value)


class Shown:
    def __init__(self):
        self.left = VALUES

    def show(self, value, limit=TEXT, levels=LEVELS):
        """[type, text, children]; children: [[name, path, type, text, children], ...]; None: it has none; False: they
        aren't shown."""
        rows = []
        for name, path, child in children(value):
            if not levels or not self.left:
                return [type(value).__qualname__, words(value, limit), rows or False]
            if len(rows) == CHILDREN:
                break
            self.left -= 1
            rows.append([name, path, *self.show(child, TEXT, levels - 1)])
        return [type(value).__qualname__, words(value, limit), rows or None]


def show(value, limit=TEXT):
    say(Shown().show(value, limit))


def kind_of(value):
    if isinstance(value, type):
        return "class"
    if isinstance(value, type(sys)):
        return "module"
    return "function" if callable(value) else "field"


def complete(text, names):
    """What may stand for the last name of a text."""
    *path, start = text.split(".")
    found = names
    if path:
        if path[0] not in names:
            return say([])
        value = names[path[0]]
        for name in path[1:]:
            value = getattr(value, name)
        found = {name: None for name in dir(value)}
    rows = []
    for name in sorted(found, key=lambda name: (name.startswith("_"), name)):
        if isinstance(name, str) and name.startswith(start) and len(rows) < NAMES:
            try:
                rows.append([name, kind_of(getattr(value, name) if path else found[name])])
            except Exception:
                pass
    return say(rows)
