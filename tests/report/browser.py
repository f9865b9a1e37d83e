"""A headless Chromium, driven over its debugging pipe: what a page logs, what it asks for, and what a click does."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


class Browser:
    """One page in one browser. ``problems`` are console errors, uncaught exceptions and refusals by policy; ``asked`` are
    the addresses that were asked for."""

    def __init__(self, profile: Path, width: int = 1100) -> None:
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        flags = (
            "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync "
            f"--disable-component-update --remote-debugging-pipe --window-size={width},900"
        )
        command = f"exec {CHROMIUM} {flags} --user-data-dir={profile} 3<&{to_read} 4>&{to_write}"
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(
            ["bash", "-c", command], pass_fds=(to_read, to_write), stdout=quiet, stderr=quiet
        )
        os.close(to_read)
        os.close(to_write)
        self._number, self._held = 0, b""
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.loaded = False
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self, timeout: float = 60.0) -> dict[str, Any]:
        end = time.monotonic() + timeout
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._in], [], [], max(end - time.monotonic(), 0))
            part = os.read(self._in, 1 << 16) if ready else b""
            assert part, "the browser says nothing more"
            self._held += part
        line, _, self._held = self._held.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def open(self, path: Path) -> None:
        self.loaded = False
        self.call("Page.navigate", url=path.as_uri())
        while not self.loaded:
            self._next()

    def value(self, expression: str) -> Any:
        """What an expression is in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
