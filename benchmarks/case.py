"""One benchmark case in a process of its own: prints one JSON object with time, memory and ESS."""

import argparse
import json
import os
import platform
import resource
import time

START = time.perf_counter()  # imports belong to what a user waits for


def record_loop(n: int, engine: str) -> dict[str, float]:
    """(a): the loop program, log_lik of every draw held in one array."""
    import numpy as np

    y = beta_outcome(n)
    path = os.path.join(os.path.dirname(__file__), "beta_record_loop.stan")
    data = {"n": n, "y": y.tolist(), "epsilon": 5.0}
    if engine == "embedded":
        import stanli

        with open(path, encoding="utf-8") as file:
            model = stanli.Model(stan_code=file.read(), data=json.dumps(data))
        fit = model.sample(chains=4, warmup=1000, samples=1000, seed=1)
        draws = {name: fit.draws(name) for name in ("phi", "lambda", "log_lik", "y_rep")}
    else:
        import cmdstanpy

        fit = cmdstanpy.CmdStanModel(stan_file=path, force_compile=True).sample(
            data, chains=4, iter_warmup=1000, iter_sampling=1000, seed=1, show_progress=False
        )
        draws = {
            name: np.swapaxes(values.reshape(1000, 4, *values.shape[1:], order="F"), 0, 1)
            for name, values in fit.stan_variables().items()
        }
    bounds = np.abs(np.clip(draws["log_lik"], -2.5, 2.5)).max(axis=(0, 1))
    synthetic = draws["y_rep"][0, 0]
    assert bounds.shape == synthetic.shape == (n,)
    return {"ess": min_ess([draws["phi"], draws["lambda"]]), "bound": float(bounds.max())}


def ours(n: int, engine: str) -> dict[str, float]:
    """(b): the same mechanism by dpbayes."""
    import pandas as pd

    import dpbayes as dpb
    from studies.datasets import SKEWED_MODEL, SKEWED_SCHEMA

    fit = dpb.Synthesizer(
        SKEWED_SCHEMA,
        dpb.Censored(5),
        SKEWED_MODEL,
        engine=engine,
        settings=dpb.SamplerSettings(chains=4, warmup=1000, draws=1000, seed=1),
    ).fit(pd.DataFrame({"y": beta_outcome(n)}))
    (synthetic,) = fit.sample(seed=1).datasets
    assert len(synthetic) == n
    posterior = fit.fitted.draws["posterior"]
    arrays = [posterior[name].to_numpy() for name in ("intercept", "lambda")]
    return {"ess": min_ess(arrays), "bound": fit.fitted.lipschitz_bound}


def scaling(n: int, engine: str, covariates: int = 5, groups: int = 0) -> dict[str, float]:
    """Normal regression on public covariates and a public group, 4 chains of 200 + 200."""
    import numpy as np
    import pandas as pd

    import dpbayes as dpb

    rng = np.random.default_rng(1)
    x = {f"x{k}": rng.uniform(-1, 1, n) for k in range(1, covariates + 1)}
    mean = sum(x.values()) * np.sqrt(5 / covariates)  # of the same variance for any K
    columns = {"y": {"type": "continuous", "lower": -10, "upper": 10}}
    for name in x:
        columns[name] = {"type": "continuous", "lower": -1, "upper": 1, "public": True}
    formula = "y ~ " + " + ".join(x)
    names = ["coefficient", "sigma"]
    if groups:
        levels = [f"g{j}" for j in range(groups)]
        group = rng.integers(groups, size=n)
        mean = mean + rng.normal(0, 0.5, groups)[group]
        x["g"] = np.array(levels)[group]
        columns["g"] = {"type": "categorical", "levels": levels, "public": True}
        formula += " + (1 | g)"
        names += ["intercept", "group_sd", "group_effect"]
    records = pd.DataFrame({"y": np.clip(rng.normal(mean, 1), -10, 10), **x})
    fit = dpb.Synthesizer(
        dpb.Schema.from_dict({"columns": columns}),
        dpb.Censored(5),
        dpb.Regression(formula, "normal"),
        engine=engine,
        settings=dpb.SamplerSettings(chains=4, warmup=200, draws=200, seed=1),
    ).fit(records, allow_nonconvergence=bool(groups))
    (synthetic,) = fit.sample(seed=1).datasets
    assert len(synthetic) == n
    draws = fit.fitted.draws
    return {
        "ess": min_ess([draws["posterior"][name].to_numpy() for name in names]),
        "leapfrogs": float(draws["sample_stats"]["n_steps"].mean()),
        "converged": float(fit.fitted.converged),
    }


def beta_outcome(n: int):
    """n draws of Beta(0.5, 3), the paper's simulated outcome."""
    import numpy as np

    return np.random.default_rng(1).beta(0.5, 3, n)


def min_ess(arrays) -> float:
    """Smallest bulk ESS over the entries of arrays with leading axes (chain, draw)."""
    from arviz_stats.base import array_stats

    flat = [a.reshape(*a.shape[:2], -1) for a in arrays]
    return min(
        float(array_stats.ess(a[:, :, k], chain_axis=0, draw_axis=1))
        for a in flat
        for k in range(a.shape[2])
    )


def cpu_seconds() -> float:
    """Processor time of this process and its children, compilers among them."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    usages = [resource.getrusage(w) for w in who]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def peak_mb() -> float:
    """Peak resident memory in MB: this process, plus the largest child (a CmdStan chain)."""
    unit = 1e6 if platform.system() == "Darwin" else 1e3
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(w).ru_maxrss for w in who) / unit


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=["record_loop", "ours", "scaling"])
    parser.add_argument("n", type=int)
    parser.add_argument("engine", choices=["embedded", "cmdstan"])
    parser.add_argument("--covariates", type=int, default=5, help="K of scaling")
    parser.add_argument("--groups", type=int, default=0, help="J of scaling")
    arguments = parser.parse_args()
    sizes = [arguments.n, arguments.engine]
    if arguments.case == "scaling":
        sizes += [arguments.covariates, arguments.groups]
    found = globals()[arguments.case](*sizes)
    seconds = time.perf_counter() - START
    print(json.dumps({"seconds": seconds, "cpu": cpu_seconds(), "peak_mb": peak_mb(), **found}))
