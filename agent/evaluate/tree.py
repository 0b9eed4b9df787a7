"""Showing the value of an expression for a program that reads it: JSON, with what is in it.

Executed with the first text that wants it. Nothing of the process's own is imported for it, so that what the program
made of its json module doesn't matter.
"""
SEPARATOR = "\x1e"  # before each, as in RFC 7464: what the code prints has none
TEXT = 2000         # characters of one value
KEY = 200           # ... of a key as a name
CHILDREN = 100      # of one value
LEVELS = 3          # of values in one another
VALUES = 1000       # in all
LEAVES = (int, float, complex, str, bytes, bytearray, type(None), Function, type(len), type)


def show_tree(value, sink):
    """A line, for None as well."""
    sink.write(SEPARATOR + json(tree(value, LEVELS, [VALUES])) + "\n")


def tree(value, levels, left):
    """type, value and children: a list of the same with name and path; None: there are some that aren't shown. Without
    children it has none.

    left: how many more values may be."""
    made = {"type": type(value).__qualname__, "value": words(value, TEXT)}
    for name, path, child in () if isinstance(value, LEAVES) else children(value):
        if not levels or not left[0]:
            made.setdefault("children", None)
            break
        rows = made.setdefault("children", [])
        if len(rows) == CHILDREN:
            break
        left[0] -= 1
        rows.append({"name": name, "path": path, **tree(child, levels - 1, left)})
    return made


def words(value, limit):
    try:
        text = str.__str__(repr(value))
    except Exception as error:
        return f"<repr() raised {type(error).__name__}>"
    return text if limit is None or len(text) <= limit else text[:limit] + "..."


def children(value):
    """(name, what stands behind the value's expression; None: nothing does, child)"""
    if isinstance(value, dict):
        return ((words(key, KEY), f"[{words(key, None)}]", child) for key, child in dict.items(value))
    if isinstance(value, (list, tuple)):
        return ((str(number), f"[{number}]", child) for number, child in enumerate(value))
    if isinstance(value, (set, frozenset)):
        return ((str(number), None, child) for number, child in enumerate(value))
    return attributes(value)


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


def json(value):
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{" + ",".join([f'"{name}":{json(each)}' for name, each in value.items()]) + "}"
    return "null" if value is None else "[" + ",".join(map(json, value)) + "]"


def quoted(text):
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(["\\ufffd" if "\ud800" <= c < "\ue000" else
                          f"\\u{ord(c):04x}" if c < " " or c in '"\\' else c for c in text]) + '"'
