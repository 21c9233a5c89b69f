"""A headless Chromium driven over the DevTools pipe, with nothing but the standard library."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab: messages are JSON ended by a zero byte, sent on descriptor 3 and answered on descriptor 4."""

    def __init__(self, write: int, read: int, seconds: float = 30) -> None:
        self._write, self._read, self._seconds = write, read, seconds
        self._buffer, self._last = b"", 0
        self._session: str | None = None
        self.problems: list[str] = []
        self.requests: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return self._until(lambda answer: answer.get("id") == self._last)

    def _until(self, done: Any) -> dict[str, Any]:
        end = time.monotonic() + self._seconds
        while True:
            while b"\0" in self._buffer:
                text, _, self._buffer = self._buffer.partition(b"\0")
                answer = json.loads(text)
                self._note(answer)
                if done(answer):
                    if "error" in answer:
                        raise RuntimeError(answer["error"])
                    return answer.get("result", answer)
            if not select.select([self._read], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("Chromium did not answer")
            if not (chunk := os.read(self._read, 1 << 20)):
                raise RuntimeError("Chromium went away")
            self._buffer += chunk

    def _note(self, answer: dict[str, Any]) -> None:
        params = answer.get("params", {})
        match answer.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(params["entry"]["text"])
            case "Network.requestWillBeSent" if not params["request"]["url"].startswith("data:"):
                self.requests.append(params["request"]["url"])

    def size(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        # The page hears of it when it next draws; what is asked before that may be about the old look.
        self.run(
            "new Promise(done => { requestAnimationFrame(() => requestAnimationFrame(done)); setTimeout(done, 1000) })"
        )

    def open(self, file: Path) -> None:
        self.send("Page.navigate", url=file.resolve().as_uri())
        self._until(lambda answer: answer.get("method") == "Page.loadEventFired")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def screenshot(self, file: Path) -> None:
        answer = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"]))


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A fresh browser with a fresh profile; it is ended on the way out."""
    found = find_chromium()
    assert found, "no Chromium on this machine"
    there, ours = os.pipe()
    mine, theirs = os.pipe()

    def place() -> None:
        # Chromium listens on descriptor 3 and answers on 4; the detour avoids overwriting one pipe by the other.
        high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (there, theirs)]
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    process = subprocess.Popen(
        [found, *FLAGS, f"--user-data-dir={profile}"],
        preexec_fn=place,
        pass_fds=(3, 4),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(there)
    os.close(theirs)
    try:
        yield Page(ours, mine)
    finally:
        os.close(ours)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(mine)
