"""A plugin for debugpy's own tests: what they say to an adapter is said to probefs-dap (PROBEFS_DAP), over a mount
(PROBEFS_MOUNT).

All that is changed of how they do so: which program is the adapter, and that it shows no native frames; that it isn't
asked about its sockets and its telemetry; that a program waits until it is attached to, not until debugpy is; that a
thread may stop alone; that events which debugpy doesn't send are passed over; and that what a program calls
debugpy.breakpoint() is its own breakpoint(). What they do in several ways they do by attaching to a process's number,
and what they do with several kinds of programs, with a script: there is no difference once it runs."""
import os
import pathlib
import subprocess
import time

import psutil
import pytest

from debugpy.common import messaging
from tests import timeline, watchdog
from tests.debug import runners, session, targets

WAITS_FOR_DEBUGPY = 'while "debugpy" not in sys.modules:\n    time.sleep(0.1)\n'

runners.launch = runners.attach_pid  # which is what their fixtures `run` are made of

Session = session.Session
spawn_debuggee, process_event, init = Session.spawn_debuggee, Session._process_event, Session.__init__
send_request = Session.send_request


def spawn_adapter(self, args=()):
    self.adapter = psutil.Popen([os.environ["PROBEFS_DAP"], os.environ["PROBEFS_MOUNT"]], bufsize=0,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    watchdog.register_spawn(self.adapter.pid, self.adapter_id)
    self._start_channel(messaging.JsonIOStream.from_process(self.adapter, name=self.adapter_id))


def start_channel(self, stream):
    self.channel = messaging.JsonMessageChannel(stream, messaging.MessageHandlers(
        request=self._process_request, event=self._process_event, disconnect=self._process_disconnect))
    self.channel.start()
    self.request("initialize", self.capabilities)


def ignores_more(self, *args, **options):
    init(self, *args, **options)
    self.ignore_unobserved.extend([timeline.Event("loadedSource"), timeline.Event("breakpoint")])


def without_native(self, command, arguments=None, *args, **options):
    if command == "attach":
        arguments = {**arguments, "nativeFrames": False}
    return send_request(self, command, arguments, *args, **options)


def one_thread_is_all(self, event):
    if event.event == "stopped":
        event.body["allThreadsStopped"] = True
    process_event(self, event)


def spawn_waiting(self, args, cwd=None, setup=None, **options):
    waits = self.tmpdir / "waits"
    instead = f"import debugpy\ndebugpy.breakpoint = breakpoint\nopen({str(waits)!r}, 'w').close()\n"
    spawn_debuggee(self, args, cwd=cwd, setup=setup and setup.replace(WAITS_FOR_DEBUGPY, instead), **options)
    self.adapter_endpoints = None
    while setup and not waits.check() and self.debuggee.poll() is None:
        time.sleep(0.02)


Session.spawn_adapter, Session._start_channel = spawn_adapter, start_channel
Session._process_event, Session.spawn_debuggee, Session.__init__ = one_thread_is_all, spawn_waiting, ignores_more
Session.send_request = without_native


def pytest_collection_modifyitems(config, items):
    """Of those that attach by number, the ones whose names stand in the file PROBEFS_SCENARIOS."""
    wanted = set(pathlib.Path(os.environ["PROBEFS_SCENARIOS"]).read_text().splitlines())

    def is_ours(item):
        ways = item.callspec.params if hasattr(item, "callspec") else {}
        return (repr(ways.get("run")) == "attach_pid" and  # it has no arguments, which would be of a beginning
                ways.get("target", targets.Program) is targets.Program)
    ours = {item.nodeid.removeprefix("tests/debugpy/"): item for item in items if is_ours(item)}
    if wanted - ours.keys():
        raise pytest.UsageError(f"there are no such scenarios: {wanted - ours.keys()}")
    kept = [item for name, item in ours.items() if name in wanted]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
