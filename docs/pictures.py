"""The pictures of the documentation: python docs/pictures.py, or make pictures.

They show the shipped records, which are public, and so have no confidential mark where they are
figures alone. Pages are photographed by Chromium, which has to be installed. Each file says which
version of the package it shows; a test compares.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import dpbayes as dpb
from dpbayes.app.project import Project
from dpbayes.demo.run import Demo, confidential, figures, run_demo
from dpbayes.mechanisms import Households, Panels
from dpbayes.pages import figures as pages
from dpbayes.pages.comparison import PageTopic, pair_grids
from dpbayes.pages.readers import PAGE, data_set, statement_of
from dpbayes.pages.regressions import compared
from dpbayes.plots import charts
from dpbayes.publication.output import CONFIDENTIAL, RELEASE
from dpbayes.records.formats import read_records
from dpbayes.report.whole import bounds_of, risk
from dpbayes.schema import Schema
from dpbayes.schema.clusters import Cluster
from studies.ours import households, panels, survey_weights, table_coverage

DATA = Path(dpb.__file__).parent / "data"
PICTURES = Path(__file__).parent / "pictures"
WIDTH, COLOURS = 1280, 96
PAGES = {"page-readers": (RELEASE, 1780), "page-publisher": (CONFIDENTIAL, 1780)}


def saved(name: str, content: bytes) -> None:
    """Write a picture of few colours and of at most ``WIDTH`` pixels, with the version."""
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    if picture.width > WIDTH:
        height = round(picture.height * WIDTH / picture.width)
        picture = picture.resize((WIDTH, height), Image.Resampling.LANCZOS)
    said = PngInfo()
    said.add_text("dpbayes", dpb.__version__)
    few = picture.quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(PICTURES / f"{name}.png", optimize=True, pnginfo=said)
    print(name, picture.size, f"{(PICTURES / f'{name}.png').stat().st_size / 1000:.0f} kB")


def rendered(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    content = io.BytesIO()
    figure.savefig(content, dpi=150)
    return content.getvalue()


def of_page(out: Path, demo: Demo) -> dict[str, Figure]:
    """Single figures of the publisher's page about the release, and of a fit."""
    schema = confidential(Schema.from_toml(DATA / "cps_earnings.toml"))
    released = data_set(out, schema)
    records = read_records(DATA / "cps_earnings.csv", schema)
    whole = PageTopic(schema, records).beside(released)
    names, distances, _ = pair_grids(whole)
    attacks = risk(whole, ["age", "gender", "region"], "education", bounds_of(statement_of(out)))
    regression = compared(whole, "earnings ~ age + education + gender")
    return {
        "figure-pairs": pages.pairs(names, distances),
        "figure-risk": pages.risk(attacks),
        "figure-regression": pages.regression(
            regression.formula,
            {"data": regression.ours, "synthetic": regression.theirs},
            regression.names,
        ),
        "figure-check": demo.posteriors["anchored"].plot("check"),
    }


def photographed(page: Path, height: int) -> bytes:
    """The upper part of a page, as Chromium shows it."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or "google-chrome"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.png"
        subprocess.run(
            [browser, "--headless", "--no-sandbox", "--hide-scrollbars", f"--screenshot={file}",
             f"--window-size={WIDTH},{height}", page.resolve().as_uri()],
            check=True, capture_output=True,
        )  # fmt: skip
        return file.read_bytes()


def of_tutorial(folder: Path) -> None:
    """The pictures of a release as ``docs/tutorial.md`` makes it."""
    records, schema = DATA / "nhefs.csv", DATA / "nhefs.toml"
    kept, out = "wt82 ~ qsmk + wt71 + age + sex", folder / "web"
    for words in (
        ["synthesize", records, "--epsilon", "1", "--delta", "1e-6", "--keep", kept, "--out", out],
        ["report", out, "--records", records, "--formula", kept],
    ):
        subprocess.run(
            [sys.executable, "-m", "dpbayes", *map(str, words), "--schema", str(schema)],
            check=True, capture_output=True,
        )  # fmt: skip
    saved("tutorial-columns", (out / CONFIDENTIAL / "density.png").read_bytes())
    saved("tutorial-page", photographed(out / CONFIDENTIAL / PAGE, 1780))


def of_app(folder: Path) -> bytes:
    """The fourth step of ``dpbayes app``, for the file of the tutorial."""
    from selenium import webdriver
    from selenium.webdriver.support.ui import WebDriverWait

    work = Project.opened(folder / "nhefs-release", str(DATA / "nhefs.csv"))
    shutil.copy(DATA / "nhefs.toml", work.schema)
    work.choose({"keep": "wt82 ~ qsmk + wt71 + age + sex", "delta": "1e-6", "number": "1600"})
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    words = [sys.executable, "-m", "dpbayes", "app", work.data, "--work", str(work.folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        browser = webdriver.Chrome(
            options=options,
            service=webdriver.ChromeService(executable_path=shutil.which("chromedriver")),
        )
        try:
            assert process.stdout is not None
            browser.set_window_size(WIDTH, 1500)
            browser.get(process.stdout.readline().split()[1])
            WebDriverWait(browser, 60).until(lambda page: page.current_url.endswith("/file"))
            browser.get(browser.current_url.removesuffix("file") + "epsilon")
            WebDriverWait(browser, 600).until(
                lambda page: len(page.find_elements("css selector", "#table tbody tr")) > 5
            )
            return bytes(browser.get_screenshot_as_png())
        finally:
            browser.quit()
            process.terminate()


def of_survey() -> Figure:
    """A population, and synthetic rows from a sample in which the rich are ten times as often."""
    records, survey = survey_weights.sample("strata", 10_000, np.random.default_rng(5))
    weighted = Schema(table_coverage.SCHEMA.columns, survey=survey)
    column = weighted["income"]
    curves = {"population": survey_weights.people()["income"].head(20_000)}
    for label, schema in (("with weights", weighted), ("without", weighted.released)):
        seeded = dpb.Synthesizer(schema, dpb.Marginals(1), settings=dpb.SamplerSettings(seed=5))
        (made,) = seeded.fit(records).sample(1, accept="none", seed=5).datasets
        curves[f"synthetic, {label}"] = made["income"]
    figure = charts.density_lines(
        {label: charts.density(values.to_numpy(float), column) for label, values in curves.items()},
        "income, thousand dollars a year",
    )
    return charts.mark(figure, "simulated people")


def of_households() -> Figure:
    """Ages of heads and partners: of records, of synthetic households, and of persons alone."""
    records = households.households(4_000, np.random.default_rng(5))
    seeded, plain = dpb.SamplerSettings(seed=5), households.SCHEMA.of_rows
    by_person = replace(plain, cluster=Cluster("hh", 6))
    made = {
        label: dpb.Synthesizer(schema, mechanism, settings=seeded)
        .fit(records)
        .sample(1, accept="none", seed=5)
        .datasets[0]
        for label, schema, mechanism in (
            ("synthetic households", households.SCHEMA, Households(1, delta=1e-6)),
            ("synthetic persons, paired at random", by_person, dpb.Marginals(1, delta=1e-6)),
        )
    }
    figure = Figure(figsize=(10, 3.7), layout="constrained")
    axes = figure.subplots(1, 3, sharex=True, sharey=True)
    for ax, (label, data) in zip(axes, {"records": records, **made}.items(), strict=True):
        heads, partners = (data[data["role"] == role] for role in ("head", "partner"))
        ages = partners["age"].to_numpy()
        if "hh" in data:
            beside = heads.set_index("hh")["age"].reindex(partners["hh"]).to_numpy()
        else:
            beside = np.resize(heads["age"].to_numpy(), len(ages))
        ax.plot(beside, ages, ".", markersize=2.5, alpha=0.35, color=charts.COLOURS[0])
        ax.set_title(label, fontsize=10)
        ax.set_xlabel("age of head")
        charts.clean(ax)
    axes[0].set_ylabel("age of partner")
    return charts.mark(figure, "simulated households")


def of_panels() -> Figure:
    """Wages of some persons over the years, and how alike they are: of records and synthetic."""
    records = panels.panel(5_000, np.random.default_rng(5))
    made = (
        dpb.Synthesizer(panels.SCHEMA, Panels(1, delta=1e-6), settings=dpb.SamplerSettings(seed=5))
        .fit(records)
        .sample(1, accept="none", seed=5)
        .datasets[0]
    )
    figure = Figure(figsize=(10, 3.7), layout="constrained")
    *paths, alike = figure.subplots(1, 3)
    tables = {"records": records, "synthetic persons": made}
    for ax, colour, (label, rows) in zip(paths, charts.COLOURS, tables.items(), strict=False):
        data = rows.sort_values(["nr", "year"])
        long = data.groupby("nr")["year"].transform("size") >= 4
        for _, person in list(data[long].groupby("nr"))[:40]:
            ax.plot(person["year"], person["wage"], "-", lw=0.9, alpha=0.6, color=colour)
        ax.set(title=label, xlabel="year", ylabel="log wage", ylim=(0.5, 4))
        distances = range(1, 6)
        waves = data.groupby("nr")["wage"]
        near = [data["wage"].corr(waves.shift(distance)) for distance in distances]
        alike.plot(distances, near, "o-", color=colour, label=label)
        charts.clean(ax)
    alike.set(title="two waves of a person", xlabel="waves apart", ylabel="correlation of wages",
              ylim=(0, 1))  # fmt: skip
    alike.legend(frameon=False, fontsize=9)
    charts.clean(alike)
    return charts.mark(figure, "simulated persons")


def main() -> None:
    """Run the demo and the tutorial, and make all pictures from them."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        demo = run_demo(out=out)
        for name, figure in figures(demo).items():
            saved(f"demo-{name}", rendered(figure))
        for name, figure in of_page(out, demo).items():
            saved(name, rendered(figure))
        saved("whole-table", (out / CONFIDENTIAL / "density.png").read_bytes())
        for name, (part, height) in PAGES.items():
            saved(name, photographed(out / part / PAGE, height))
        of_tutorial(Path(folder))
        saved("app-epsilon", of_app(Path(folder)))
        saved("survey-weights", rendered(of_survey()))
        saved("households", rendered(of_households()))
        saved("panels", rendered(of_panels()))


if __name__ == "__main__":
    main()
