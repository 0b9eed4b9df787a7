"""agent/evaluate by itself: where output goes, how much of it, coroutines, interrupts."""
import errno
import os
import pathlib
import resource

import pytest

from evaluator import ON_THREAD, evaluator  # noqa: F401, a fixture

pytestmark = pytest.mark.python(minimum=(3, 10))


def test_output_is_this_codes_alone(evaluator):
    """Others print meanwhile, to the program's own stream; threads that the code starts too."""
    evaluator.output("import sys, threading, time")
    evaluator.program("""
        import time
        sys.stop = False
        def chatter():
            while not sys.stop:
                print('program', flush=True)
                sys.stderr.write('error\\n')
        sys.chatter = threading.Thread(target=chatter)
        sys.chatter.start()
        while not sys.stdout.getvalue():
            time.sleep(0.001)
    """)
    output = evaluator.output("""
def talk():
    print('mine')
    sys.stderr.write('mine err\\n')
    sys.stdout.buffer.write(b'mine raw\\n')
    sys.stdout.writelines(['mine ', 'lines\\n'])
for _ in range(50):
    talk()
    time.sleep(0.001)
t = threading.Thread(target=print, args=('started',)); t.start(); t.join()
isinstance(sys.stdout, type(sys.__stdout__)), sys.stdout.isatty(), sys.stdout.encoding
""")
    evaluator.program("sys.stop = True; sys.chatter.join()")
    assert output.splitlines() == ["mine", "mine err", "mine raw", "mine lines"] * 50 + [
        "(False, False, 'utf-8')"]
    out, err = evaluator.printed()
    assert out.count("started") == 1  # perhaps in the midst of another's line
    assert set(out.replace("started", "").splitlines()) <= {"program", ""}
    assert set(err.splitlines()) == {"error"}


def test_streams_of_the_program(evaluator):
    """Whatever stands in sys.stdout stays, is what it was to others, and is put back."""
    assert evaluator.program("""
        import contextlib, io
        own = sys.stdout
        answer = [evaluate('print(1)')[2].decode(), sys.stdout is own, own.getvalue()]
        seen = []
        def during():
            stream = sys.stdout
            seen.append((isinstance(stream, type(own)), stream.getvalue(), stream == own,
                         hash(stream) == hash(own), repr(stream) == repr(own), list(stream)))
            stream.note = 'noted'
            seen.append(own.note)
            del stream.note
            sys.kept = stream
        sys.during = during
        evaluate('import sys, threading\\nt = threading.Thread(target=sys.during)\\n'
                 't.start(); t.join()')
        answer.append(seen)
        print('later', file=sys.kept)  # a stream kept for longer
        answer.append(own.getvalue())
        sys.stdout = sys.kept
        answer.append(evaluate('print(2)')[2].decode())
        answer.append(sys.stdout is own)
        own.truncate(0); own.seek(0)
        sys.stdout = None
        answer.append(evaluate('print(3)')[2].decode())
        answer.append(sys.stdout is None)
        del sys.stdout
        answer.append(evaluate('print(4)')[2].decode())
        answer.append(hasattr(sys, 'stdout'))
        sys.stdout = own
        evaluate('sys.stdout = sys.other = open("/dev/null", "w")')  # on purpose: stays
        answer.append(sys.stdout is sys.other)
        sys.stdout = own
        answer.append(evaluate('import contextlib, io\\n'
                               'with contextlib.redirect_stdout(io.StringIO()) as s:\\n  print(5)\\n'
                               's.getvalue()\\nprint(6)')[2].decode())
        sys.stdout = own
        answer.append(own.getvalue())
    """) == ["1\n", True, "", [[True, "", True, True, True, []], "noted"], "later\n", "2\n", True,
             "3\n", True, "4\n", False, True, "'5\\n'\n6\n", ""]


def test_no_input(evaluator):
    """Code that asks for input is told that there is none, and doesn't wait for ever."""
    assert evaluator.eval("input('? ')").words == "EOFError: EOF when reading a line"
    assert evaluator.output("import sys\nsys.stdin.read(), list(sys.stdin), sys.stdin.isatty()") == \
        "('', [], False)\n"
    assert evaluator.eval("sys.stdout.fileno()").words == "io.UnsupportedOperation: fileno"
    assert evaluator.program("answer = sys.stdin.fileno()") == 0


def test_limits(evaluator):
    """What is beyond the limit is dropped, and not made in the first place."""
    reply = evaluator.eval("print('ä' * 100)", limit=101)
    assert (reply.error, reply.cut, reply.output) == (0, True, "ä" * 50)
    reply = evaluator.eval("print('a' * 100)\nprint('b')", limit=101)
    assert (reply.cut, reply.output) == (True, "a" * 100 + "\n")
    reply = evaluator.eval("for i in range(100): print('a' * 100)\n1/0", limit=1000)
    assert (reply.error, reply.cut, len(reply.output)) == (errno.EIO, True, 1000)
    assert reply.output.startswith("a" * 100 + "\na")
    assert reply.output.endswith("\nZeroDivisionError: division by zero\n")
    statm = pathlib.Path(f"/proc/{evaluator.target.pid}/statm").read_text()
    limit = int(statm.split()[0]) * resource.getpagesize() + (300 << 20)
    evaluator.program(f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))")
    evaluator.output("big = 'x' * 10**6\nmany = [big] * 10**6\n"
                     "huge = {'a': [(many, {i: many for i in range(9)})]}")
    for text, start in [("many", "['xxxx"), ("huge", "{'a': [(['xxxx"), ("tuple(many)", "('xxxx"),
                        ("'y' * 10**8", "'yyyy"), ("b'z' * 10**8", "b'zzzz")]:
        reply = evaluator.eval(text, limit=1 << 20)
        assert (reply.error, reply.cut, len(reply.output)) == (0, True, 1 << 20), text
        assert reply.output.startswith(start)
    assert evaluator.eval("x = bytes(10**9)").words == "MemoryError"
    assert evaluator.output("1 + 1") == "2\n"


@pytest.mark.long
def test_long_values_are_whole(evaluator):
    """Values shown piece by piece look as repr() makes them."""
    assert evaluator.program("""
        class Odd(list):
            def __repr__(self): return 'odd'
        loop = []
        loop.append([loop, {1: loop}])
        deep = {'a': (), 'b': set(), 'c': frozenset(), 'd': {}, 'e': [], 'f': (1,), 'g': {2},
                'h': frozenset([3]), 'i': b'\\0', 'j': bytearray(b'x'), 'k': Odd(), 'l': "it's",
                'm': loop, 'n': {(1, 2): [None]}}
        sys.values = [[deep] * 5000, ('x' * 100000,), [loop] * 10000, [list(range(50000))],
                      dict.fromkeys(range(50000)), frozenset(range(50000)), 'y' * 100000,
                      set(range(70000)), bytearray(70000)]
        sys.modules['__main__'].sys = sys
        answer = [evaluate(f'sys.values[{n}]', limit=1 << 26)[2].decode() == repr(value) + '\\n'
                  for n, value in enumerate(sys.values)]
    """) == [True] * 9


def test_close(evaluator):
    """After close() nothing refers to the agent any more, whatever of ours is kept."""
    assert evaluator.program("""
        import weakref
        agent2 = load()
        agent2['install']()
        kept = sys.stdout
        agent2['current'].set(None)
        watch = weakref.ref(agent2['_probe'])
        agent2['close']()
        print('kept', file=kept)
        answer = [watch() is None, type(sys.stdout).__name__, sys.stdout.getvalue()]
    """) == [True, "Recorder", "kept\n"]

LOOP = """
    import asyncio, time
    sys.ticks = 0
    async def run():
        global sys
        inner = 'inner'
        while not sys.stop:
            sys.ticks += 1
            await asyncio.sleep(0.001)
        return len(asyncio.all_tasks()), inner
    def serve():
        outside = 'outside'
        sys.result = asyncio.run(run())
    sys.stop = False
    sys.thread = threading.Thread(target=serve)
    sys.thread.start()
    while not sys.ticks:
        time.sleep(0.001)
    answer = sys.thread.ident
"""


def test_await_on_the_running_loop(evaluator):
    ident = evaluator.program(LOOP)

    def output(text, **options):
        return evaluator.output(text, thread=ident, flags=ON_THREAD, **options)
    evaluator.output("import sys, asyncio, threading, contextlib")
    output("import sys, asyncio, threading, contextlib")
    assert output("await asyncio.sleep(0.01, 'slept')") == "'slept'\n"
    assert output("async def where():\n    print('in', threading.get_ident())\n    await asyncio.sleep(0)\n"
                  "    return threading.get_ident()\n\nawait where()") == f"in {ident}\n{ident}\n"
    assert output("x = await asyncio.sleep(0, outside)\n"
                  "[x, [await asyncio.sleep(0, (outside, i)) for i in (1,)]]") \
        == "['outside', [('outside', 1)]]\n"
    assert output("async def many():\n    for i in range(3): yield i\n"
                  "async for i in many():\n    i\n") == "0\n1\n2\n"
    assert output("[i async for i in many()], "
                  "await asyncio.gather(*(asyncio.sleep(0, outside) for _ in 'ab'))") \
        == "([0, 1, 2], ['outside', 'outside'])\n"
    assert output("@contextlib.asynccontextmanager\nasync def context():\n    yield 'entered'\n\n"
                  "async with context() as c:\n    c\n") == "'entered'\n"
    for raised in ("1/0", "sys.exit(3)", "raise KeyboardInterrupt",
                   "raise asyncio.CancelledError('no')"):
        reply = evaluator.eval(f"async def bad():\n    {raised}\n\nawait bad()", thread=ident,
                               flags=ON_THREAD)
        assert reply.error == errno.EIO
        assert reply.output.startswith(
            'Traceback (most recent call last):\n  File "<probe>", line 4, in <module>\n'
            '    await bad()\n  File "<probe>", line 2, in bad\n')
        assert "guard" not in reply.output
    assert evaluator.printed() == ["", ""]
    assert evaluator.program("sys.stop = True; sys.thread.join(); answer = sys.result") == [1, "inner"]


def test_await_without_a_loop(evaluator):
    """The loop is our own, and nothing of it is left."""
    def descriptors():
        return sorted(os.listdir(f"/proc/{evaluator.target.pid}/fd"))
    before = descriptors()
    assert evaluator.output("import asyncio, threading\nawait asyncio.sleep(0.01, loss)\n"
                            "t = asyncio.create_task(asyncio.sleep(100)) if 0 else None\n"
                            "async def left():\n    asyncio.ensure_future(asyncio.sleep(100))\n"
                            "    return 'left'\n\n"
                            "await left()") == "0.25\n'left'\n"
    assert evaluator.eval("async def bad():\n    raise SystemExit\n\nawait bad()").words == "SystemExit"
    assert descriptors() == before
    assert evaluator.printed() == ["", ""]

INTERRUPT = """
    import ctypes, time
    def interrupt(ready):
        while not ready():
            time.sleep(0.001)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(ident), ctypes.py_object(KeyboardInterrupt))
    ident = threading.get_ident()
    def interrupted(text, ready, **options):
        thread = threading.Thread(target=interrupt, args=(ready,))
        thread.start()
        begun = time.monotonic()
        error, done, output, cut, words = evaluate(text, **options)
        thread.join()
        return error, words, output.decode().splitlines()[-1:]
    main = sys.modules['__main__'].__dict__
    main['sys'] = sys
"""


def test_interrupts(evaluator):
    evaluator.program(LOOP)
    assert evaluator.program(INTERRUPT + """
    answer = []
    sys.begun = False
    answer.append(interrupted('sys.begun = True\\nwhile True: pass', lambda: sys.begun))
    sys.begun = False
    text = 'import asyncio\\nasync def wait():\\n  sys.begun = True\\n  await asyncio.sleep(100)\\n\\n' \\
           'await wait()'
    answer.append(interrupted(text, lambda: sys.begun))
    sys.begun = False
    answer.append(interrupted(text, lambda: sys.begun, thread=sys.thread.ident, flags=2))
    # a loop that is blocked never gets to begin it, also not later
    sys.begun = sys.later = False
    async def block():
        sys.begun = True
        unblocked.wait()
    unblocked = threading.Event()
    import asyncio
    frame = sys._current_frames()[sys.thread.ident]
    while 'run_forever' not in frame.f_code.co_name:
        frame = frame.f_back
    loop = frame.f_locals['self']
    del frame
    future = asyncio.run_coroutine_threadsafe(block(), loop)
    while not sys.begun:
        pass
    answer.append(interrupted('async def late(): sys.later = True\\n\\nawait late()',
                              lambda: sys._current_frames()[ident].f_code.co_name == 'run_on',
                              thread=sys.thread.ident, flags=2))
    unblocked.set()
    future.result()
    answer.append(sys.later)
    sys.stop = True
    sys.thread.join()
    answer.append(sys.result[0])
    """) == [[errno.EIO, "KeyboardInterrupt", ["KeyboardInterrupt"]]] * 4 + [False, 1]
    assert evaluator.printed() == ["", ""]


def test_interrupted_anywhere(evaluator):
    """At whatever step the interrupt comes, the streams are put back and the next evaluation works."""
    assert evaluator.program("""
        import ctypes, random, time
        random.seed(3)
        sys.setswitchinterval(1e-5)
        text = b'for i in range(400):\\n  [i, loss, [loss for _ in (1,)]]\\n  print(i)\\n1/0'
        own, answer, ended = sys.stdout, [], []
        main = threading.main_thread().ident

        def run():
            try:
                ended.append(agent['evaluate'](text, True, main, 0, 0, 10000)[4])
            except KeyboardInterrupt:
                ended.append('raised')

        for _ in range(200):
            thread = threading.Thread(target=run)
            thread.start()
            time.sleep(random.random() * 0.01)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))
            thread.join()
            agent['restore']()
            if sys.stdout is not own or evaluate('[loss for _ in (1,)]')[2] != b'[0.25]\\n':
                answer.append(repr(sys.stdout))
        if 'KeyboardInterrupt' not in ended:
            answer.append(repr(set(ended)))
    """) == []
