"""The Python side of eval without an agent, in a victim of its own (targets/evaluator.py)."""
import json
import pathlib
import shutil
import textwrap
from collections import namedtuple

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "agent" / "evaluate"
SOURCES = [FOLDER / f"{name}.py" for name in (
    "stream", "output", "names", "units", "values", "coroutines", "statements", "errors", "evaluate")]
ON_THREAD, IN_FRAME = 2, 4

Reply = namedtuple("Reply", "error consumed output cut words")


class Evaluator:
    """A victim that evaluates without an agent."""

    def __init__(self, python):
        directory = python.directory / "evaluate"  # a name may be a victim's, too
        directory.mkdir(exist_ok=True)
        copies = []
        for source in SOURCES:
            shutil.copy(source, directory)
            copies.append(python.path(directory / source.name))
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
