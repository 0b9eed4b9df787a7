"""How long an editor waits: for probefs-dap, and for debugpy whose sockets send at once, in turns."""
import contextlib
import pathlib
import shutil
import time

from dap import Adapter, Connected
from peers import Debugpy
from report import median, show, skip

SCRIPT = "bench_edited.py"
HERE = pathlib.Path(__file__).resolve().parent
STOP = (HERE / "edited.py").read_text().splitlines().index("    total = i * 2  # stop") + 1
SHOWN = "next, until stack and variables are shown"
# which of ours are held against theirs
COMPARED = ("stackTrace", "variables, 5 locals", "variables, of an object", "evaluate", "next, until it has stopped",
            SHOWN)


@contextlib.contextmanager
def _debugged(kind, interpreter, probe):
    """(client, what it attaches to) of a fresh program."""
    shutil.copy(HERE / "edited.py", interpreter.directory / SCRIPT)
    nodelay = interpreter.directory / "nodelay"
    shutil.copytree(HERE / "nodelay", nodelay, dirs_exist_ok=True)
    arguments, environment = [], {}
    if kind == "debugpy":
        peer = Debugpy(interpreter)
        why = peer.install()
        if why:
            raise OSError(why)
        arguments = ["debugpy", *peer.inside()]
        environment = {"PYTHONPATH": interpreter.path("nodelay"), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    with interpreter.run(SCRIPT, *arguments, env=environment) as target:
        port = int(target.readline(60))
        client = Connected(port) if kind == "debugpy" else Adapter(probe.path)
        try:
            yield client, target
        finally:
            client.close()


class Editor:
    """took: {what: [seconds, ...]}"""

    def __init__(self, client, target, kind):
        self.client, self.took = client, {}
        arguments = {"justMyCode": False, **({"processId": target.pid} if kind == "probefs" else {})}
        began = time.perf_counter()
        client.attach((target.path(), [STOP]), **arguments)
        self._took("attach, with a breakpoint", began, time.perf_counter())
        self.thread = client.event("stopped")["threadId"]
        self.path = target.path()

    def _took(self, what, began, ended):
        self.took.setdefault(what, []).append(ended - began)

    def ask(self, what, command, **arguments):
        began = time.perf_counter()
        said = self.client.ask(command, **arguments)
        self._took(what, began, self.client.answered)
        return said

    def _look(self):
        frames = self.client.ask("stackTrace", threadId=self.thread, startFrame=0, levels=20)["stackFrames"]
        scopes = self.client.ask("scopes", frameId=frames[0]["id"])["scopes"]
        return self.client.ask("variables", variablesReference=scopes[0]["variablesReference"])["variables"]

    def turn(self):
        """What an editor asks from one hit to the next."""
        client = self.client
        began = time.perf_counter()
        client.ask("continue", threadId=self.thread)
        stopped = client.event("stopped")["at"]
        self._took("continue, until the next hit (5 ms and more of the program's own)", began, stopped)
        self.ask("threads", "threads")
        frames = self.ask("stackTrace", "stackTrace", threadId=self.thread, startFrame=0, levels=20)["stackFrames"]
        assert frames[0]["line"] == STOP, frames[0]
        frame = frames[0]["id"]
        scopes = self.ask("scopes", "scopes", frameId=frame)["scopes"]
        for _ in range(3):
            began = time.perf_counter()
            client.ask("next", threadId=self.thread)
            stopped = client.event("stopped")["at"]
            self._took("next, until it has stopped", began, stopped)
            self._look()
            self._took(SHOWN, began, time.perf_counter())
        frame = client.ask("stackTrace", threadId=self.thread, startFrame=0, levels=1)["stackFrames"][0]["id"]
        scopes = client.ask("scopes", frameId=frame)["scopes"]
        of_frame = scopes[0]["variablesReference"]
        shown = self.ask("variables, 5 locals", "variables", variablesReference=of_frame)["variables"]
        node = next(one for one in shown if one["name"] == "node")
        self.ask("variables, of an object", "variables", variablesReference=node["variablesReference"])
        self.ask("evaluate", "evaluate", expression="node.kids[0].name", frameId=frame, context="watch")
        self.ask("evaluate, what runs code", "evaluate", expression="len(node.kids) + total", frameId=frame,
                 context="repl")
        self.ask("completions", "completions", text="node.", column=6, frameId=frame)
        self.ask("setBreakpoints", "setBreakpoints", source={"path": self.path},
                 breakpoints=[{"line": STOP}, {"line": STOP + 4}])
        client.set(self.path, [STOP])


def measure_editors(report, probe, chosen, args):
    """On the newest interpreter of the host."""
    print("\n== What an editor waits for")
    interpreter = [one for one in chosen if one.root == pathlib.Path("/")][-1]
    kinds = ["probefs"] if args.no_peers else ["probefs", "debugpy"]
    with contextlib.ExitStack() as stack:
        editors = {}
        for kind in kinds:
            try:
                editors[kind] = Editor(*stack.enter_context(_debugged(kind, interpreter, probe)), kind)
            except (OSError, AssertionError) as error:
                skip(kind, f"as an editor's: {str(error)[:120]}")
        for _ in range(args.rounds):
            for editor in editors.values():
                editor.turn()
        ours, theirs = (editors[kind].took if kind in editors else {} for kind in ("probefs", "debugpy"))
        for what in ours:
            report.row(f"{interpreter}, {what}: probefs", show(median(ours[what])))
            if what in theirs:
                report.row(f"{interpreter}, {what}: debugpy", show(median(theirs[what])),
                           f"{median(theirs[what]) / median(ours[what]):.1f} x ours")
            if what in COMPARED and what in theirs:
                report.budget(f"editor, {what}: at most debugpy's", median(ours[what]), median(theirs[what]))
