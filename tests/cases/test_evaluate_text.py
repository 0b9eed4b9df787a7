"""agent/evaluate by itself: what of a text is run when, what is shown, what is said of mistakes.

Python's own prompt, compiler and ast are the oracle.
"""
import errno
import subprocess

import pytest

from evaluator import evaluator  # noqa: F401, a fixture
from interpreters import patience

pytestmark = [pytest.mark.long, pytest.mark.python(minimum=(3, 10))]

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
                          capture_output=True, timeout=patience(60)).stdout.decode()
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
    assert "|   File \"<probe>\", line 6, in <module>\n  |     raise ExceptionGroup" in reply.output
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
    assert reply.output.startswith("1\n  File \"<probe>\", line 3\n    b = = 2\n")
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
                     '  File "<probe>", line 4, in <module>\n    divide(n)\n'
                     '  File "<probe>", line 2, in divide\n'
                     'ZeroDivisionError: division by zero\n',
                     False, "ZeroDivisionError: division by zero")
    reply = evaluator.eval("def f():\n    raise KeyError('k')\ntry:\n    f()\nexcept KeyError as e:\n"
                           "    raise ValueError('v\\nw') from e")
    assert reply.words == "ValueError: v"
    assert reply.output == (
        'Traceback (most recent call last):\n'
        '  File "<probe>", line 4, in <module>\n    f()\n'
        '  File "<probe>", line 2, in f\n    raise KeyError(\'k\')\n'
        "KeyError: 'k'\n\nThe above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n'
        '  File "<probe>", line 6, in <module>\n    raise ValueError(\'v\\nw\') from e\n'
        'ValueError: v\nw\n')
    reply = evaluator.eval("class Bad:\n    def __repr__(self): raise OSError(5, 'no')\n\n[1, Bad()]")
    assert reply.output.startswith('Traceback (most recent call last):\n  File "<probe>", line 2, in ')
    assert "probefs" not in reply.output and reply.words == "OSError: [Errno 5] no"
    reply = evaluator.eval("raise SystemExit(3)")
    assert (reply.error, reply.words) == (errno.EIO, "SystemExit: 3")
    assert evaluator.eval("raise KeyboardInterrupt").error == errno.EIO
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


def test_warnings(evaluator):
    """A compiler's warning is in the reply, once, though the text is parsed more than once."""
    for text in "1 is 1\n", "(\n1 is 1)\n", "[loss is 1 for _ in (1,)]\n":
        for last in True, False:
            assert evaluator.eval(text, last=last).output.count("SyntaxWarning") == 1, text
    assert evaluator.printed() == ["", ""]


WARNED = """\
a = 1
def f():
    loss = 2
    return lambda: loss is 2

b = "\\d"
for i in (1,):
    [loss is 1 for _ in (1,)]
"""


def test_lines_of_warnings(evaluator):
    """Those of the text that was written, however it was cut, and of the name that it has."""
    evaluator.program("import warnings; warnings.simplefilter('always')")
    for before in 0, 40:
        output = evaluator.output(WARNED, before=before)
        seen = [line.partition("Warning: ")[0] for line in output.splitlines() if "Warning" in line]
        escape = next(word for word in seen if word.startswith(f"<probe>:{before + 6}: "))
        assert seen == [f"<probe>:{before + 4}: Syntax", escape, f"<probe>:{before + 8}: Syntax"], output
    assert evaluator.printed() == ["", ""]
    evaluator.program("import warnings; warnings.simplefilter('error')")
    for text, line in ("a = 1\n\na is 1\n", 3), ("a = 1\nb = '\\d'\n", 2):
        reply = evaluator.eval(text)
        assert reply.error == errno.EINVAL and reply.output.startswith(f'  File "<probe>", line {line}\n'), text
        assert reply.output.count("Error: ") == 1 and reply.output.endswith(reply.words + "\n")
    assert evaluator.printed() == ["", ""]


def test_lines_in_messages(evaluator):
    """Where an error's words speak of another line."""
    for text in "a = 1\nb = (\n2]\n", "a = 1\nif a:\nb\n":
        assert "line 2" in evaluator.eval(text).words

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
    """However the text is split in time, the same is run and said. Without an end it is cut everywhere; with each of
    them within the end and close before, and elsewhere at every 26th byte, each at other ones."""
    problem = evaluator.program(f"""
        text = {CUTS + end!r}.encode('utf-8', 'surrogateescape')
        everywhere, turn = {not end}, {ENDS.index(end)}
        close = {len(CUTS.encode())} - 60

        def feed(parts):
            home = sys.modules['__main__'].__dict__
            before = dict(home)
            output, left, lines = '', b'', 0
            for number, part in enumerate(parts):
                left += part
                last = number == len(parts) - 1
                error, done, said, cut, words = evaluate(left, last, before=lines)
                output += said.decode() + words
                lines += left[:done].count(10)
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
        parts = [[text[:at], text[at:]] for at in range(len(text) + 1)
                 if everywhere or at >= close or at % 26 == turn]
        parts += [[bytes([byte]) for byte in text], text.splitlines(True), [text, b''],
                  [text[at:at + 7] for at in range(0, len(text), 7)]]
        for each in parts:
            if feed(each)[:3] != whole[:3]:
                answer[1] = [repr(each), feed(each)[0]]
                break
    """)
    assert problem[1] is None, problem
    assert problem[0].startswith("ä€😀\n0\nin 0\n1\nin 1\n'else'\n1\n[1, 2]\n2\n\n  '\" )  (1, 2) 3\n"
                                 "'caught'\n'a'\n'b'\n'one line'\n\"   'ä€😀'\"\n8\n'awaited'\n"), problem[0]


def test_units_are_statements(evaluator):
    """Over the standard library's sources: units are the statements that ast finds, and any number
    of lines gives a beginning of them."""
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
