"""The server of `dpbayes explore`: who may ask, and tries that end when they are cancelled."""

import http.client
import json
import threading
import time

import pytest

from dpbayes.core.errors import EngineError, GuaranteeError, OutputError
from dpbayes.explore.server import MOST_BYTES, Site, filled
from dpbayes.explore.worker import Worker


class Stub:
    """Stands for an ``Explorer``, in the other process."""

    def run(self, asked, step):
        if asked.get("wrong"):
            raise GuaranteeError("epsilon is wrong")
        if asked.get("broken"):
            raise ZeroDivisionError("oh")
        step("working")
        time.sleep(asked.get("seconds", 0))
        return {"asked": asked}


@pytest.fixture(scope="module")
def site():
    worker = Worker(Stub)
    page = filled({"offered": {"<b>": ["epsilon"]}, "controls": (), "about": "</script>"})
    with Site(page, dict, worker) as found:
        threading.Thread(target=found.serve_forever, args=(0.05,), daemon=True).start()
        yield found
        found.shutdown()
        worker.close()


def ask(site, path, body=None, method="POST", **headers):
    """Status, headers and text of an answer; None takes a header away."""
    given = {"Host": f"127.0.0.1:{site.server_port}", "X-Token": site.token,
             "Content-Type": "application/json"}  # fmt: skip
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", site.server_port, timeout=10)
    content = body if isinstance(body, str) else json.dumps(body or {})
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Content-Length": str(len(content)), **given}.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(content.encode())
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read().decode()
    connection.close()
    return found


def wait_for(site, phase):
    for _ in range(600):
        state = json.loads(ask(site, "/state")[2])
        if state["phase"] == phase:
            return state
        time.sleep(0.05)
    raise AssertionError(state)


def test_it_listens_to_this_machine_alone(site):
    assert site.server_address[0] == "127.0.0.1"
    assert site.address.startswith("http://127.0.0.1:")
    assert len(site.token) >= 40
    with pytest.raises(OutputError, match="--port"):
        Site(None, None, None, site.server_port)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:{port}"}, 200),
        ({"Origin": "http://127.0.0.1:{port}"}, 200),
        ({"Host": "evil.example:{port}"}, 421),  # a name that was made to mean this machine
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": None}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"X_Token": None}, 403),
        ({"X_Token": "wrong"}, 403),
        ({"X_Token": "é"}, 403),
        ({"Content_Type": "text/plain"}, 400),  # what a form of another page can send
        ({"Content_Length": str(MOST_BYTES + 1)}, 400),
        ({"Content_Length": "-1"}, 400),
        ({"Content_Length": "many"}, 400),
    ],
)
def test_who_may_ask(site, headers, status):
    given = {k: v and v.format(port=site.server_port) for k, v in headers.items()}
    assert ask(site, "/state", **given)[0] == status


def test_the_page_needs_the_token_and_loads_nothing(site):
    for path, status in (("/", 403), ("/?token=x", 403), (f"/secret?token={site.token}", 404)):
        assert ask(site, path, method="GET", X_Token=None)[0] == status
    status, headers, text = ask(site, f"/?token={site.token}", method="GET", X_Token=None)
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'nonce-")
    assert policy.split("'nonce-")[1].split("'")[0] in text
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Never the records that are to be released" in text
    assert "<b>" not in text  # a name of a mechanism is text
    assert text.count("</script>") == 2
    assert ask(site, "/start", method="PUT")[0] == 501


def test_bad_requests_get_a_message(site):
    for body in ("[1]", "{", "null", '"a"'):
        assert ask(site, "/facts", body)[0] == 400
    assert json.loads(ask(site, "/facts", {"a": 1})[2]) == {"a": 1}


def test_tries_one_after_the_other(site):
    assert json.loads(ask(site, "/start", {"x": 1})[2])["phase"] == "running"
    assert wait_for(site, "done")["result"] == {"asked": {"x": 1}}
    ask(site, "/start", {"wrong": 1})
    assert wait_for(site, "failed")["error"] == "epsilon is wrong"
    ask(site, "/start", {"broken": 1})
    assert wait_for(site, "failed")["error"] == "ZeroDivisionError: oh"


def test_a_try_is_cancelled_with_its_process(site):
    ask(site, "/start", {"seconds": 600})
    while json.loads(ask(site, "/state")[2])["step"] != "working":
        time.sleep(0.05)
    process = site.worker._process
    status, _, text = ask(site, "/start", {})
    assert (status, "running" in text) == (400, True)
    assert json.loads(ask(site, "/cancel")[2])["phase"] == "cancelled"
    assert not process.is_alive()
    ask(site, "/start", {"x": 2})  # by another process
    assert wait_for(site, "done")["result"] == {"asked": {"x": 2}}


def test_a_process_that_dies_is_told(site):
    ask(site, "/start", {"seconds": 600})
    site.worker._process.kill()
    assert "has ended" in wait_for(site, "failed")["error"]
    ask(site, "/start", {"seconds": 600})
    with pytest.raises(EngineError, match="cancel it first"):
        site.worker.start({})
    ask(site, "/cancel")
