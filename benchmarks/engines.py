"""CmdStan beside the embedded engine: the same fits, their draws and data sets compared.

Means by Monte Carlo standard errors of both, standard deviations by their ratio, synthetic outcomes
of ten data sets by the largest difference of their ECDFs. Settings are the same; seeds are not.
"""

import argparse
import time

import numpy as np
import pandas as pd
from arviz_stats import mcse

import dpbayes as dpb
from dpbayes.engines import get_engine

DATASETS = 10
PERMUTATIONS = 2000


def schema(**columns: dict) -> dpb.Schema:
    return dpb.Schema.from_dict({"columns": columns})


def cases() -> dict[str, tuple[dpb.Schema, pd.DataFrame, object, object]]:
    """By name: schema, made-up records, mechanism, model."""
    rng = np.random.default_rng(7)
    n = 1500
    x = rng.uniform(-1, 1, n)
    g = rng.integers(0, 8, n)
    share = {"type": "continuous", "lower": 0, "upper": 1}
    wide = {"type": "continuous", "lower": -10, "upper": 10}
    public = {"type": "continuous", "lower": -1, "upper": 1, "public": True}
    groups = {"type": "categorical", "levels": list("abcdefgh"), "public": True}
    count = {"type": "count", "upper": 200}
    times = {"type": "continuous", "lower": 0, "upper": 10}
    seen = {"type": "binary", "levels": ["no", "yes"]}
    parts = {"type": "categorical", "levels": ["low", "mid", "top"]}
    letters = np.array(list("abcdefgh"))[g]
    line = np.clip(1 + x + rng.normal(0, 0.7, 8)[g] + rng.normal(0, 0.5, 8)[g] * x
                   + rng.normal(0, 1, n), -9.9, 9.9)  # fmt: skip
    event, leaving = rng.weibull(1.4, n) * 3 * np.exp(0.4 * x), rng.weibull(1, n) * 4
    level = np.digitize(x + rng.logistic(size=n), [-0.5, 1])
    two = np.clip(np.where(rng.random(n) < 0.4, rng.normal(-3, 0.7, n), rng.normal(3 + x, 1)),
                  -9.9, 9.9)  # fmt: skip
    censored = dpb.Censored(4)
    return {
        "beta, y ~ 1": (
            schema(y=share), pd.DataFrame({"y": rng.beta(0.5, 3, n)}), censored,
            dpb.Regression("y ~ 1", "beta")),
        "normal, y ~ x + (x | g), J = 8": (
            schema(y=wide, x=public, g=groups), pd.DataFrame({"y": line, "x": x, "g": letters}),
            censored, dpb.Regression("y ~ x + (x | g)", "normal")),
        "normal, y ~ x + (1 | g), anchored": (
            schema(y=wide, x=public, g=groups), pd.DataFrame({"y": line, "x": x, "g": letters}),
            dpb.Anchored(4, anchor="none"), dpb.Regression("y ~ x + (1 | g)", "normal")),
        "mixture, y ~ x": (
            schema(y=wide, x=public), pd.DataFrame({"y": two, "x": x}), censored,
            dpb.Regression("y ~ x", "mixture")),
        "survival_weibull, Surv(t, d) ~ x": (
            schema(t=times, d=seen, x=public),
            pd.DataFrame({"t": np.clip(np.minimum(event, leaving), 0.001, 9.99),
                          "d": np.where(event < leaving, "yes", "no"), "x": x}),
            dpb.Unweighted(), dpb.Regression("Surv(t, d) ~ x", "survival_weibull")),
        "neg_binomial, y ~ x": (
            schema(y=count, x=public),
            pd.DataFrame({"y": np.minimum(rng.negative_binomial(2, 0.2, n), 200), "x": x}),
            censored, dpb.Regression("y ~ x", "neg_binomial")),
        "categorical, y ~ x + (1 | g)": (
            schema(y=parts, x=public, g=groups),
            pd.DataFrame({"y": np.array(["low", "mid", "top"])[level], "x": x, "g": letters}),
            dpb.Unweighted(), dpb.Regression("y ~ x + (1 | g)", "categorical")),
    }  # fmt: skip


def outcomes(release: dpb.Release) -> list[np.ndarray]:
    """The first column of each data set; levels as their codes."""
    columns = [table.iloc[:, 0] for table in release.datasets]
    levels = {level: code for code, level in enumerate(sorted(set(columns[0])))}
    numeric = columns[0].dtype.kind in "if"
    return [c.to_numpy(float) if numeric else c.map(levels).to_numpy(float) for c in columns]


def permuted(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """p of the largest difference of two mean ECDFs, by permuting data sets between the engines.

    Values of one data set share a draw of the parameters, so that data sets are exchanged and not
    values.
    """
    together = [*ours, *theirs]
    places = np.unique(np.concatenate(together))
    curves = np.array([np.searchsorted(np.sort(v), places, "right") / len(v) for v in together])
    rng = np.random.default_rng(1)

    def apart(order: np.ndarray) -> float:
        first, second = curves[order[: len(ours)]], curves[order[len(ours) :]]
        return float(np.abs(first.mean(axis=0) - second.mean(axis=0)).max())

    seen = apart(np.arange(len(together)))
    larger = sum(apart(rng.permutation(len(together))) >= seen for _ in range(PERMUTATIONS))
    return (1 + larger) / (1 + PERMUTATIONS)


def compare(name: str, draws: int) -> None:
    table, records, mechanism, model = cases()[name]
    told, errors, seconds, drawn = {}, {}, {}, {}
    for engine in ("embedded", "cmdstan"):
        settings = dpb.SamplerSettings(chains=4, warmup=draws, draws=draws, seed=len(engine))
        synthesizer = dpb.Synthesizer(table, mechanism, model, engine=engine, settings=settings)
        get_engine(engine)
        before = time.perf_counter()
        fit = synthesizer.fit(records)
        seconds[engine] = time.perf_counter() - before
        posterior = fit.fitted.draws["posterior"].to_dataset()
        told[engine] = posterior
        errors[engine] = mcse(fit.fitted.draws)
        drawn[engine] = outcomes(fit.sample(datasets=DATASETS, accept="none", seed=1))
    away, ratios = [], []
    for variable in told["embedded"].data_vars:
        means = [told[e][variable].mean(("chain", "draw")).to_numpy() for e in told]
        sds = [told[e][variable].std(("chain", "draw")).to_numpy() for e in told]
        both = np.hypot(*(np.asarray(errors[e][variable]) for e in told))
        away += np.ravel((means[1] - means[0]) / both).tolist()
        ratios += np.ravel(sds[1] / sds[0]).tolist()
    apart = permuted(drawn["embedded"], drawn["cmdstan"])
    cells = (
        name.replace("|", "\\|"), f"{len(away)}", f"{max(map(abs, away)):.2f}",
        f"{np.sqrt(np.mean(np.square(away))):.2f}",
        f"{min(ratios):.3f} to {max(ratios):.3f}", f"{apart:.2f}",
        f"{seconds['embedded']:.1f}, {seconds['cmdstan']:.1f}",
    )  # fmt: skip
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000, help="and as many of warm-up")
    parser.add_argument("--cases", nargs="*", default=list(cases()))
    arguments = parser.parse_args()
    versions = {**get_engine("embedded").versions(), **get_engine("cmdstan").versions()}
    print(", ".join(f"{package} {version}" for package, version in versions.items()))
    print("\n| fit | quantities | largest difference of means, MCSE | rms | sd ratio "
          "| data sets, p | s: embedded, CmdStan |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for case in arguments.cases:
        compare(case, arguments.draws)
