"""Showing the value of an expression, as a prompt does."""

SMALL = 1 << 16  # items and characters up to which a value is shown by repr() alone


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
