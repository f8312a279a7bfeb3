"""A `dpbayes app` that runs, and a client that asks it as a browser does."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
import time
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode, urlsplit

SCHEMA = """\
[columns.age]
type = "count"
lower = 18
upper = 90
public = true

[columns.region]
type = "categorical"
levels = ["n", "s", "w"]
public = true

[columns.ill]
type = "binary"
levels = ["no", "yes"]
"""


def people(path: Path, rows: int = 400) -> Path:
    """Write records that fit ``SCHEMA``."""
    lines = [
        f"{18 + 7 * k % 60},{'nsw'[k % 3]},{'yes' if k % 4 == 1 else 'no'}" for k in range(rows)
    ]
    path.write_text("\n".join(["age,region,ill", *lines]) + "\n")
    return path


class AppServer:
    """A process of the command, until ``end``."""

    def __init__(self, folder: Path, data: Path, *options: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "dpbayes", "app", str(data), *options],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        line = self.process.stdout.readline()
        assert line.startswith("Open http://127.0.0.1:"), line + self.process.stdout.read()
        self.address = line.split()[1]
        place = urlsplit(self.address)
        self.port, self.root = place.port, place.path.rstrip("/")
        self.cookie = ""

    def open(self) -> None:
        """Open the address, which works once."""
        status, headers, _ = self.ask("GET", f"/?{urlsplit(self.address).query}")
        assert status == 200
        ((name, cookie),) = SimpleCookie(headers["set-cookie"]).items()
        self.cookie = f"{name}={cookie.value}"

    def ask(self, method: str, path: str, **typed: str) -> tuple[int, dict[str, str], str]:
        """Status, headers and text of an answer; redirections are not followed."""
        return self.ask_bytes(method, path, urlencode(typed).encode())

    def ask_bytes(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], str]:
        """As ``ask``, with any body."""
        headers = {"Cookie": self.cookie} if self.cookie else {}
        if method == "POST":
            headers |= {
                "Origin": f"http://127.0.0.1:{self.port}",
                "Content-Type": "application/x-www-form-urlencoded",
            }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, self.root + path, body if method == "POST" else None, headers)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        connection.close()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text

    def get(self, path: str) -> str:
        """A page."""
        status, _, text = self.ask("GET", path)
        assert status == 200, text
        return text

    def post(self, path: str, **typed: str) -> str:
        """Send a form, and return the page that it leads to, without an error."""
        page = self.sent(path, **typed)
        assert not alerts(page)
        return page

    def sent(self, path: str, **typed: str) -> str:
        """Send a form, and return the page that it leads to."""
        status, headers, _ = self.ask("POST", path, **typed)
        assert status == 303
        return self.get(headers["location"].removeprefix(self.root).partition("#")[0])

    def state(self, place: int) -> str:
        """What the page of a column sends with its form, so that no older one is saved."""
        (state,) = re.findall(r'name="state" value="(.*?)"', self.get(f"/schema/column/{place}"))
        return state

    def release(self) -> str:
        """Click the button that releases."""
        (ticket,) = re.findall(r'name="ticket" value="(.*?)"', self.get("/release"))
        return self.post("/release", ticket=ticket)

    def until(self, path: str, text: str, seconds: float = 120) -> str:
        """Load a page again until it shows a text."""
        end = time.monotonic() + seconds
        while text not in (page := self.get(path)):
            assert time.monotonic() < end, page
            time.sleep(0.1)
        return page

    def watch(self) -> http.client.HTTPConnection:
        """Look at the page, as an open one does, until the connection is closed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", self.root + "/events", headers={"Cookie": self.cookie})
        assert connection.getresponse().readline().startswith(b"data: ")
        return connection

    def end(self, number: int = signal.SIGINT) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(90)

    def close(self) -> None:
        """End the process, if it has not ended, and its pipe."""
        with self.process:
            self.process.terminate()


def alerts(page: str) -> list[str]:
    """Messages of errors on a page."""
    return re.findall(r'role="alert">(.*?)</div>', page, re.DOTALL)
