"""agent/evaluate by itself, in every interpreter that the agent supports: what is run when, what is
shown, which names are seen, where output goes. Python's own prompt, compiler and ast are the oracle."""
import errno
import json
import os
import pathlib
import resource
import shutil
import subprocess
import textwrap
from collections import namedtuple

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "agent" / "evaluate"
SOURCES = [FOLDER / f"{name}.py" for name in ("stream", "output", "names", "units", "values", "coroutines",
                                               "statements", "errors", "evaluate")]
ON_THREAD, IN_FRAME = 2, 4

pytestmark = pytest.mark.python(minimum=(3, 10))

Reply = namedtuple("Reply", "error consumed output cut words")


class Evaluator:
    """A victim that evaluates without an agent."""

    def __init__(self, python):
        copies = []
        for source in SOURCES:
            shutil.copy(source, python.directory)
            copies.append(python.path(source.name))
        self.target = python.run("evaluator.py", *copies)

    def ask(self, request):
        self.target.send(json.dumps(request))
        line = self.target.readline()
        assert line, self.target.stderr()
        said = json.loads(line)
        assert "problem" not in said, said["problem"]
        return said["answer"]

    def eval(self, text, **options):
        return Reply(*self.ask(dict(text=text, **options)))

    def output(self, text, **options):
        """Of what must succeed."""
        reply = self.eval(text, **options)
        assert (reply.error, reply.words) == (0, ""), reply
        assert not reply.cut and (reply.consumed == len(text.encode()) or not options.get("last", 1))
        return reply.output

    def program(self, source):
        """Does something as the program itself; what it left in `answer`."""
        return self.ask({"program": textwrap.dedent(source)})

    def printed(self):
        """What the program itself has printed."""
        return self.program("""
            answer = [sys.stdout.getvalue(), sys.stderr.getvalue()]
            for stream in sys.stdout, sys.stderr:
                stream.seek(0)
                stream.truncate()
        """)


@pytest.fixture
def evaluator(python):
    return Evaluator(python)


PROMPT = '''\
1 + 1
None
'text', b'bytes', 1.5
x = 3
x; x + 1
for i in range(3): i

if x:
    'then'
    for c in 'ab':
        c
        None
else:
    'no'

while x:
    x
    x -= 1
else:
    'done'

try:
    1/0
except ZeroDivisionError as e:
    type(e)
finally:
    'finally'

with open('/dev/null') as f:
    f.name

def f():
    'not shown'
    return 5

f()
f.__qualname__, f.__module__, f.__globals__ is globals()
class C:
    'not shown'
    def m(self): return [y for y in range(3)]

C.m.__qualname__, C().m(), C.__module__
match x:
    case 0:
        'zero'

(y := 5)
[y for y in range(3)], y
import math
math.floor(2.5)
print('to stdout')
lambda: 0
(lambda: 0).__qualname__
@staticmethod
def g(): pass

x: int = 4
x
del x
'x' in globals()
locals() is globals()
async def co():
    return 1

co.__name__
def counter():
    n = 0
    def add():
        nonlocal n
        n += 1
        return n
    return add

add = counter()
add(), add()
def setter():
    global made
    made = 'global'

setter(); made
from math import *
pi
"""a
b"""
(1,
 2)
{i: j for i, j in zip('ab', (1, 2))}
'\\u00e4', 'ä', '\\ud800'
type(sys) if 'sys' in globals() else 'no sys'
'''
ADDRESS = " at 0x"


def without_addresses(text):
    return "\n".join(line.split(ADDRESS)[0] for line in text.split("\n"))


def test_like_the_prompt(python, evaluator):
    """Each construct shows what `python -i` shows, to the letter."""
    said = subprocess.run(python.command("-i", "-q", "-I", "-X", "utf8"), input=PROMPT.encode(),
                          capture_output=True, timeout=60).stdout.decode()
    evaluator.program("""
        main = sys.modules['__main__'].__dict__
        for name in [name for name in main if not name.startswith('__')]:
            del main[name]
    """)
    assert without_addresses(evaluator.output(PROMPT)) == without_addresses(said)


@pytest.mark.python(minimum=(3, 12))
def test_like_the_prompt_newer(evaluator):
    assert evaluator.output("type X = list[loss]\nX.__value__\n"
                            "def f[T](a: T) -> T: return a\n\nf(1)\nclass G[T]: pass\nG[int]") == \
        "list[0.25]\n1\n__main__.G[int]\n"


@pytest.mark.python(minimum=(3, 11))
def test_exception_groups(evaluator):
    reply = evaluator.eval("try:\n    raise ExceptionGroup('g', [ValueError(1)])\n"
                           "except* ValueError as e:\n    'caught'\n    e.exceptions\n"
                           "raise ExceptionGroup('all', [ValueError('one'), KeyError('two')])")
    assert reply.output.startswith("'caught'\n(ValueError(1),)\n  + Exception Group Traceback")
    assert "|   File \"<probe>\", line 1, in <module>\n  |     raise ExceptionGroup" in reply.output
    assert "own" not in reply.output and "probefs" not in reply.output
    assert reply.words == "ExceptionGroup: all (2 sub-exceptions)"


MISTAKES = [
    "x = = 1", "foo bar", "else: y", "def f(:", "if x", "'abc", "(1, 2", "x = {\n  'a' 1\n}", "return 5",
    "def f():\n  yield\n  nonlocal y\n", "for x in y:\n  a\nexcept: b", "  x = 1", "if x:\n    a\n  b",
    "if x:", "try:\n  x\n", "try:\n  x\nb", "@dec", "x = '''abc\n\n", "break", "f(**kw, *a)", "$", "0_",
    "print 1", "global x; x = 1; def", "import a.", "class A\n", "x = 1 \\", "foo(]", "f(a for a in b, c)",
    "(yield)", "f'{'", "None = 1", "é = 'ü", "async with x: pass\nelse: y", "def f(x, x): pass",
]


def test_mistakes(evaluator):
    """Syntax errors are shown as Python shows them, whether the text comes at once or in lines."""
    for text in MISTAKES:
        lines = text.splitlines(True)
        expected = evaluator.program(f"""
            import traceback
            answer = None
            for end in range(1, {len(lines)} + 1):  # the first part that can't be mended
                text = ''.join({lines!r}[:end])
                if evaluate(text, end == {len(lines)})[0]:
                    try:
                        compile(text, '<probe>', 'exec', 0x2000)
                    except SyntaxError as error:
                        if error.text is None:
                            error.text = text.splitlines(True)[error.lineno - 1]
                        answer = ''.join(traceback.format_exception_only(type(error), error))
                    break
        """)
        reply = evaluator.eval(text)
        assert reply.error == errno.EINVAL and reply.output == expected, text
        assert reply.words and reply.words in expected, text
    assert evaluator.printed() == ["", ""]


def test_nothing_runs_after_a_failure(evaluator):
    reply = evaluator.eval("a = 1\na\nb = = 2\nc = 3\n")
    assert reply.output.startswith("1\n  File \"<probe>\", line 1\n    b = = 2\n")
    assert (reply.error, reply.consumed) == (errno.EINVAL, len("a = 1\na\nb = = 2\n"))
    reply = evaluator.eval("d = 1\n1/0\ne = 1\n")
    assert (reply.error, reply.consumed) == (errno.EIO, len("d = 1\n1/0\n"))
    assert evaluator.output("[name in globals() for name in 'abcde']") == \
        "[True, False, False, True, False]\n"
    reply = evaluator.eval("f = 1; return\n")  # a line is compiled before it runs
    assert reply.error == errno.EINVAL and evaluator.output("'f' in globals()") == "False\n"


def test_tracebacks(evaluator):
    evaluator.output("def divide(n):\n    return 1 / n\n")
    reply = evaluator.eval("# before\n\nfor n in 1, 0:\n    divide(n)\n")
    assert reply == (errno.EIO, len("# before\n\nfor n in 1, 0:\n    divide(n)\n"),
                     '1.0\nTraceback (most recent call last):\n'
                     '  File "<probe>", line 2, in <module>\n    divide(n)\n'
                     '  File "<probe>", line 2, in divide\n'
                     'ZeroDivisionError: division by zero\n',
                     False, "ZeroDivisionError: division by zero")
    reply = evaluator.eval("def f():\n    raise KeyError('k')\ntry:\n    f()\nexcept KeyError as e:\n"
                           "    raise ValueError('v\\nw') from e")
    assert reply.words == "ValueError: v"
    assert reply.output == (
        'Traceback (most recent call last):\n'
        '  File "<probe>", line 2, in <module>\n    f()\n'
        '  File "<probe>", line 2, in f\n'
        "KeyError: 'k'\n\nThe above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n'
        '  File "<probe>", line 4, in <module>\n    raise ValueError(\'v\\nw\') from e\n'
        'ValueError: v\nw\n')
    reply = evaluator.eval("class Bad:\n    def __repr__(self): raise OSError(5, 'no')\n\n[1, Bad()]")
    assert reply.output.startswith('Traceback (most recent call last):\n  File "<probe>", line 2, in ')
    assert "probefs" not in reply.output and reply.words == "OSError: [Errno 5] no"
    reply = evaluator.eval("raise SystemExit(3)")
    assert (reply.error, reply.words) == (errno.EIO, "SystemExit: 3")
    assert evaluator.eval("raise KeyboardInterrupt").error == errno.EINTR
    assert evaluator.eval("def f(): f()\nf()").words.startswith("RecursionError: maximum recursion")
    reply = evaluator.eval("class Evil(Exception):\n    def __str__(self): 1/0\nraise Evil")
    assert reply.words == "Evil: <exception str() failed>"
    reply = evaluator.eval("import json\njson.loads('{')")
    assert "decoder.py" in reply.output and reply.words.startswith("json.decoder.JSONDecodeError: ")
    assert evaluator.eval("\0").error == evaluator.eval("x = '\udcff'").error == errno.EINVAL
    assert evaluator.program("""
        sys.excepthook = sys.displayhook = sys.unraisablehook = None
        answer = evaluate('5\\n1/0')[2].decode()""").startswith("5\nTraceback")
    assert evaluator.printed() == ["", ""]


CUTS = '''\
# ä comment
x = "ä€😀"; print(x)
for i in range(2):

    i
# at the margin
    print("in", i)
else:
    "else"
def f(a):
    """doc

not a statement
"""
    return a

f(1)
@staticmethod
def g(): return [
1,
2]\r
g.__func__()\r
if 0:
  1
elif 1:
  2
print("""
  '" ) \\
""", (1,
  2), \\
  3)
try: 1/0
except ZeroDivisionError: 'caught'
"a"; "b"
\\

if 1: "one line"
f"{x!r:>8}"
class C:
\tdef m(self):
\t\treturn 5

\tz = 3
C().m() + C.z
async def co(): return "awaited"
await co()
'''
ENDS = ["", "'last'", "for i in (7, 8):\n    i", "(", "y = = 1\n'not run'\n", "1/0\n'not run'\n", "else: 5\n",
        "if 1:\n  5\nelse 6\n7\n", "'''\n\n", "\udcff\n8\n", "foo(1\n2 3\n)\n4\n", "  5\n", "5 \\"]


@pytest.mark.parametrize("end", ENDS, ids=range(len(ENDS)))
def test_any_cut_is_the_same(evaluator, end):
    """However the text is split in time, the same is run and said."""
    problem = evaluator.program(f"""
        text = {CUTS + end!r}.encode('utf-8', 'surrogateescape')

        def feed(parts):
            home = sys.modules['__main__'].__dict__
            before = dict(home)
            output, left = '', b''
            for number, part in enumerate(parts):
                left += part
                last = number == len(parts) - 1
                error, done, said, cut, words = evaluate(left, last)
                output += said.decode() + words
                left = left[done:]
                if error:
                    break
            effects = sorted((name, repr(value).split(' at 0x')[0]) for name, value in home.items()
                             if name not in before and name not in ('__builtins__', '__annotations__'))
            for name, _ in effects:
                del home[name]
            return output, error, effects, text if error else left

        whole = feed([text])
        answer = [whole[0], None]
        parts = [[text[:at], text[at:]] for at in range(len(text) + 1)]
        parts += [[bytes([byte]) for byte in text], text.splitlines(True), [text, b''],
                  [text[at:at + 7] for at in range(0, len(text), 7)]]
        for each in parts:
            if feed(each)[:3] != whole[:3]:
                answer[1] = [repr(each), feed(each)[0]]
                break
    """)
    assert problem[1] is None, problem
    assert problem[0].startswith("ä€😀\n0\nin 0\n1\nin 1\n'else'\n1\n[1, 2]\n2\n\n  '\" )  (1, 2) 3\n'caught'\n"
                                 "'a'\n'b'\n'one line'\n\"   'ä€😀'\"\n8\n'awaited'\n"), problem[0]


def test_units_are_statements(evaluator):
    """Over the standard library's sources: units are the statements that ast finds, and any number of
    lines gives a beginning of them."""
    problems = evaluator.program("""
        import ast, glob, os, random
        random.seed(1)
        units, split = agent['units'], agent['split']
        answer = []
        for name in sorted(glob.glob(os.path.dirname(os.__file__) + '/*.py'))[::9]:
            with open(name, 'rb') as file:
                text = file.read()
            lines, sizes = split(text, True)
            if sum(sizes) != len(text) or len(lines) > 3000:
                continue
            whole = list(units(lines, True))
            starts = [min([node.lineno] + [d.lineno for d in getattr(node, 'decorator_list', [])]) - 1
                      for node in ast.parse(text).body]
            if sorted(set(starts)) != [begin for begin, end in whole if begin < end]:
                answer.append([name, 'statements'])
            for _ in range(12):
                count = random.randrange(len(lines) + 1)
                part = [unit for unit in units(lines[:count], False) if unit[0] < unit[1]]
                expected = [unit for unit in whole if unit[0] < unit[1]][:len(part)]
                if [unit[0] for unit in part] != [unit[0] for unit in expected]:
                    answer.append([name, count, part[-2:], expected[-2:]])
    """)
    assert problems == []


def test_open_blocks_wait(evaluator):
    for text, done in [("for i in (1, 2):\n    i\n", 0), ("if 1: 5\n", 0), ("5\n@staticmethod\n", 2),
                       ("x = (\n", 0), ("x = 5", 0), ("# comment\n\n", 11), ("5\n6", 2), ("'''\n5\n", 0),
                       ("def f():\n    pass\n# c\n\n", 0), ("x = 1 \\\n", 0), ("try:\n    5\n", 0)]:
        reply = evaluator.eval(text, last=False)
        assert (reply.error, reply.consumed) == (0, done), text
    assert evaluator.output("", last=True) == evaluator.output("\n\n") == ""


def test_names(evaluator):
    """__main__ first, then the main thread's frames, innermost first, then builtins; assignments go to
    __main__."""
    output = evaluator.output
    assert output("loss, model, x, width, items") == "(0.25, <Model>, 42, 640, [1, 2, 3])\n"
    assert output("print(loss)") == "0.25\n"
    assert output("[loss * i for i in items]") == "[0.25, 0.5, 0.75]\n"
    assert output("[[loss for _ in items] for i in (lambda: items)()][0]") == "[0.25, 0.25, 0.25]\n"
    assert output("sum(loss for _ in items)") == "0.75\n"
    assert output("def f(a, b=loss):\n    return a + b + loss\nf(1), f.__qualname__, f.__globals__ is "
                  "globals()") == "(1.5, 'f', True)\n"
    assert output("class C:\n    y = loss\n    def m(self): return model, self.y\n\nC().m(), C.m.__qualname__,"
                  " C.__qualname__") == "((<Model>, 0.25), 'C.m', 'C')\n"
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
    assert output("try:\n    raise KeyError\nexcept KeyError as model:\n    [model for _ in items]\nmodel") == \
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
    assert evaluator.eval("loss", flags=IN_FRAME).words.startswith("NameError: name 'loss' is not defin")
    assert output("sorted(locals())") == output("dir()") == "['free', 'items', 'reader', 'x']\n"
    assert output("sorted(vars().items())[1], locals()['x'], locals().get('no')") == \
        "(('items', [1, 2, 3]), 42, None)\n"
    assert output("dict(**locals())['x'], eval('x'), len(locals()), 'x' in locals()") == \
        "(42, 42, 4, True)\n"
    assert output("[x + i + counter for i in items], (lambda: reader())()") == \
        "([50, 51, 52], ('free', 42))\n"
    assert output("x = 5\nx += 1\nx, reader()") == "(6, ('free', 6))\n"
    assert output("items = [x for _ in items]\nitems") == "[6, 6, 6]\n"
    assert output("def f():\n    return x + counter\n\nf(), f.__globals__ is globals()") == "(13, True)\n"
    assert output("new = 1\nnew, globals()['new'], 'new' in locals()") == "(1, 1, False)\n"
    assert output("counter = 8\nif 1:\n    global x\n    x = 9\nglobals()['x'], x") == "(9, 6)\n"
    assert output("try:\n    1/0\nexcept ZeroDivisionError as free:\n    'caught'\nfree") == "'caught'\n"
    assert evaluator.eval("del x", flags=IN_FRAME).words == "NameError: name 'x' is not defined"
    assert output("loss = 0.5; model = [loss for _ in (1, 2)]", 2) == ""
    assert output("width, counter = 1, counter + 1", 1) == ""
    assert output("globals() is locals(), counter, 'module' if leaf else 0", 3) == "(True, 9, 'module')\n"
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


def test_names_on_a_thread(evaluator):
    evaluator.program("""
        import threading
        space = {'__name__': 'module', 'place': 'module', 'only': 'global', 'both': 'global'}
        exec('''
        def outer(outside, both, gate, ready):
            def inside(place):
                mine = 1
                ready.release()
                gate.acquire()
                sys.answer = (mine, place)
            inside("inside")
        ''', space)
        space['sys'] = sys
        sys.gate2, ready = threading.Lock(), threading.Lock()
        sys.gate2.acquire(), ready.acquire()
        sys.other = threading.Thread(target=space['outer'], args=('outside', 'outer', sys.gate2, ready))
        sys.other.start()
        ready.acquire()
    """.replace("\n        ", "\n").replace("\n    ", "\n    "))
    ident = evaluator.program("answer = sys.other.ident")

    def output(text, flags=ON_THREAD, **options):
        return evaluator.output(text, flags=flags, thread=ident, **options)
    assert output("mine, place, outside, only, both") == "(1, 'inside', 'outside', 'global', 'global')\n"
    assert output("outside, both, place", depth=1) == "('outside', 'outer', 'module')\n"
    assert output("[(mine, outside, both, only) for _ in (1,)]") == "[(1, 'outside', 'global', 'global')]\n"
    assert output("mine = 2; outside = 3; outside, globals()['outside'], __name__") == "(3, 3, 'module')\n"
    assert output("place = [outside for _ in (1,)]") == ""
    assert evaluator.eval("outside", flags=IN_FRAME, thread=ident).output == "3\n"
    assert evaluator.program("sys.gate2.release(); sys.other.join(); answer = sys.answer") == [2, [3]]


def test_output_is_this_codes_alone(evaluator):
    """Others print meanwhile, to the program's own stream; threads that the code starts are others."""
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
    shown = "mine err\\n"
    lines = output.splitlines()
    talk = ["mine", "mine err", f"{len(shown) - 1}", "mine raw", "9", "mine lines"]
    assert lines[:-1] == ["mine", "mine err", "mine raw", "mine lines"] * 50 or talk
    assert "program" not in output and "error" not in output and output.count("mine raw\n") == 50
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
        evaluate('import sys, threading\\nt = threading.Thread(target=sys.during); t.start(); t.join()')
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
        answer.append(evaluate('import contextlib, io\\nwith contextlib.redirect_stdout(io.StringIO()) as s:'
                               '\\n  print(5)\\ns.getvalue()\\nprint(6)')[2].decode())
        sys.stdout = own
        answer.append(own.getvalue())
    """) == ["1\n", True, "", [[True, "", True, True, True, []], "noted"], "later\n", "2\n", True, "3\n", True,
             "4\n", False, True, "'5\\n'\n6\n", ""]


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
    assert reply.output.startswith("a" * 100 + "\na") and reply.output.endswith("\nZeroDivisionError: division "
                                                                                "by zero\n")
    statm = pathlib.Path(f"/proc/{evaluator.target.pid}/statm").read_text()
    limit = int(statm.split()[0]) * resource.getpagesize() + (300 << 20)
    evaluator.program(f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))")
    evaluator.output("big = 'x' * 10**6\nmany = [big] * 10**6\nhuge = {'a': [(many, {i: many for i in range(9)})]}")
    for text, start in [("many", "['xxxx"), ("huge", "{'a': [(['xxxx"), ("tuple(many)", "('xxxx"),
                        ("'y' * 10**8", "'yyyy"), ("b'z' * 10**8", "b'zzzz")]:
        reply = evaluator.eval(text, limit=1 << 20)
        assert (reply.error, reply.cut, len(reply.output)) == (0, True, 1 << 20), text
        assert reply.output.startswith(start)
    assert evaluator.eval("x = bytes(10**9)").words == "MemoryError"
    assert evaluator.output("1 + 1") == "2\n"


def test_long_values_are_whole(evaluator):
    """Values shown piece by piece look as repr() makes them."""
    assert evaluator.program("""
        class Odd(list):
            def __repr__(self): return 'odd'
        loop = []
        loop.append([loop, {1: loop}])
        deep = {'a': (), 'b': set(), 'c': frozenset(), 'd': {}, 'e': [], 'f': (1,), 'g': {2}, 'h': frozenset([3]),
                'i': b'\\0', 'j': bytearray(b'x'), 'k': Odd(), 'l': "it's", 'm': loop, 'n': {(1, 2): [None]}}
        sys.values = [[deep] * 20000, ('x' * 100000,), [loop] * 20000, [list(range(100000))],
                      dict.fromkeys(range(100000)), frozenset(range(100000)), 'y' * 100000,
                      set(range(70000)), bytearray(70000)]
        sys.modules['__main__'].sys = sys
        answer = [evaluate(f'sys.values[{n}]', limit=1 << 26)[2].decode() == repr(value) + '\\n'
                  for n, value in enumerate(sys.values)]
    """) == [True] * 9


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

        answer = []
        for text in ['thing', 'thing.x = 1', '[thing for _ in (1,)]', 'thing.none', 'hold', 'dir()', 'locals()',
                     'fail(thing)', 'label = thing', '(lambda: 1/0)() if thing else 0', 'label', 'print(thing)',
                     'import asyncio\\nawait asyncio.sleep(0, thing)', 'await asyncio.sleep(0, fail(thing))',
                     'try:\\n  fail(thing)\\nexcept ValueError as e:\\n  raise KeyError(thing) from e',
                     'for _ in (1,):\\n  thing\\n  (lambda: thing)()', 'del thing', 'x = = 1', 'label = 5']:
            for flags in 2, 4:
                go, done, went = threading.Lock(), threading.Lock(), []
                go.acquire(), done.acquire()
                main = sys.modules['__main__'].__dict__
                main['fail'] = globals()['fail'] = fail
                thread = threading.Thread(target=hold, args=(go, went, done), daemon=True)
                thread.start()
                while sys._current_frames()[thread.ident].f_code is not hold.__code__ or \
                        sys._current_frames()[thread.ident].f_lineno != hold.__code__.co_firstlineno + 2:
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
        for text in ['loss', '[loss for _ in (1,)]', '1/0', 'x = = 1', '(', 'for i in range(2): i', 'print(1)',
                     'import asyncio\nawait asyncio.sleep(0)', 'await asyncio.sleep(0, 1/0)',
                     'raise ValueError from KeyError()', 'def f(): return loss', 'def f(): return 1']:
            evaluate(text)
            gc.collect()
            gc.disable()
            evaluate(text)
            count = gc.collect()
            gc.enable()
            if count:
                answer.append([text, count])
    """) == []


def test_warnings(evaluator):
    """A compiler's warning is in the reply, once, though the text is parsed more than once."""
    for text in "1 is 1\n", "(\n1 is 1)\n", "[loss is 1 for _ in (1,)]\n":
        for last in True, False:
            assert evaluator.eval(text, last=last).output.count("SyntaxWarning") == 1, text
    assert evaluator.printed() == ["", ""]


def test_tracing_and_locals_of_the_program(evaluator):
    """Looking into a frame while a trace or profile function looks at it too, or whose locals() somebody
    keeps, changes nothing there."""
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
    assert output("x = await asyncio.sleep(0, outside)\n[x, [await asyncio.sleep(0, (outside, i)) for i in (1,)]]") \
        == "['outside', [('outside', 1)]]\n"
    assert output("async def many():\n    for i in range(3): yield i\nasync for i in many():\n    i\n") == "0\n1\n2\n"
    assert output("[i async for i in many()], await asyncio.gather(*(asyncio.sleep(0, outside) for _ in 'ab'))") \
        == "([0, 1, 2], ['outside', 'outside'])\n"
    assert output("@contextlib.asynccontextmanager\nasync def context():\n    yield 'entered'\n\n"
                  "async with context() as c:\n    c\n") == "'entered'\n"
    for raised in "1/0", "sys.exit(3)", "raise KeyboardInterrupt", "raise asyncio.CancelledError('no')":
        reply = evaluator.eval(f"async def bad():\n    {raised}\n\nawait bad()", thread=ident, flags=ON_THREAD)
        assert reply.error == (errno.EINTR if "Keyboard" in raised else errno.EIO)
        assert reply.output.startswith('Traceback (most recent call last):\n  File "<probe>", line 1, in '
                                       '<module>\n    await bad()\n  File "<probe>", line 2, in bad\n')
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
                            "async def left():\n    asyncio.ensure_future(asyncio.sleep(100))\n    return 'left'\n\n"
                            "await left()") == "0.25\n'left'\n"
    assert evaluator.eval("async def bad():\n    raise SystemExit\n\nawait bad()").words == "SystemExit"
    assert descriptors() == before
    assert evaluator.printed() == ["", ""]


INTERRUPT = """
    import ctypes, time
    def interrupt(ready):
        while not ready():
            time.sleep(0.001)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(KeyboardInterrupt))
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
    text = 'import asyncio\\nasync def wait():\\n  sys.begun = True\\n  await asyncio.sleep(100)\\n\\nawait wait()'
    answer.append(interrupted(text, lambda: sys.begun))
    sys.begun = False
    answer.append(interrupted(text, lambda: sys.begun, thread=sys.thread.ident, flags=2))
    # a loop that is blocked never gets to begin it, also not later
    sys.begun = sys.later = False
    async def block():
        sys.begun = True
        time.sleep(0.3)
    import asyncio
    frame = sys._current_frames()[sys.thread.ident]
    while 'run_forever' not in frame.f_code.co_name:
        frame = frame.f_back
    loop = frame.f_locals['self']
    del frame
    future = asyncio.run_coroutine_threadsafe(block(), loop)
    while not sys.begun:
        pass
    answer.append(interrupted('async def late(): sys.later = True\\n\\nawait late()', lambda: time.sleep(0.05) or True,
                              thread=sys.thread.ident, flags=2))
    future.result()
    answer.append(sys.later)
    sys.stop = True
    sys.thread.join()
    answer.append(sys.result[0])
    """) == [[errno.EINTR, "KeyboardInterrupt", ["KeyboardInterrupt"]]] * 4 + [False, 1]
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
                ended.append(agent['evaluate'](text, True, main, 0, 0, 10000)[0])
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
        if 4 not in ended:
            answer.append(repr(set(ended)))
    """) == []


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
        answer = evaluate('type(evil).__name__\\nfor _ in (1,):\\n  x = evil\\n[evil][0].no')[2].decode()
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
    """.replace("\n        ", "\n")) == ["(0, b\"sub\\n'sub'\\n\", 5, 'ZeroDivisionError: division by zero')", "7\n"]
