"""Pages in a headless Chromium (Debian's), driven by its DevTools protocol over two pipes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Self

from tests.programs import require

TIMEOUT_S = 60.0
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--window-size=1400,1000"),
)


class Browser:
    """One page. What it says on its console as an error is in ``errors``."""

    def __init__(self, profile: Path) -> None:
        self.errors: list[str] = []
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        command = [
            require("chromium", "chromium", "fonts-dejavu-core"),
            *OPTIONS,
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        redirected = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *command]
        self._process = subprocess.Popen(
            redirected,
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._received = b""
        self._number = 0
        self._session: str | None = None
        (target,) = [t for t in self._ask("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        attached = self._ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            data = os.read(self._from, 1 << 20)
            assert data, "Chromium has ended"
            self._received += data
        line, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"]["exception"].get("description", "an exception"))
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])

    def open(self, url: str) -> None:
        self._ask("Page.navigate", url=url)
        self.await_that("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is on the page."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def await_that(self, expression: str) -> Any:
        """Ask until the expression is true."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (found := self.value(expression)):
            assert time.monotonic() < deadline, f"{expression} within {TIMEOUT_S:g} s"
            time.sleep(0.05)
        return found

    def click(self, selector: str) -> None:
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def text(self, selector: str) -> str:
        found: str = self.value(f"document.querySelector({json.dumps(selector)}).textContent")
        return found

    def be(self, width: int, height: int, scheme: str) -> None:
        """Of this size, and as if the user wanted pages to be ``light`` or ``dark``."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._ask("Emulation.setEmulatedMedia", features=[feature])

    def slow_down(self, share: float) -> None:
        """Animations go at this share of their speed from now on."""
        self._ask("Animation.enable")
        self._ask("Animation.setPlaybackRate", playbackRate=share)

    def screenshot(self, path: Path) -> None:
        import base64

        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT_S)
        os.close(self._to)
        os.close(self._from)
