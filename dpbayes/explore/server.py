"""The page's server: it serves this machine only, to holders of a token, and never names a file.

It uses ``http.server`` of the standard library: one user on the loopback interface asks for a few
addresses, so an agency's machine needs no further package. This module adds what that library does
not check: who may ask (``_refusal``), how much, and what a browser may do with the answer.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dpbayes.core.errors import DpbayesError, OutputError
from dpbayes.explore.worker import Worker

HOST = "127.0.0.1"
MOST_BYTES = 10_000  # most bytes of a request
SECONDS = 10  # time for a request to arrive
Facts = Callable[[Mapping[str, Any]], dict[str, Any]]


class Site(ThreadingHTTPServer):
    """The server of the page.

    Args:
        page: renders the page, given a nonce for its script and the token.
        facts: computes public facts of settings, without delay.
        worker: tries settings.
        port: port number; 0 for any that is free.
    Raises:
        OutputError: the port is taken.
    """

    daemon_threads = True

    def __init__(
        self, page: Callable[[str, str], bytes], facts: Facts, worker: Worker, port: int = 0
    ) -> None:
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise OutputError(f"--port {port}: {error.strerror}.") from None
        self.page, self.facts, self.worker = page, facts, worker
        self.token = secrets.token_urlsafe(32)
        names = (HOST, "localhost")
        self.hosts = {f"{name}:{self.server_port}" for name in names}

    @property
    def address(self) -> str:
        """Address to open in a browser; as secret as the reference records."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors, such as a closed connection; a printed message could contain a token."""


class Handler(BaseHTTPRequestHandler):
    """Handler of one request."""

    server: Site
    timeout = SECONDS
    server_version, sys_version = "dpbayes", ""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because addresses contain the token."""

    def do_GET(self) -> None:
        """Serve the page."""
        address = urlsplit(self.path)
        token = parse_qs(address.query).get("token", [""])[0]
        if self._refused(token, address.path, ("/",)):
            return
        nonce = secrets.token_urlsafe(16)
        self._answer(HTTPStatus.OK, self.server.page(nonce, token), "text/html", nonce)

    def do_POST(self) -> None:
        """Answer the requests that the page sends."""
        site, known = self.server, ("/facts", "/start", "/state", "/cancel")
        if self._refused(self.headers.get("X-Token", ""), self.path, known):
            return
        try:
            asked = self._body()
            work: dict[str, Callable[[], Any]] = {
                "/facts": lambda: self._facts(asked),
                "/start": lambda: site.worker.start(asked),
                "/state": site.worker.state,
                "/cancel": site.worker.cancel,
            }
            status, answer = HTTPStatus.OK, work[self.path]()
        except DpbayesError as error:
            status, answer = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except ValueError:
            status, answer = HTTPStatus.BAD_REQUEST, {"error": "expected a JSON object."}
        self._answer(status, json.dumps(answer).encode(), "application/json")

    def _facts(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Public facts of settings; an error is part of the answer, as the user may be typing."""
        try:
            return self.server.facts(asked)
        except DpbayesError as error:
            return {"error": str(error)}

    def _body(self) -> dict[str, Any]:
        """Read the settings that are sent; ValueError for anything but a small JSON object."""
        if self.headers.get_content_type() != "application/json":
            raise ValueError("another type")
        length = int(self.headers.get("Content-Length", ""))
        if not 0 <= length <= MOST_BYTES:
            raise ValueError("too long")
        try:
            content = json.loads(self.rfile.read(length))
        except RecursionError:
            raise ValueError("too deep") from None
        if not isinstance(content, dict):
            raise ValueError("no object")
        return content

    def _refused(self, token: str, path: str, known: tuple[str, ...]) -> bool:
        """Refuse a request that is not for this page or not from it; True if refused."""
        status = self._refusal(token)
        if status is None and path not in known:
            status = HTTPStatus.NOT_FOUND
        if status is not None:
            self.close_connection = True
            self._answer(status, status.phrase.encode(), "text/plain")
        return status is not None

    def _refusal(self, token: str) -> HTTPStatus | None:
        """Status with which to refuse a request, or None to accept it.

        Refuses another host name for this machine (DNS rebinding), a page of another origin, and a
        wrong or missing token.
        """
        hosts = self.server.hosts
        if self.headers.get_all("Host", []) not in [[host] for host in hosts]:
            return HTTPStatus.MISDIRECTED_REQUEST
        origin = self.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in hosts}:
            return HTTPStatus.FORBIDDEN
        # Compared in constant time: the time of an answer must not reveal the token.
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return HTTPStatus.FORBIDDEN
        return None

    def _answer(self, status: HTTPStatus, content: bytes, kind: str, nonce: str = "") -> None:
        script = f"script-src 'nonce-{nonce}'; connect-src 'self'; " if nonce else ""
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
            "Content-Security-Policy": (
                f"default-src 'none'; {script}img-src data:; style-src 'unsafe-inline'; "
                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            ),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def filled(template: Mapping[str, Any]) -> Callable[[str, str], bytes]:
    """Make a function that renders the page, with the values that it shows at first."""
    from jinja2 import Environment  # takes time to import

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    folder = Path(__file__).parent
    text = (folder / "page.html").read_text(encoding="utf-8")
    page_template = environment.from_string(text)
    script = (folder / "page.js").read_text(encoding="utf-8")

    def page(nonce: str, token: str) -> bytes:
        return page_template.render(**template, nonce=nonce, token=token, script=script).encode()

    return page
