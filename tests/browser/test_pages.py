"""The pages of a release in a real browser."""

import pytest

from tests.browser.conftest import AUDIT, WIDTHS

pytestmark = pytest.mark.xdist_group("browser")  # one browser for all of them


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", ["confidential", "public"])
def test_a_page_is_rendered_and_can_be_read(browser, pages, page, width):
    """No message on the console, contrast AA, names, nothing wider than the window."""
    browser.open(pages[page], width)
    browser.shot(f"{page}-{width}")
    assert browser.audit() == []
    assert ("CONFIDENTIAL" in browser.js("return document.body.innerText")) is (
        page == "confidential"
    )


def test_every_part_is_reached_by_the_keyboard(browser, pages):
    browser.open(pages["confidential"])
    wanted, reached, rings = browser.walk()
    assert len(wanted) > 10
    assert reached == wanted
    assert all(rings)


def test_the_audit_finds_what_is_wrong(browser, pages):
    """It can fail: each fault that is put in is named."""
    browser.open(pages["public"])
    browser.js(
        """
        document.querySelector("section p").style.color = "#999";
        document.querySelector("h1").style.width = "3000px";
        document.querySelector("th").removeAttribute("scope");
        document.body.insertAdjacentHTML("beforeend", "<main><img src='data:,'><h4>x</h4>");
        document.querySelector("a").textContent = "";
        console.error("oh");
        """
    )
    found = " ".join(browser.audit())
    for what in ("contrast 2.85", "wider than the window", "no scope", "no alternative",
                 "out of order", "one h1 and one main", "no name", "oh"):  # fmt: skip
        assert what in found, what
    browser.js("document.querySelector('a').style.outline = 'none';")
    assert not browser.js(AUDIT + "return ring(document.querySelector('a'));")
