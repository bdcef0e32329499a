"""A headless Chromium, for tests of pages. Without one, such tests are skipped with REASON."""

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for path in map(shutil.which, BROWSERS) if path), None)
REASON = "none of " + ", ".join(BROWSERS) + " is installed: the page was not opened in a browser"


class Browser:
    """A headless Chromium, controlled over two pipes (Chrome DevTools protocol; messages end with a zero byte)."""

    def __init__(self, folder: str) -> None:
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def wire() -> None:  # The browser reads file descriptor 3 and writes 4.
            spare = os.dup(to_read), os.dup(to_write)
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        self.process = subprocess.Popen(
            [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={folder}",
             "--remote-debugging-pipe", "about:blank"],
            preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.count = 0
        self.session: dict[str, str] = {}
        self.buffer = b""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self.call("Page.enable")
        self.call("Network.enable")
        self.call("Runtime.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)

    def receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            if not select.select([self.back], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser did not answer in time")
            piece = os.read(self.back, 1 << 20)
            if not piece:
                raise EOFError("the browser ended")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return dict(json.loads(message))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.count += 1
        request = {"id": self.count, "method": method, "params": params, **self.session}
        os.write(self.to, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + 120
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def open(self, page: Path | str, fragment: str = "", ready: str = "Boolean(window.hetu)") -> None:
        """Opens a file or an address, and waits until the page is complete and the expression `ready` is true."""
        address = page.as_uri() if isinstance(page, Path) else page
        self.call("Page.navigate", url="about:blank")  # else a new fragment alone would not load the page again
        self.events.clear()
        self.call("Page.navigate", url=address + fragment)
        protocol = address.partition(":")[0]
        self.wait(f"document.readyState === 'complete' && location.protocol === '{protocol}:' && {ready}")

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)

    def set_dark(self, is_dark: bool) -> None:
        """Makes pages see that the user prefers dark or light colours."""
        scheme = "dark" if is_dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def wait(self, expression: str) -> None:
        """Waits until the expression is true."""
        deadline = time.monotonic() + 120
        while not self.value(expression):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not true in time: {expression}; {self.events[-20:]}")
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
