"""The page of `dpbayes explore` in a real browser: a try from its beginning, and one cancelled."""

import threading

import pytest

from dpbayes.explore.server import Site, filled
from dpbayes.explore.settings import CONTROLS, offered
from dpbayes.explore.trial import Explorer
from dpbayes.explore.worker import Worker
from tests.browser.conftest import SCHEMA, WIDTHS, people

pytestmark = pytest.mark.xdist_group("browser")


class Slow(Explorer):
    """Takes its time at one ε."""

    def run(self, asked, step):
        if asked["epsilon"] == 7:
            step("sleeping")
            threading.Event().wait(600)
        return super().run(asked, step)


@pytest.fixture(scope="module")
def site():
    explorer = Explorer(SCHEMA, None, people())
    shown = {"offered": offered(SCHEMA, None), "controls": CONTROLS}
    page = filled({**shown, "about": "Reference: 300 records."})
    worker = Worker(Slow, SCHEMA, None, people())
    with Site(page, explorer.facts, worker) as found:
        threading.Thread(target=found.serve_forever, args=(0.05,), daemon=True).start()
        yield found
        found.shutdown()
        worker.close()


def until(browser, text, seconds=60):
    """Wait for a text in the status line."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser.driver, seconds, 0.1).until(
        lambda _: text in browser.js("return document.getElementById('status').textContent")
    )


def put(browser, name, value):
    browser.js(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event('input', {bubbles: true}));", name, value,
    )  # fmt: skip


def test_a_try_and_its_page(browser, site):
    """Controls work, what is found is shown and kept, and the page stays readable."""
    browser.open(site.address)
    assert "Never the records that are to be released" in browser.driver.page_source
    put(browser, "slider", "0.6")
    assert browser.js("return document.getElementById('epsilon').value") == "4"
    browser.js("document.getElementById('run').click()")
    until(browser, "is done")
    text = browser.js("return document.querySelector('main').innerText")
    assert "distance, pairs" in text
    assert "dpbayes synthesize DATA --mechanism marginals --epsilon 4" in text
    assert len(browser.js("return [...document.querySelectorAll('#history tbody tr')]")) == 1
    wanted, reached, rings = browser.walk()
    assert reached == wanted
    assert all(rings)
    for width in WIDTHS:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.shot(f"explore-{width}")
        assert browser.audit() == []


def test_a_try_is_cancelled_and_wrong_numbers_are_refused(browser, site):
    browser.open(site.address)
    put(browser, "epsilon", "7")
    browser.js("document.getElementById('run').click()")
    until(browser, "sleeping")
    assert browser.js("return document.querySelector('progress').checkVisibility()")
    browser.js("document.getElementById('cancel').click()")
    until(browser, "Cancelled")
    put(browser, "epsilon", "1000")
    browser.driver.implicitly_wait(5)
    (message,) = browser.driver.find_elements("css selector", "#facts .failed")
    assert "must be a number from 0.001 to 50" in message.text
    assert browser.js("return document.getElementById('run').disabled")


def test_nothing_is_loaded_from_elsewhere(browser, site):
    browser.open(site.address)
    loaded = browser.js("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert all(name.startswith(f"http://127.0.0.1:{site.server_port}/") for name in loaded)
    assert browser.js("return typeof token") == "string"
