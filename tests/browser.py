# SPDX-License-Identifier: BSD-2-Clause
"""A headless Chromium, driven by the DevTools protocol over a pipe: JSON messages, each ended by a zero
byte, to its file descriptor 3 and from its 4."""
import json
import os
import shutil
import subprocess
import tempfile

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "PageUp": 33, "PageDown": 34}


class Browser:
    """One page. asked: the addresses that it asked for; said: what went wrong in it, or to its console."""

    def __init__(self):
        self.asked, self.said, self.number, self.unread = [], [], 0, b""
        self.home = tempfile.mkdtemp()
        there, self.out = os.pipe()
        self.back, here = os.pipe()
        self.process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$0" "$@" 3<&{there} 4>&{here}',
                CHROMIUM,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
                f"--user-data-dir={self.home}",
                "--no-first-run",
                "--hide-scrollbars",
                "--window-size=1280,900",
                "about:blank",
            ],
            pass_fds=(there, here),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(there)
        os.close(here)
        self.session = None
        page = next(t for t in self.tell("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.tell("Target.attachToTarget", targetId=page["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.tell(domain + ".enable")

    def message(self):
        while b"\0" not in self.unread:
            data = os.read(self.back, 1 << 20)
            if not data:
                raise RuntimeError("the browser has gone")
            self.unread += data
        text, _, self.unread = self.unread.partition(b"\0")
        return json.loads(text)

    def event(self, message):
        method, values = message.get("method", ""), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.asked.append(values["request"]["url"])
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.said.append(json.dumps(values)[:500])
        return method

    def tell(self, method, **values):
        """Sends a command; returns its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": values}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.event(answer)

    def open(self, path):
        self.tell("Page.navigate", url="about:blank")
        self.asked.clear()
        self.tell("Page.navigate", url=f"file://{path}")
        while self.event(self.message()) != "Page.loadEventFired":
            pass

    def value(self, expression):
        answer = self.tell("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:800])
        return answer["result"].get("value")

    def key(self, name, times=1):
        """Presses a key, as a hand would."""
        for _ in range(times):
            for kind in ("rawKeyDown", "keyUp"):
                self.tell(
                    "Input.dispatchKeyEvent",
                    type=kind,
                    key=name,
                    code=name,
                    windowsVirtualKeyCode=KEYS[name],
                )

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.back)
        shutil.rmtree(self.home, ignore_errors=True)
