"""A client of the Debug Adapter Protocol, as far as an editor's answers to a person need it: for probefs-dap, and for
its peers."""
import contextlib
import json
import socket
import subprocess
import threading
import time

import pytest

from interpreters import patience
from mount import build

PROGRAM = build() / "contrib" / "dap" / "probefs-dap"
DEADLINE = 30  # seconds


class Failed(Exception):
    """What an answer says of a request that failed."""


class Client:
    """Over two streams. answered: when the last answer came."""

    def __init__(self, reader, writer):
        self.stream_in, self.stream_out = reader, writer
        self.sent, self.answers, self.events, self.asked = 0, {}, [], []
        self.ended, self.answered = False, 0.
        self.arrived = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _message(self):
        size = 0
        while line := self.stream_in.readline().strip():
            size = int(line.partition(b":")[2])
        return json.loads(self.stream_in.read(size)) if size else None

    def _read(self):
        with contextlib.suppress(OSError, ValueError):
            while message := self._message():
                message["at"] = time.perf_counter()
                with self.arrived:
                    if message["type"] == "response":
                        self.answers[message["request_seq"]] = message
                    else:
                        (self.events if message["type"] == "event" else self.asked).append(message)
                    self.arrived.notify_all()
        with self.arrived:
            self.ended = True
            self.arrived.notify_all()

    def _wait(self, condition, what):
        with self.arrived:
            self.arrived.wait_for(lambda: condition() or self.ended, patience(DEADLINE))
            came = [event["event"] for event in self.events]
            assert condition(), f"no {what}: {'it has ended' if self.ended else came}"

    def raw(self, text):
        self.stream_out.write(text)
        self.stream_out.flush()

    def send(self, command, **arguments):
        """The number by which it is answered."""
        self.sent += 1
        body = json.dumps({"seq": self.sent, "type": "request", "command": command, "arguments": arguments}).encode()
        self.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        return self.sent

    def answer(self, number):
        self._wait(lambda: number in self.answers, f"answer to request {number}")
        answer = self.answers.pop(number)
        self.answered = answer["at"]
        if not answer["success"]:
            raise Failed(answer["message"])
        return answer.get("body", {})

    def ask(self, command, **arguments):
        return self.answer(self.send(command, **arguments))

    def refused(self, command, **arguments):
        """The words of a request that must fail."""
        try:
            said = self.ask(command, **arguments)
        except Failed as failed:
            return str(failed)
        raise AssertionError(f"{command} {arguments} was not refused: {said}")

    def event(self, kind, which=lambda body: True):
        """The body of the next one, which is taken out."""
        def find():
            return next((event for event in self.events if event["event"] == kind and which(event.get("body", {}))),
                        None)
        self._wait(find, f"event {kind}")
        with self.arrived:
            found = find()
            self.events.remove(found)
        return {**found.get("body", {}), "at": found["at"]}

    def stopped(self, reason):
        """The thread of the next stop, which must be for that reason."""
        event = self.event("stopped")
        assert event["reason"] == reason, (event, self.events)
        return event["threadId"]

    def is_asked(self, command):
        """The arguments of the next request to the client, which is taken out."""
        self._wait(lambda: any(one["command"] == command for one in self.asked), f"request {command}")
        with self.arrived:
            found = next(one for one in self.asked if one["command"] == command)
            self.asked.remove(found)
        return found["arguments"]

    def attach(self, *breakpoints, can=(), **arguments):
        """breakpoints: (path, [line or dict, ...]); can: what the client says of itself"""
        self.ask("initialize", adapterID="probefs", pathFormat="path", **dict.fromkeys(can, True))
        attached = self.send("attach", **arguments)
        self._wait(lambda: attached in self.answers or any(event["event"] == "initialized" for event in self.events),
                   "answer to attach")
        if attached in self.answers:
            return self.answer(attached)
        set_ones = [self.set(*one) for one in breakpoints]
        self.ask("configurationDone")
        self.answer(attached)
        return set_ones

    def set(self, path, breakpoints):
        """Replaces those of a file: lines, or dicts with line, condition, logMessage, ..."""
        wanted = [{"line": one} if isinstance(one, int) else one for one in breakpoints]
        return self.ask("setBreakpoints", source={"path": path}, breakpoints=wanted)["breakpoints"]

    def frames(self, thread, **arguments):
        return self.ask("stackTrace", threadId=thread, **arguments)["stackFrames"]

    def frame(self, thread):
        return self.frames(thread)[0]

    def variables(self, reference):
        """{name: variable}"""
        return {one["name"]: one for one in self.ask("variables", variablesReference=reference)["variables"]}

    def locals(self, frame):
        """Of a frame by its number: {name: variable}, and the number of the scope."""
        scope = self.ask("scopes", frameId=frame)["scopes"][0]["variablesReference"]
        return self.variables(scope), scope

    def evaluate(self, expression, frame=None, **arguments):
        arguments = {**arguments, **({} if frame is None else {"frameId": frame})}
        return self.ask("evaluate", expression=expression, **arguments)


class Adapter(Client):
    """A probefs-dap of its own, on standard input and output."""

    def __init__(self, mount):
        if not PROGRAM.exists():
            pytest.skip("probefs-dap is not built: jansson is missing")
        self.process = subprocess.Popen([PROGRAM, str(mount)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        super().__init__(self.process.stdout, self.process.stdin)

    def close(self):
        """As an editor that ends."""
        self.process.stdin.close()
        code = self.process.wait(patience(DEADLINE))
        self.reader.join(patience(DEADLINE))
        self.process.stdout.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.close()


class Connected(Client):
    """To a port of this machine, or the path of a socket."""

    def __init__(self, where):
        if isinstance(where, int):
            self.socket = socket.create_connection(("127.0.0.1", where), DEADLINE)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(str(where))
        self.socket.settimeout(None)
        super().__init__(self.socket.makefile("rb"), self.socket.makefile("wb"))

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.reader.join(DEADLINE)
        self.socket.close()
