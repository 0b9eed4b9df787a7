"""positions.py: frames of calls that stand all over their lines. Prints, innermost first and without the one
that waits, what co_positions() says of each, and reads its standard input."""
import json
import sys


def tell(value):
    frame, said = sys._getframe(1), []
    while frame:
        if hasattr(frame.f_code, "co_positions"):
            said.append(list(frame.f_code.co_positions())[frame.f_lasti // 2])
        else:
            said.append((frame.f_lineno, None, None, None))
        frame = frame.f_back
    print("ready", flush=True)
    print(json.dumps(said), flush=True)
    sys.stdin.read()
    return value


def one_line(value):
    return 1 + tell(value) * 2


def several_lines(value):
    return abs(one_line(
        value
    ) - 1)


def not_ascii(value):
    größe = "日本語" + str(several_lines(value)) + "🦆"
    return größe


def tabbed(value):
	if value:	return	not_ascii(value)


def whole(value):
    tabbed(value)


def chained(value):
    return [x for x in (value,) if len("x" * 200 + "y" * 200 + "z" * 200 + "w" * 200) and whole(x)]


chained(1)
