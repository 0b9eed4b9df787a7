"""Interrupting an evaluation in a free-threaded interpreter, from another thread.

What that thread can raise by itself may come anywhere, in the middle of import's own functions, too, whose locks then
stay taken; and it can't look where the evaluation is, whose frames go on meanwhile. So only the code that was written
is interrupted, by its own events: at its next line, or turn of a loop. What it calls ends as it likes.
"""
from sys import monitoring

TOOLS = 4, 5, 3, 2, 1, 0  # those that have no meaning first, as agent/monitor/monitoring.c has it
EVENTS = monitoring.events.LINE, monitoring.events.JUMP, monitoring.events.PY_START
armed = []  # (thread, tool, the code that tells of its events)


def strike(thread):
    """Has the evaluation that runs in a thread raise KeyboardInterrupt; before it begins, if it is just about to."""
    struck.add(thread)  # first: who begins looks for it last
    ran = running.get(thread)
    tool = take_tool() if ran else None
    if tool is None:  # the program has them all, or nothing runs yet
        return

    def hear(*_):
        if get_ident() == thread and thread in struck:
            struck.discard(thread)
            raise KeyboardInterrupt
    codes = [code for unit in ran for _, code, _ in unit.steps]
    for code in codes:
        codes += nested(code)
    armed.append((thread, tool, codes))
    for event in EVENTS:
        monitoring.register_callback(tool, event, hear)
    for code in codes:
        monitoring.set_local_events(tool, code, sum(EVENTS))


def take_tool():
    for tool in TOOLS:
        try:
            monitoring.use_tool_id(tool, "probefs")
        except ValueError:
            continue
        return tool


def calm(thread):
    """What strike() made is undone: that evaluation has ended."""
    struck.discard(thread)
    for each in armed.copy():
        if each[0] == thread:
            armed.remove(each)
            give_back(*each[1:])


def give_back(tool, codes):
    for code in codes:
        monitoring.set_local_events(tool, code, 0)
    for event in EVENTS:
        monitoring.register_callback(tool, event, None)
    monitoring.free_tool_id(tool)
