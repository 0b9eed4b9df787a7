"""A program whose functions fail, debugged as IPDB_DEBUG and IPDB_MODE, or its arguments, say.

WAY [MODE]: decorated, context, handled, uncaught, coroutine or breakpoint; with MODE it asks for that itself."""
import asyncio
import sys

import probing
from probing import Debugger

if len(sys.argv) > 2:
    Debugger.debug_flag = True
    Debugger.debug_mode = sys.argv[2]


def divide(number):
    secret = number * 7
    return 1 / (secret - 42)


@Debugger.attach_on_error()
def decorated():
    return divide(6)


@probing.attach_on_error()
async def coroutine():
    await asyncio.sleep(0)
    return divide(6)


def handled():
    try:
        divide(6)
    except ZeroDivisionError:
        Debugger.blocking_console_post_mortem(rank=0)
        raise


def run(way):
    if way == "context":
        with probing.attach_on_error():
            decorated()  # which has been looked at already, when it comes here
    elif way == "coroutine":
        asyncio.run(coroutine())
    elif way == "breakpoint":
        here = 5
        probing.breakpoint(ranks=[1, 2])
        probing.breakpoint(ranks=0)
        here += 1
        print("went on", here, flush=True)
    else:
        {"decorated": decorated, "handled": handled}[way]()


print("ready", flush=True)
sys.stdin.readline()
if sys.argv[1] == "uncaught":
    divide(6)
try:
    run(sys.argv[1])
except ZeroDivisionError:
    print("raised", flush=True)
sys.stdin.readline()
