"""The six steps of `dpbayes app` in a real browser, by what is seen alone."""

import json
import socket
import time

import pytest

from tests.app_server import SCHEMA, AppServer, people
from tests.browser.conftest import WIDTHS

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def server(tmp_path):
    started = AppServer(tmp_path, people(tmp_path / "people.csv"))
    yield started
    started.close()


class Hands:
    """What somebody at the browser does, and looks at."""

    def __init__(self, browser):
        self.browser, self.driver = browser, browser.driver
        browser.open("about:blank")

    def one(self, css, how="css selector", seconds=30):
        """The one element, once the page is loaded that has it."""
        end = time.monotonic() + seconds
        while len(elements := self.driver.find_elements(how, css)) != 1:
            assert time.monotonic() < end, (css, len(elements), self.driver.current_url)
            time.sleep(0.1)
        return elements[0]

    def click(self, text):
        """Click the one button or link with this text, and wait for the page that it leads to."""
        path = "//main//*[self::a or self::button][not(@aria-hidden)]"
        button = self.one(f"{path}[normalize-space()={text!r}]", "xpath")
        self.browser.js("window.before = true")
        button.click()
        end = time.monotonic() + 30
        while self.browser.js("return window.before || document.readyState !== 'complete'"):
            assert time.monotonic() < end, text
            time.sleep(0.05)

    def type(self, name, text):
        element = self.one(f"main [name='{name}']:not([type=hidden])")
        element.clear()
        element.send_keys(text)

    def until(self, text, seconds=120):
        """Wait until the page shows a text, without a reload by hand."""
        from selenium.common.exceptions import WebDriverException

        end = time.monotonic() + seconds
        while True:
            try:
                if text in self.one("main").text:
                    return
            except WebDriverException:  # the page is just loaded again
                pass
            assert time.monotonic() < end, self.one("main").text
            time.sleep(0.1)

    def framed(self, name):
        """The text of a page about the release, with that of its pictures."""
        self.driver.switch_to.frame(self.one(f"iframe[src$='/{name}/']"))
        pictures = self.driver.find_elements("css selector", "img")
        text = "\n".join([self.one("body").text, *(each.get_attribute("alt") for each in pictures)])
        self.driver.switch_to.default_content()
        return text

    def look(self, name, *, walk=True):
        """Nothing is wrong with the page in both widths, light and dark, nor for the keyboard."""
        for dark in ("dark", "light"):  # other tests find it light
            feature = {"name": "prefers-color-scheme", "value": dark}
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            for width in WIDTHS:
                self.browser.resize(width)
                self.browser.shot(f"app-{name}-{width}-{dark}")
                assert self.browser.audit(10) == [], (name, width, dark)
        if walk:
            wanted, reached, rings = self.browser.walk()
            assert reached == wanted
            assert all(rings)


def statement(server):
    path = server.folder / "people-release/output-1/release/guarantee.json"
    return json.loads(path.read_text())


def test_a_table_from_file_to_release(browser, server):
    hands = Hands(browser)
    browser.driver.get(server.address)
    hands.until("Read the file and draft a schema: done")
    hands.look("file")
    hands.click("Go on to the schema")
    hands.until("guesses are left")
    hands.look("schema-guessed")
    hands.click("age")
    hands.look("column")
    for _ in range(3):
        hands.type("source", "questionnaire 2024, p. 12")
        hands.click("Save, and confirm all")
    hands.until("Nothing is guessed any more")
    hands.type("title", "Illness in three regions")
    hands.click("Save")
    hands.click("Save, and check the records")
    hands.until("The records fit the schema.")
    hands.look("schema")
    hands.click("Go on to what must hold")
    hands.look("hold")
    hands.type("keep", "ill ~ age")
    hands.click("Save, and go on to ε")
    hands.until("A plan needs a number that may be public")
    hands.type("number", "400")
    hands.click("Save")
    hands.until("distance of pairs of columns")
    hands.until("another sample, without any privacy")
    slide = hands.one("#slide")
    for _ in range(3):  # by the keyboard, to 3
        slide.send_keys("\ue014")
    assert hands.one("#epsilon").get_attribute("value") == "3"
    hands.until("marginals: ε = 3 (add/remove)")
    # It is saved before a button is clicked.
    assert '"epsilon": "3"' in (server.folder / "people-release/choices.json").read_text()
    hands.look("epsilon")
    hands.click("Save, and go on to the release")
    hands.until("marginals: ε = 3 (add/remove)")
    hands.click("Release with ε = 3")
    hands.until("Release: done")
    hands.look("release")
    assert statement(server)["epsilon"] == pytest.approx(3)
    assert statement(server)["basis"] == "strict"
    hands.click("Look at the release")
    hands.until("Write both pages: done")
    assert "Illness in three regions" in hands.framed("readers")
    assert "Verdict" in hands.framed("house")
    hands.look("look", walk=False)  # the keyboard goes into the pages that are shown
    stored = browser.js("return [localStorage.length, sessionStorage.length, document.cookie]")
    assert stored == [0, 0, ""]  # the cookie is not for scripts
    commands = hands.one("#commands").text
    assert "--total-epsilon=3 '--keep=ill ~ age'" in commands
    browser.open("about:blank")
    assert server.process.wait(60) == 0  # the page is closed


def test_a_regression_with_groups(browser, server):
    """By a family, in the fourth step without trials; the violins are on the publisher's page."""
    hands = Hands(browser)
    browser.driver.get(server.address)
    hands.until("Go on to the schema")
    hands.click("Go on to the schema")
    hands.click("Edit the file as text")
    hands.type("text", SCHEMA)
    hands.click("Save")
    hands.click("Go on to what must hold")
    hands.one("[value=family]").click()
    hands.type("formula", "ill ~ age + (1 | region)")
    hands.one("[name=family] option[value=bernoulli]").click()
    hands.one("[name=mechanism] option[value=''] ~ option:nth-of-type(5)").click()
    assert hands.one("[name=mechanism]").get_attribute("value") == "anchored"
    hands.click("Save, and go on to ε")
    hands.type("number", "400")
    hands.click("Save")
    hands.until("anchored: ε = 1 (substitution)")
    hands.look("epsilon-model")
    hands.click("Save, and go on to the release")
    hands.click("Release with ε = 1")
    hands.until("Cancel")
    hands.until("Release: done")
    assert statement(server)["epsilon_substitution"] == 1.0
    hands.click("Look at the release")
    hands.until("Write both pages: done")
    assert "Lipschitz bounds of records" in hands.framed("house")


def test_the_address_opens_once(browser, server):
    hands = Hands(browser)
    browser.driver.get(server.address)
    hands.until("1. File")
    browser.driver.delete_all_cookies()
    browser.driver.get(server.address)
    assert "opens the page once" in browser.driver.page_source


def test_a_page_whose_program_has_ended_is_empty_and_asks_nobody(browser, server):
    """Another program may listen on its port by then."""
    hands = Hands(browser)
    browser.driver.get(server.address)
    hands.until("Go on to the schema")
    hands.click("Go on to the schema")
    server.end()
    gone = hands.one(".gone:not([hidden])")
    assert "The program has ended" in gone.text
    assert not browser.driver.find_elements("css selector", "main, header")
    with socket.create_server(("127.0.0.1", server.port)) as other:
        other.settimeout(5)  # a browser that tries again does so after 3 seconds
        with pytest.raises(TimeoutError):
            other.accept()
