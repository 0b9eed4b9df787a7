"""A headless Chromium, told what to do through a pipe by its DevTools protocol; no library is wanted for it."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from interpreters import eventually, patience

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="probefs-browser-")
        to_read, self.commands = os.pipe()
        self.answers, to_write = os.pipe()

        def place():  # it reads from 3 and writes to 4, whatever numbers the pipes got
            read, write = os.dup2(to_read, 100), os.dup2(to_write, 101)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=place,
            close_fds=False, start_new_session=True)
        os.close(to_read)
        os.close(to_write)
        self.number, self.rest, self.session, self.errors = 0, b"", None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call("Page.enable")

    def _receive(self, end):
        while b"\0" not in self.rest:
            assert select.select([self.answers], [], [],
                                 max(0, end - time.monotonic()))[0], "the browser doesn't answer"
            data = os.read(self.answers, 1 << 20)
            assert data, "the browser has ended"
            self.rest += data
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + patience(60)
        while True:
            answer = self._receive(end)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(answer["params"]["exceptionDetails"])
            if answer.get("method") == "Log.entryAdded" and answer["params"]["entry"]["source"] == "security":
                self.errors.append(answer["params"]["entry"]["text"])

    def open(self, url):
        self.call("Page.navigate", url=url)

    def run(self, script):
        """The value of an expression of JavaScript."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def text(self, selector="#view"):
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def until(self, condition, what):
        """Until an expression is true; says what the page shows instead."""
        try:
            eventually(lambda: self.run(condition), what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the page shows: {self.text('body')[:2000]}") from None

    def shows(self, words, selector="#view"):
        self.until(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(words)})",
                   f"{words!r}")

    def click(self, words, selector="button"):
        """The first one with these words in it, as a person would: it must be there to be seen."""
        found = (f"[...document.querySelectorAll({json.dumps(selector)})]"
                 f".find(e => e.innerText.includes({json.dumps(words)}) && e.offsetParent)")
        self.until(f"!!{found}", f"{words!r} to click on")
        self.run(f"{found}.click()")

    def type(self, selector, text):
        self.run(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.value = "
                 f"{json.dumps(text)}; }})()")

    def press(self, key, control=False):
        """In what has the focus, as the page hears of it."""
        event = json.dumps({"key": key, "ctrlKey": control, "bubbles": True, "cancelable": True})
        self.run(f"void document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {event}))")

    def key(self, key, control=False, shift=False):
        """As from a keyboard: a letter, Enter, or F1 to F12."""
        code, number = (f"Key{key.upper()}", ord(key.upper())) if len(key) == 1 else (
            key, 13 if key == "Enter" else 111 + int(key[1:]))
        event = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": 2 * control + 8 * shift}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def write(self, text):
        """Into what has the focus, as it is typed."""
        self.call("Input.insertText", text=text)

    def screen(self, width, height, scheme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self):
        os.close(self.commands)
        try:
            self.process.wait(patience(10))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.answers)
        shutil.rmtree(self.profile, ignore_errors=True)
