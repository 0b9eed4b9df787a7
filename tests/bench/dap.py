"""A client of the Debug Adapter Protocol, as far as setting breakpoints in Python needs it: how an editor talks to
debugpy."""
import contextlib
import json
import socket
import threading

DEADLINE = 30  # seconds


class Dap:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE)
        self.socket.settimeout(None)
        self.sent, self.answers, self.events = 0, {}, set()
        self.arrived = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.ask("initialize", adapterID="probefs", pathFormat="path")
        attached = self.send("attach", justMyCode=False)
        self._wait(lambda: "initialized" in self.events)
        self.ask("configurationDone")
        self._answer(attached)

    def _read(self):
        with contextlib.suppress(OSError, ValueError), self.socket.makefile("rb") as stream:
            while True:
                size = 0
                while (line := stream.readline().strip()):
                    size = int(line.partition(b":")[2])
                if not size:
                    return
                message = json.loads(stream.read(size))
                with self.arrived:
                    if message["type"] == "response":
                        self.answers[message["request_seq"]] = message
                    elif message["type"] == "event":
                        self.events.add(message["event"])
                    self.arrived.notify_all()

    def _wait(self, condition):
        with self.arrived:
            assert self.arrived.wait_for(condition, DEADLINE), "debugpy does not answer"

    def send(self, command, **arguments):
        self.sent += 1
        body = json.dumps({"seq": self.sent, "type": "request", "command": command, "arguments": arguments}).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        return self.sent

    def _answer(self, number):
        self._wait(lambda: number in self.answers)
        answer = self.answers.pop(number)
        assert answer["success"], answer
        return answer.get("body", {})

    def ask(self, command, **arguments):
        return self._answer(self.send(command, **arguments))

    def set(self, path, *breakpoints):
        """Replaces those of a file: dicts with line, condition, logMessage."""
        said = self.ask("setBreakpoints", source={"path": path}, breakpoints=breakpoints)
        assert all(one["verified"] for one in said["breakpoints"]), said

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.reader.join(DEADLINE)
        self.socket.close()
