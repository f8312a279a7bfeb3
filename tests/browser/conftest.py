"""One Chromium for all tests of pages, from Debian's packages chromium and chromium-driver."""

from __future__ import annotations

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.pages.comparison import PageTopic
from dpbayes.pages.confidential import confidential_page
from dpbayes.pages.readers import public_page

REQUIRED = os.environ.get("DPBAYES_REQUIRE_CHROMIUM")  # set where a skip would hide a fault
WIDTHS = (1280, 390)
AUDIT = (Path(__file__).parent / "audit.js").read_text(encoding="utf-8")
LONG = "what an interviewer wrote down of the employment status"
SCHEMA = dpb.Schema.from_dict(
    {
        "title": "What interviewers wrote down, with a title that needs two lines on a phone",
        "publisher": "Office of Statistics",
        "unit_of_record": "a person",
        "columns": {
            "age": {"type": "count", "upper": 99},
            LONG: {"type": "categorical", "levels": ["employed & insured", "not", "other"]},
            "wage": {
                "type": "continuous", "lower": 0, "upper": 100000, "missing": True, "atoms": [0],
            },
            "start": {"type": "date", "lower": "2020-01-01", "upper": "2021-12-31"},
        }
    }
)  # fmt: skip


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Headless; what a page prints on its console is kept."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None or find_spec("selenium") is None:
        missing = "needs selenium, and Debian's packages chromium and chromium-driver"
        if REQUIRED:
            pytest.fail(missing)
        pytest.skip(missing)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile = tmp_path_factory.mktemp("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                     "--disable-background-networking", f"--user-data-dir={profile}"):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    found = webdriver.Chrome(options=options, service=service)
    yield Browser(found)
    found.quit()


class Browser:
    """What tests of pages do with it."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, address, width=1280):
        """A page, in a window of this width; what earlier ones printed is forgotten."""
        self.driver.get_log("browser")
        self.resize(width)
        self.driver.get(address)

    def resize(self, width):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def js(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def audit(self, fewest=20):
        """What is wrong with the page as it stands, in sentences; fewer texts are too few."""
        found = [entry["message"] for entry in self.driver.get_log("browser")]
        return [*found, *self.js(AUDIT + "return audit(arguments[0]);", fewest)]

    def walk(self):
        """Elements that can be focused, and those that the Tab key focuses, both in order."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        wanted = self.js(AUDIT + "return focusable().map(name);")
        self.js(  # the Tab key begins after what had the focus last
            "const b = document.body; b.tabIndex = -1; b.focus(); b.removeAttribute('tabindex');"
            "window.scrollTo(0, 0);"
        )
        reached, rings = [], []
        for _ in wanted:
            ActionChains(self.driver).send_keys(Keys.TAB).perform()
            reached.append(self.js(AUDIT + "return name(document.activeElement);"))
            rings.append(self.js(AUDIT + "return ring(document.activeElement);"))
        return wanted, reached, rings

    def shot(self, name):
        """The whole page as a picture, where DPBAYES_SCREENSHOTS names a folder."""
        folder = os.environ.get("DPBAYES_SCREENSHOTS")
        if folder:
            import base64

            found = self.driver.execute_cdp_cmd(
                "Page.captureScreenshot", {"captureBeyondViewport": True}
            )
            Path(folder).mkdir(parents=True, exist_ok=True)
            Path(folder, name + ".png").write_bytes(base64.b64decode(found["data"]))


def people(n=300, seed=1):
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 100, n)
    wage = (400 * age + 50000 * rng.random(n)).clip(0, 100000)
    wage = np.where(rng.random(n) < 0.3, np.nan, np.where(rng.random(n) < 0.2, 0, wage))
    levels = list(SCHEMA[LONG].levels)
    return pd.DataFrame(
        {
            "age": age,
            LONG: rng.choice(levels, n),
            "wage": wage,
            "start": (18262 + rng.integers(0, 700, n)).astype("datetime64[D]"),
        }
    )


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """Files of both pages, with every section that there is."""
    folder = tmp_path_factory.mktemp("pages")
    out = folder / "out"
    dpb.Job((dpb.Synthesizer(SCHEMA, dpb.Marginals(1.0)),), out).run(people(), lambda _: None)
    rng = np.random.default_rng(2)
    bound = rng.gamma(2.0, 2.0, 300)
    weight = 1 - bound / bound.max()
    table = pd.DataFrame(
        {
            "weight": weight, "lipschitz_unweighted": bound, "lipschitz": weight * bound,
            "truncated": bound > 12, "censored": bound > 10,
        }
    )  # fmt: skip
    table.to_csv(out / "confidential/weights.csv", index_label="record")
    summary = {
        "guarantee": {"epsilon": 5.0}, "diagnostics": {"max_rhat": 1.004, "min_ess_bulk": 812.0},
        "diagnostics_unweighted": {"max_rhat": 1.002}, "epsilon_local": 4.31,
        "warnings": ["12% of the records were clamped at some draw."],
    }  # fmt: skip
    (out / "confidential/fit.json").write_text(json.dumps(summary))
    asked = PageTopic(
        SCHEMA, people(), people(seed=3), keys=["age", LONG], sensitive="wage",
        formulas=["wage ~ age"],
    )  # fmt: skip
    found = {"confidential": confidential_page(out, asked), "public": public_page(out, SCHEMA)}
    for name, content in found.items():
        (folder / f"{name}.html").write_bytes(content)
    return {name: (folder / f"{name}.html").as_uri() for name in found}
