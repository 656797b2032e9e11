"""Chromium through its driver, which speaks plain HTTP: no library in between."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.running import wait_until

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class Browser:
    """One window."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        response = self._http.request(method, path, json=body if method == "POST" else None)
        value = response.json()["value"]
        if response.status_code != 200:
            raise AssertionError(f"{path}: {value}")
        return value

    def open(self, url: str) -> None:
        """Open a page; what another one complained of is not its fault."""
        self.ask("POST", "url", {"url": "about:blank"})
        self.complaints()
        self.ask("POST", "url", {"url": url})

    def run(self, script: str) -> Any:
        return self.ask("POST", "execute/sync", {"script": script, "args": []})

    def text(self, selector: str) -> str:
        return str(self.run(f"return document.querySelector({selector!r})?.textContent ?? ''"))

    def size(self, width: int, height: int) -> None:
        self.ask("POST", "window/rect", {"width": width, "height": height})

    def dark(self, yes: bool) -> None:
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if yes else "light"}]
        body = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": scheme}}
        self.ask("POST", "goog/cdp/execute", body)

    def phone(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
        body = {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics}
        self.ask("POST", "goog/cdp/execute", body)

    def complaints(self) -> list[str]:
        log = self.ask("POST", "se/log", {"type": "browser"})
        return [entry["message"] for entry in log if entry["level"] in ("SEVERE", "WARNING")]

    def picture(self, path: Path) -> None:
        body = {"cmd": "Page.captureScreenshot", "params": {"captureBeyondViewport": True}}
        path.write_bytes(base64.b64decode(self.ask("POST", "goog/cdp/execute", body)["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A window of a fresh Chromium; skips the test where there is none."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no chromium or no chromedriver (Debian: apt-get install chromium-driver)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        child = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert child.stdout is not None
            port = next(
                line.rstrip(".\n").rpartition(" ")[2]
                for line in child.stdout
                if "started successfully on port" in line
            )
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
                options = {"binary": chromium, "args": [*FLAGS, f"--user-data-dir={profile}"]}
                wanted = {
                    "alwaysMatch": {
                        "goog:chromeOptions": options,
                        "goog:loggingPrefs": {"browser": "ALL"},
                    }
                }
                answer = http.post("/session", json={"capabilities": wanted}).json()["value"]
                assert "sessionId" in answer, answer
                base = f"http://127.0.0.1:{port}/session/{answer['sessionId']}/"
                try:
                    with httpx.Client(base_url=base, timeout=60) as session:
                        yield Browser(session)
                finally:
                    # A Chromium that stays keeps the driver's output open, and `communicate` waits.
                    http.delete(f"/session/{answer['sessionId']}")
        finally:
            child.kill()
            child.communicate()


__all__ = ["Browser", "browser", "wait_until"]
