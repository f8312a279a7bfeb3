"""Who may ask the page: only the browser that opened its address, from the page itself.

This checks what the web framework leaves open: the host's name (DNS rebinding), the page that a
request comes from, how much is sent, and what a browser may do with the answer.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = "127.0.0.1"
COOKIE = "dpbayes"
MOST_BYTES = 2_000_000  # of a request: a schema file of some hundred columns
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
# A report is a page of its own, shown inside of the app's: it has no script and asks for nothing.
REPORT_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
STRANGER = (
    "Not allowed. The address that `dpbayes app` prints opens the page once, in one browser. To "
    "open it in another, end the program and start it again: nothing is lost."
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Gate:
    """The application behind its checks.

    The address has a token that opens the page once: the browser gets a cookie in its place. A
    cookie is sent to all servers of a machine, whatever their port, but only for its own path, so
    the path is random, too.

    Args:
        app: answers requests that are let through, without the path's random part.
        port: port of the page.

    Attributes:
        opened: whether the address was used.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app, self._port = app, port
        self._token, self._cookie = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.root = f"/{secrets.token_urlsafe(12)}"
        self._hosts = [f"{name}:{port}".encode() for name in (HOST, "localhost")]
        self.opened = False

    @property
    def address(self) -> str:
        """Address to open in a browser, once; as secret as the records."""
        return f"http://{HOST}:{self._port}{self.root}/?token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as an ASGI application."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = _headers_of(scope)
        status = self._refusal(scope, headers)
        if status is None and self._is_first(scope):
            await self._open(send)
            return
        if status is None and not self._known(headers):
            await _answer(send, HTTPStatus.FORBIDDEN, {}, STRANGER)
            return
        if status is not None:
            await _answer(send, status, {})
            return
        inside = dict(scope) | {"path": scope["path"][len(self.root) :], "root_path": ""}
        inside["raw_path"] = inside["path"].encode()

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.decode().lower() for name, _ in message["headers"]}
                more = [(n.encode(), v.encode()) for n, v in _HEADERS.items() if n not in given]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(inside, receive, guarded)

    def _refusal(self, scope: Scope, headers: Mapping[bytes, list[bytes]]) -> HTTPStatus | None:
        """Status with which to refuse a request before it is known who asks; None to go on."""
        if len(hosts := headers.get(b"host", [])) != 1 or hosts[0] not in self._hosts:
            return HTTPStatus.MISDIRECTED_REQUEST
        if scope["method"] not in ("GET", "POST"):
            return HTTPStatus.METHOD_NOT_ALLOWED
        origin = headers.get(b"origin", [])
        if origin not in ([], [b"http://" + hosts[0]]):
            return HTTPStatus.FORBIDDEN
        site = headers.get(b"sec-fetch-site", [b"none"])
        if scope["method"] == "POST":
            if not origin or site not in ([b"same-origin"], [b"none"]):
                return HTTPStatus.FORBIDDEN
            length = headers.get(b"content-length", [b""])[0]
            endless = b"transfer-encoding" in headers or not length.isdigit()
            if endless or int(length) > MOST_BYTES:
                return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        elif site not in ([b"same-origin"], [b"none"]) and not self._is_first(scope):
            return HTTPStatus.FORBIDDEN
        if not scope["path"].startswith(self.root + "/"):
            return HTTPStatus.NOT_FOUND
        return None

    def _is_first(self, scope: Scope) -> bool:
        """Whether the request has the token, which opens the page once."""
        typed = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
        # Compared in constant time: the time of an answer must not reveal the token.
        right = hmac.compare_digest(typed[0].encode(), self._token.encode())
        return right and not self.opened and scope["path"] == self.root + "/"

    def _known(self, headers: Mapping[bytes, list[bytes]]) -> bool:
        """Whether the request has the cookie."""
        # Other servers of this machine set cookies, too, of any form and name.
        cookies = b";".join(headers.get(b"cookie", [])).split(b";")
        right = f"{COOKIE}={self._cookie}".encode()
        return any([hmac.compare_digest(cookie.strip(), right) for cookie in cookies])

    async def _open(self, send: Send) -> None:
        """Take the token, and give the cookie."""
        self.opened = True
        cookie = f"{COOKIE}={self._cookie}; Path={self.root}/; HttpOnly; SameSite=Strict"
        # A page that goes on by itself, no redirection: a browser that came from elsewhere would
        # not send the cookie with a redirected request.
        page = (
            '<!DOCTYPE html><title>dpbayes</title><link rel="icon" href="data:,">'
            f'<meta http-equiv="refresh" content="0; url={self.root}/file">'
            f'<a href="{self.root}/file">Go on</a>'
        )
        more = {"set-cookie": cookie, "content-type": "text/html; charset=utf-8"}
        await _answer(send, HTTPStatus.OK, more, page)


def _headers_of(scope: Scope) -> dict[bytes, list[bytes]]:
    """Values of a request's headers, by name."""
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.lower(), []).append(value)
    return headers


async def _answer(send: Send, status: HTTPStatus, more: Mapping[str, str], text: str = "") -> None:
    """Answer with a text; by default with the status alone."""
    headers = {**_HEADERS, "content-type": "text/plain; charset=utf-8", **more}
    start = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": int(status), "headers": start})
    await send({"type": "http.response.body", "body": (text or status.phrase).encode()})
