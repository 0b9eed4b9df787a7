"""agent/evaluate by itself: which names code sees, and that a program is left as it was."""
import errno

import pytest

from evaluator import IN_FRAME, ON_THREAD, evaluator  # noqa: F401, a fixture

pytestmark = pytest.mark.python(minimum=(3, 10))


def test_names(evaluator):
    """__main__ first, then the main thread's frames, innermost first, then builtins; assignments go
    to __main__."""
    output = evaluator.output
    assert output("loss, model, x, width, items") == "(0.25, <Model>, 42, 640, [1, 2, 3])\n"
    assert output("print(loss)") == "0.25\n"
    assert output("[loss * i for i in items]") == "[0.25, 0.5, 0.75]\n"
    assert output("[[loss for _ in items] for i in (lambda: items)()][0]") == "[0.25, 0.25, 0.25]\n"
    assert output("sum(loss for _ in items)") == "0.75\n"
    assert output("def f(a, b=loss):\n    return a + b + loss\n"
                  "f(1), f.__qualname__, f.__globals__ is globals()") == "(1.5, 'f', True)\n"
    assert output("class C:\n    y = loss\n    def m(self): return model, self.y\n\n"
                  "C().m(), C.m.__qualname__, C.__qualname__") == "((<Model>, 0.25), 'C.m', 'C')\n"
    assert output("(lambda: loss).__qualname__, (lambda: (lambda: loss))().__qualname__") == \
        "('<lambda>', '<lambda>.<locals>.<lambda>')\n"
    assert output("for i in items:\n    loss * i\n    [loss for _ in items]\n") == \
        "0.25\n[0.25, 0.25, 0.25]\n0.5\n[0.25, 0.25, 0.25]\n0.75\n[0.25, 0.25, 0.25]\n"
    assert output("if loss:\n    note: float = [loss for _ in (1,)][0]\nnote") == "0.25\n"
    assert output("loss += 1\nloss, globals()['loss']") == "(1.25, 1.25)\n"
    assert output("(lambda: loss)()") == "1.25\n"
    assert output("del loss\nloss") == "0.25\n"
    assert output("width = [width for _ in (1, 2)]\nglobals()['width']") == "[640, 640]\n"
    assert output("for x in range(2):\n    (lambda: x)()\nglobals()['x']; del x\nx") == "0\n1\n1\n42\n"
    assert output("[last := loss + i for i in items]\nlast, globals()['last']") == \
        "[1.25, 2.25, 3.25]\n(3.25, 3.25)\n"
    assert output("try:\n    raise KeyError\nexcept KeyError as model:\n    [model for _ in items]\n"
                  "model") == \
        "[KeyError(), KeyError(), KeyError()]\n<Model>\n"
    assert evaluator.eval("del items").words == "NameError: name 'items' is not defined"
    assert evaluator.eval("nothing").words == "NameError: name 'nothing' is not defined"
    assert evaluator.eval("global loss\nloss = 1\nglobals()['loss']").output == "1\n"
    assert output("if items:\n    from math import *\n    len(items)\npi") == "3\n3.141592653589793\n"
    # the program's own variables are as they were
    gate = evaluator.program("""
        import time
        server.gate.release()
        while not hasattr(server, 'returned'):
            time.sleep(0.001)
        answer = repr(server.returned)""")
    assert gate == "(0.25, <Model>, (([1, 2, 3], ('free', 42)), 640))"


def test_names_in_a_frame(python, evaluator):
    def output(text, depth=0):
        return evaluator.output(text, flags=IN_FRAME, depth=depth)
    assert output("x, items, free, counter, len(items)") == "(42, [1, 2, 3], 'free', 7, 3)\n"
    assert output("loss", 2) == "0.25\n"
    assert output("width", 1) == "640\n"
    assert evaluator.eval("loss", flags=IN_FRAME).words == "NameError: name 'loss' is not defined"
    assert output("sorted(locals())") == output("dir()") == "['free', 'items', 'reader', 'x']\n"
    assert output("sorted(vars().items())[1], locals()['x'], locals().get('no')") == \
        "(('items', [1, 2, 3]), 42, None)\n"
    assert output("dict(**locals())['x'], eval('x'), len(locals()), 'x' in locals()") == \
        "(42, 42, 4, True)\n"
    assert output("[x + i + counter for i in items], (lambda: reader())()") == \
        "([50, 51, 52], ('free', 42))\n"
    assert output("x = 5\nx += 1\nx, reader()") == "(6, ('free', 6))\n"
    assert output("items = [x for _ in items]\nitems") == "[6, 6, 6]\n"
    assert output("def f():\n    return x + counter\n\nf(), f.__globals__ is globals()") == \
        "(13, True)\n"
    assert output("new = 1\nnew, globals()['new'], 'new' in locals()") == "(1, 1, False)\n"
    assert output("counter = 8\nif 1:\n    global x\n    x = 9\nglobals()['x'], x") == "(9, 6)\n"
    assert output("try:\n    1/0\nexcept ZeroDivisionError as free:\n    'caught'\nfree") == \
        "'caught'\n"
    assert evaluator.eval("del x", flags=IN_FRAME).words == "NameError: name 'x' is not defined"
    assert output("loss = 0.5; model = [loss for _ in (1, 2)]", 2) == ""
    assert output("width, counter = 1, counter + 1", 1) == ""
    assert output("globals() is locals(), counter, 'module' if leaf else 0", 3) == \
        "(True, 9, 'module')\n"
    assert output("counter += 1", 3) == ""
    reply = evaluator.eval("1", flags=IN_FRAME, depth=4)
    assert (reply.error, reply.words) == (errno.ENOENT, "no frame 4: the thread has 4 now")
    assert evaluator.eval("1", flags=IN_FRAME, thread=1).error == errno.ESRCH
    assert evaluator.program("""
        import time
        server.gate.release()
        while not hasattr(server, 'returned'):
            time.sleep(0.001)
        answer = repr(server.returned)""") == \
        "(0.5, [0.5, 0.5], (([6, 6, 6], (None, 6)), 1))"
    assert evaluator.program("answer = sys.modules['__main__'].counter") == 10


ANOTHER_THREAD = """
place = both = only = "global"

def outer(outside, both):
    def inside(place):
        mine = 1
        ready.release()
        gate.acquire()
        answers.append((mine, place))
    inside("inside")
"""


def test_names_on_a_thread(evaluator):
    """Its innermost frame, that one's globals, the frames further out, then builtins; assignments go
    to the frame's variables and its globals."""
    evaluator.program(f"""
        sys.gate2, sys.answers, ready = threading.Lock(), [], threading.Lock()
        sys.gate2.acquire(), ready.acquire()
        space = {{'__name__': 'module', 'gate': sys.gate2, 'ready': ready, 'answers': sys.answers}}
        exec({ANOTHER_THREAD!r}, space)
        sys.other = threading.Thread(target=space['outer'], args=('outside', 'outer'))
        sys.other.start()
        ready.acquire()
    """)
    ident = evaluator.program("answer = sys.other.ident")

    def output(text, flags=ON_THREAD, **options):
        return evaluator.output(text, flags=flags, thread=ident, **options)
    assert output("mine, place, outside, only, both") == \
        "(1, 'inside', 'outside', 'global', 'global')\n"
    assert output("outside, both, place", depth=1) == "('outside', 'outer', 'global')\n"
    assert output("[(mine, outside, both, only) for _ in (1,)]") == \
        "[(1, 'outside', 'global', 'global')]\n"
    assert output("mine = 2; outside = 3; outside, globals()['outside'], __name__") == \
        "(3, 3, 'module')\n"
    assert output("place = [outside for _ in (1,)]") == ""
    assert evaluator.eval("outside", flags=IN_FRAME, thread=ident).output == "3\n"
    assert evaluator.program(
        "sys.gate2.release(); sys.other.join(); answer = sys.answers") == [[2, [3]]]


def test_leaves_no_references(evaluator):
    """A program's objects die when they would have died, frames included."""
    assert evaluator.program("""
        import gc, weakref
        gc.disable()

        class Thing:
            pass

        def fail(thing):
            raise ValueError(thing)

        def hold(go, went, done):
            label, thing = 'held', Thing()
            go.acquire()
            went.append(weakref.ref(thing))
            thing = label = None
            done.release()
            go.acquire()

        def waits(frame):
            line = hold.__code__.co_firstlineno + 2
            return frame.f_code is hold.__code__ and frame.f_lineno == line

        answer = []
        for text in [
                'thing', 'thing.x = 1', '[thing for _ in (1,)]', 'thing.none', 'hold', 'dir()',
                'locals()', 'fail(thing)', 'label = thing', '(lambda: 1/0)() if thing else 0', 'label',
                'print(thing)', 'import asyncio\\nawait asyncio.sleep(0, thing)',
                'await asyncio.sleep(0, fail(thing))', 'del thing', 'x = = 1', 'label = 5',
                'try:\\n  fail(thing)\\nexcept ValueError as e:\\n  raise KeyError(thing) from e',
                'for _ in (1,):\\n  thing\\n  (lambda: thing)()']:
            for flags in 2, 4:
                go, done, went = threading.Lock(), threading.Lock(), []
                go.acquire(), done.acquire()
                main = sys.modules['__main__'].__dict__
                main['fail'] = globals()['fail'] = fail
                thread = threading.Thread(target=hold, args=(go, went, done), daemon=True)
                thread.start()
                while not waits(sys._current_frames()[thread.ident]):
                    pass
                evaluate(text, thread=thread.ident, flags=flags)
                if text == 'label = thing':
                    if sys.version_info >= (3, 14):
                        continue  # the frame keeps what was overwritten from outside until its end
                    evaluate('label = None', thread=thread.ident, flags=flags)
                go.release()
                done.acquire()
                if went[0]() is not None:
                    answer.append([text, flags])
    """) == []


def test_makes_no_garbage(evaluator):
    """What an evaluation leaves needs no garbage collector, which a program may have turned off."""
    assert evaluator.program(r"""
        import gc
        answer = []
        for text in ['loss', '[loss for _ in (1,)]', '1/0', 'x = = 1', '(', 'for i in range(2): i',
                     'print(1)', 'import asyncio\nawait asyncio.sleep(0)', 'def f(): return loss',
                     'await asyncio.sleep(0, 1/0)', 'raise ValueError from KeyError()',
                     'def f(): return 1']:
            evaluate(text)
            gc.collect()
            gc.disable()
            evaluate(text)
            count = gc.collect()
            gc.enable()
            if count:
                answer.append([text, count])
    """) == []


def test_tracing_and_locals_of_the_program(evaluator):
    """Looking into a frame while a trace or profile function looks at it too, or whose locals()
    somebody keeps, changes nothing there."""
    assert evaluator.program("""
        def work():
            first, second = 'one', 'two'
            kept = locals()
            third = first + second
            call(third)
            return first, second, third, kept['first']

        def call(value):
            return value

        def trace(frame, event, arg):
            if frame.f_code is work.__code__:
                look(frame, event)
            return trace

        def look(frame, event):
            depth, each = 0, sys._getframe()
            while each is not frame:
                depth, each = depth + 1, each.f_back
            go.append(depth)
            while go:
                pass
            seen.append([event, said.pop()])

        def evaluator():
            while not stop:
                if go:
                    texts = '(first, [second for _ in (1,)])', 'dir()', 'second = second'
                    said.append([evaluate(text, thread=ident, depth=go[0], flags=4)[2].decode()
                                 for text in texts])
                    go.pop()

        def traced(install):
            seen.clear()
            install(trace)
            try:
                result = work()
            finally:
                install(None)
            return [list(result), sorted({event for event, _ in seen}),
                    any(each[0] == "('one', ['two'])\\n" for _, each in seen)]

        go, said, seen, stop, ident = [], [], [], [], threading.get_ident()
        thread = threading.Thread(target=evaluator)
        thread.start()
        answer = [traced(sys.settrace), traced(sys.setprofile)]
        stop.append(1)
        thread.join()
    """) == [[["one", "two", "onetwo", "one"], events, True] for events in (
        ["call", "line", "return"], ["c_call", "c_return", "call", "return"])]


def test_odd_programs(evaluator):
    """Programs that have changed what everybody relies on."""
    assert evaluator.program("""
        import builtins
        main = sys.modules.pop('__main__')
        answer = [evaluate('a = 5'), evaluate('a, __name__'), evaluate('loss')]
        sys.modules['__main__'] = 5
        answer.append(evaluate('a'))
        sys.modules['__main__'] = main
        answer.append(evaluate('"a" in globals()'))
        show, builtins.print = builtins.print, None
        answer.append(evaluate('import sys; sys.stdout.write("x"); 5'))
        builtins.print = show
        builtins._ = 'translate'
        answer.append(evaluate('7'))
        answer.append(builtins._)
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(60)
        answer.append(evaluate('1/0')[4])
        sys.setrecursionlimit(limit)
        answer = [each[2].decode() if type(each) is tuple else each for each in answer]
    """) == ["", "(5, '__main__')\n", "0.25\n", "5\n", "False\n", "x1\n5\n", "7\n", "translate",
             "ZeroDivisionError: division by zero"]
    assert evaluator.program("""
        class Evil:
            __class__ = property(lambda self: 1/0)
            def __getattr__(self, name): raise RuntimeError(name)
            def __eq__(self, other): raise RuntimeError('eq')
            def __bool__(self): raise RuntimeError('bool')
            __hash__ = None
        main = sys.modules['__main__']
        main.evil = Evil()
        text = 'type(evil).__name__\\nfor _ in (1,):\\n  x = evil\\n[evil][0].no'
        answer = evaluate(text)[2].decode()
    """).startswith("'Evil'\nTraceback (most recent call last):\n")


def test_subinterpreters(evaluator):
    """Each interpreter has its own of everything."""
    assert evaluator.program("""
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            import _interpreters as interpreters
        import os
        end, other = os.pipe()
        source = f'''
        import sys, types, os, threading, _thread
        probe = types.ModuleType('_probe')
        import _contextvars
        probe.Context, probe.ContextVar = _contextvars.Context, _contextvars.ContextVar
        probe.main_thread = _thread.get_ident()
        probe.stream_source = [{server.stream_source!r}]
        probe.frames_are_safe = lambda: False
        space = dict(_probe=probe)
        for source in {server.sources!r}:
            exec(compile(source, '<probefs evaluate>', 'exec'), space)
        mine = 'sub'
        said = space['evaluate'](b'print(mine); mine', True, 0, 0, 0, 100)
        said += space['evaluate'](b'1/0', True, 0, 0, 0, 1000)
        space['restore']()
        os.write({other}, repr((said[0], said[2], said[5], said[9])).encode())
        '''.replace('\\n        ', '\\n')
        ident = interpreters.create()
        failed = interpreters.run_string(ident, source)
        answer = repr(failed) if failed else os.read(end, 10000).decode()
        interpreters.destroy(ident)
        answer = [answer, evaluate('counter')[2].decode()]
    """.replace("\n        ", "\n")) == [
        "(0, b\"sub\\n'sub'\\n\", 5, 'ZeroDivisionError: division by zero')", "7\n"]
