"""Who may ask the page of `dpbayes app`: the browser that opened its address, from the page."""

import asyncio
from http.cookies import SimpleCookie

import pytest

from dpbayes.app.gate import COOKIE, MOST_BYTES, Gate

PORT = 4321
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"


async def inner(scope, receive, send):
    """Tells the path that was let through."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


def ask(gate, path, method="GET", query="", **headers):
    """Status, headers and text of an answer; None takes a header away."""
    given = {"host": HOST, **{name.replace("_", "-"): text for name, text in headers.items()}}
    raw = [(k.encode(), v.encode("latin-1")) for k, v in given.items() if v is not None]
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "headers": raw, "root_path": "",
    }  # fmt: skip
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(gate(scope, None, send))
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answered, sent[1]["body"].decode()


def opened(gate):
    """The cookie that a browser has after it opened the address."""
    place, query = gate.address.removeprefix(ORIGIN).split("?")
    status, headers, text = ask(gate, place, query=query)
    assert status == 200
    assert f'url={gate.root}/file"' in text
    cookie = SimpleCookie(headers["set-cookie"])[COOKIE]
    assert cookie["path"] == gate.root + "/"  # other servers of this machine do not get it
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
    return f"{COOKIE}={cookie.value}"


@pytest.fixture
def gate():
    return Gate(inner, PORT)


def test_the_address_opens_the_page_once(gate):
    place, query = gate.address.removeprefix(ORIGIN).split("?")
    assert ask(gate, f"{gate.root}/file")[0] == 403
    cookie = opened(gate)
    assert ask(gate, f"{gate.root}/file", cookie=cookie)[::2] == (200, "/file")
    status, _, text = ask(gate, place, query=query)
    assert (status, "opens the page once" in text) == (403, True)
    assert ask(gate, place, query=query, cookie=cookie)[0] == 200  # the page, without a cookie


def test_secrets_are_long_and_different():
    gates = [Gate(inner, PORT) for _ in range(3)]
    assert len({gate.address for gate in gates}) == len({gate.root for gate in gates}) == 3
    assert len(gates[0].address.partition("token=")[2]) >= 40
    assert opened(gates[0]) != opened(gates[1])


POST = {"origin": ORIGIN, "content_length": "3", "sec_fetch_site": "same-origin"}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 200),
        ("GET", {"sec_fetch_site": "same-origin"}, 200),
        ("GET", {"sec_fetch_site": "none"}, 200),  # typed, or from a bookmark
        ("GET", {"sec_fetch_site": "cross-site"}, 403),
        ("GET", {"sec_fetch_site": "same-site"}, 403),  # another server of this machine
        ("GET", {"origin": "http://evil.example"}, 403),
        ("GET", {"host": "localhost:4321"}, 200),
        ("GET", {"host": "evil.example:4321"}, 421),  # a name that was made to mean this machine
        ("GET", {"host": "127.0.0.1"}, 421),
        ("GET", {"host": "127.0.0.1:80"}, 421),
        ("GET", {"host": None}, 421),
        ("GET", {"cookie": None}, 403),
        ("GET", {"cookie": f"{COOKIE}=wrong"}, 403),
        ("GET", {"cookie": f"{COOKIE}=é"}, 403),
        ("GET", {"cookie": "\x00;=;,"}, 403),
        ("PUT", POST, 405),
        ("DELETE", POST, 405),
        ("OPTIONS", POST, 405),
        ("HEAD", {}, 405),
        ("POST", POST, 200),
        ("POST", POST | {"origin": None}, 403),
        ("POST", POST | {"origin": "null"}, 403),  # a sandboxed page, such as a report
        ("POST", POST | {"origin": "http://evil.example"}, 403),
        ("POST", POST | {"origin": "http://localhost:4321"}, 403),  # not the host that is asked
        ("POST", POST | {"origin": f"https://{HOST}"}, 403),
        ("POST", POST | {"sec_fetch_site": "cross-site"}, 403),
        ("POST", POST | {"sec_fetch_site": "same-site"}, 403),
        ("POST", POST | {"content_length": None}, 413),
        ("POST", POST | {"content_length": "-1"}, 413),
        ("POST", POST | {"content_length": "many"}, 413),
        ("POST", POST | {"content_length": str(MOST_BYTES + 1)}, 413),
        ("POST", POST | {"transfer_encoding": "chunked"}, 413),
        ("POST", POST | {"cookie": None}, 403),
    ],
)
def test_who_may_ask(gate, method, headers, status):
    cookie = opened(gate)
    assert ask(gate, f"{gate.root}/x", method, **({"cookie": cookie} | headers))[0] == status


@pytest.mark.parametrize(
    "other", ['a={"x":1}', "flag", "a=b c", "x@y=1", "a=é", "path=/", 'a="un', f"{COOKIE}=evil"]
)
def test_cookies_of_other_servers_do_not_matter(gate, other):
    """They are sent to all ports."""
    cookie = opened(gate)
    for both in (f"{other}; {cookie}", f"{cookie}; {other}"):
        assert ask(gate, f"{gate.root}/x", cookie=both)[0] == 200
    assert ask(gate, f"{gate.root}/x", cookie=other)[0] == 403


def test_two_hosts_are_refused(gate):
    scope = {"type": "http", "method": "GET", "path": gate.root + "/x", "query_string": b"",
             "headers": [(b"host", HOST.encode()), (b"host", HOST.encode())]}  # fmt: skip
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(gate(scope, None, send))
    assert sent[0]["status"] == 421


def test_other_paths_are_not_found_and_say_nothing(gate):
    cookie = opened(gate)
    for path in ("/", "/file", "/x" + gate.root + "/file", gate.root, gate.root + "x/file"):
        status, _, text = ask(gate, path, cookie=cookie)
        assert (status, text) == (404, "Not Found")


def test_what_a_browser_may_do_with_an_answer(gate):
    """Nothing is stored, loaded from elsewhere, or shown inside of another page."""
    for headers in (ask(gate, f"{gate.root}/x", cookie=opened(gate))[1], ask(gate, "/")[1]):
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
