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
    """(b): the same mechanism by dpbayes; fits twice, because the risk is measured first."""
    import pandas as pd

    import dpbayes as dpb

    schema = dpb.Schema.from_dict(
        {"columns": {"y": {"type": "continuous", "lower": 0, "upper": 1}}}
    )
    fit = dpb.Synthesizer(
        schema,
        "y ~ 1",
        "beta",
        dpb.Censored(5),
        engine=engine,
        settings=dpb.SamplerSettings(chains=4, warmup=1000, draws=1000, seed=1),
    ).fit(pd.DataFrame({"y": beta_outcome(n)}))
    (synthetic,) = fit.sample(seed=1).datasets
    assert len(synthetic) == n
    posterior = fit.draws["posterior"]
    arrays = [posterior[name].to_numpy() for name in ("intercept", "lambda")]
    return {"ess": min_ess(arrays), "bound": fit.lipschitz_bound}


def scaling(n: int, engine: str) -> dict[str, float]:
    """Normal regression with K = 5 public covariates, 4 chains of 200 + 200 iterations."""
    import numpy as np
    import pandas as pd

    import dpbayes as dpb

    rng = np.random.default_rng(1)
    covariates = {f"x{k}": rng.uniform(-1, 1, n) for k in range(1, 6)}
    mean = sum(covariates.values())
    records = pd.DataFrame({"y": np.clip(rng.normal(mean, 1), -10, 10), **covariates})
    columns = {"y": {"type": "continuous", "lower": -10, "upper": 10}}
    for name in covariates:
        columns[name] = {"type": "continuous", "lower": -1, "upper": 1, "public": True}
    fit = dpb.Synthesizer(
        dpb.Schema.from_dict({"columns": columns}),
        "y ~ " + " + ".join(covariates),
        "normal",
        dpb.Censored(5),
        engine=engine,
        settings=dpb.SamplerSettings(chains=4, warmup=200, draws=200, seed=1),
    ).fit(records)
    (synthetic,) = fit.sample(seed=1).datasets
    assert len(synthetic) == n
    posterior = fit.draws["posterior"]
    return {
        "ess": min_ess([posterior["coefficient"].to_numpy(), posterior["sigma"].to_numpy()]),
        "leapfrogs": float(fit.draws["sample_stats"]["n_steps"].mean()),
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
    arguments = parser.parse_args()
    found = globals()[arguments.case](arguments.n, arguments.engine)
    seconds = time.perf_counter() - START
    print(json.dumps({"seconds": seconds, "peak_mb": peak_mb(), **found}))
