"""Pictures for the docs, of a cluster under load: `cluster live` in headless Chromium, `cluster top` as SVG.

python -m benchmarks.pictures
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import signal
import struct
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from benchmarks.demo_picture import FONTS, ROOT
from cluster import ClusterClient
from cluster.errors import ClusterError
from tests.cli.browser import Browser
from tests.node.processes import COMMAND, Process, Up, environment

PICTURES = ROOT / "docs" / "pictures"
PAGE = 1280, 800
TERMINAL = 120, 30
WATCHED_S = 15.0
MESSAGES_PER_S = (800, 300)  # of each client
VERBS = ("kill", "stop", "start", "messages")  # of the buttons in a member's row


def send(endpoints: str, per_second: int, is_over: threading.Event) -> None:
    """Send as one client, through failovers."""
    with ClusterClient.connect(endpoints) as client:
        while not is_over.wait(0.05):
            try:
                for _ in range(per_second // 20):
                    client.offer(bytes(100))
                client.poll_egress()
            except ClusterError:
                time.sleep(0.2)


@contextmanager
def under_load(endpoints: str) -> Iterator[None]:
    is_over = threading.Event()
    clients = [threading.Thread(target=send, args=(endpoints, rate, is_over)) for rate in MESSAGES_PER_S]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        is_over.set()
        for client in clients:
            client.join()


def top(cwd: Path) -> str:
    """The last screen of `cluster top`, as SVG."""
    columns, rows = TERMINAL
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    command = [*COMMAND, "top", "--interval", "500ms"]
    env = environment(TERM="xterm-256color", COLORTERM="truecolor")
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=env) as process:
        os.close(theirs)
        threading.Timer(WATCHED_S, os.write, (terminal, b"q")).start()
        seen = b""
        try:
            while data := os.read(terminal, 1 << 16):
                seen += data
        except OSError:  # the terminal has no other end any more
            pass
        assert process.wait() == 0, seen
    os.close(terminal)
    screen = seen.split(b"\x1b[?1049l")[0].split(b"\x1b[H")[-1].decode()
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, highlight=False)
    for line in screen.splitlines():
        console.print(Text.from_ansi(line.rstrip()), soft_wrap=True)
    return FONTS.sub("", console.export_svg(title="cluster top", theme=MONOKAI, unique_id="top"))


def live(up: Up, cwd: Path) -> None:
    """The page of a healthy cluster, and of an election."""
    with Process("live", "--buttons", cwd=cwd, is_new=True) as serving, Browser(cwd / "profile") as browser:

        def press(member_id: int, verb: str) -> None:
            row = f"document.querySelectorAll('#buttons p')[{member_id}]"
            browser.value(f"{row}.querySelectorAll('button')[{VERBS.index(verb)}].click()")

        address = serving.first_line.strip()
        browser.be(*PAGE, "light")
        browser.open(address.partition("?")[0])  # without buttons
        browser.await_that("document.querySelectorAll('#clients p').length === 2")
        time.sleep(WATCHED_S)  # which the curve of rates shows
        browser.await_that("document.querySelector('#verdict').textContent === 'healthy'")
        screenshot(browser, "live")

        browser.be(*PAGE, "dark")
        browser.open(address)
        browser.await_that("document.querySelectorAll('#buttons p').length > 3")
        for member_id in range(3):
            press(member_id, "messages")
        browser.slow_down(0.2)
        time.sleep(2)
        press(up.leader, "kill")
        browser.await_that(
            "[...document.querySelectorAll('.names text')].some(name => /^Vote/.test(name.textContent)"
            " && name.parentNode.getAnimations()[0]?.effect.getComputedTiming().progress > 0.2)"
        )
        screenshot(browser, "election")
        serving.signal(signal.SIGINT)
        assert browser.errors == []


def screenshot(browser: Browser, name: str) -> None:
    path = PICTURES / f"{name}.png"
    browser.screenshot(path)
    Image.open(path).quantize(256, Image.Quantize.FASTOCTREE).save(path, optimize=True)  # half the bytes


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        cwd = Path(folder)
        with Up(Path("cluster-data"), cwd=cwd) as up, under_load(up.endpoints):
            (PICTURES / "top.svg").write_text(top(cwd))
            live(up, cwd)


if __name__ == "__main__":
    main()
