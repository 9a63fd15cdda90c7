"""A real Chromium without a window: opens a page, presses keys, says what is there, takes a picture.

It is spoken to over two pipes, in its own protocol, so nothing has to be installed beside the browser itself.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
NONE = "not played: here is no Chromium, so no page is opened"
ANSWER_S = 60.0
# It reads from 3 and writes to 4, whatever the numbers are here. A shell takes none above 9.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
# The number that the browser wants beside the name of a key.
KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35}


def found() -> str | None:
    """The browser of this machine, if it has one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one page. Whatever the page says to its console, or asks of any network, is kept."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._number, self._rest = 0, b""
        self._session = ""
        self.asked: list[str] = []
        self.complaints: list[str] = []

    def __enter__(self) -> Self:
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        words = [
            *(self._program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-background-networking", "--remote-debugging-pipe"),
            *(f"--user-data-dir={self._folder}", "--window-size=1000,900", "about:blank"),
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", LAUNCH, str(to_browser), str(from_browser), *words],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        (page,) = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)

    def open(self, address: str) -> None:
        """Returns once the page is loaded."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.until("document.readyState == 'complete' && location.protocol != 'about:'", f"{address} does not load")

    def until(self, condition: str, says: str) -> None:
        """Waits for an expression to be true on the page, which may be another page by then."""
        deadline = time.monotonic() + ANSWER_S
        while not self.value(condition):
            assert time.monotonic() < deadline, says
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """What the page says that this is."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """As a person does: down and up."""
        words = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", **words)
        self.call("Input.dispatchKeyEvent", type="keyUp", **words)

    def picture(self, file: Path) -> None:
        """What is seen, as PNG."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def call(self, method: str, **words: Any) -> dict[str, Any]:
        """One question and its answer; what else is said meanwhile is kept."""
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": words}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_S
        while True:
            said = self._next(deadline, method)
            if said.get("id") == self._number:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result
            self._keep(said)

    def _keep(self, said: dict[str, Any]) -> None:
        if said.get("method") == "Network.requestWillBeSent":
            self.asked.append(said["params"]["request"]["url"])
        if said.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(said["params"])[:500])

    def _next(self, deadline: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no answer to {method}"
            some = os.read(self._from, 1 << 16)
            assert some, f"the browser ended at {method}"
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\0")
        said: dict[str, Any] = json.loads(line)
        return said
