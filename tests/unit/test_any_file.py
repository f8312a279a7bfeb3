"""Whatever a file or an address is: a result or a DpbayesError, and nothing else."""

import contextlib
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpbayes as dpb
from dpbayes.cli.models import _read_priors
from dpbayes.core.cluster import check_scheduler
from dpbayes.core.errors import DpbayesError
from dpbayes.mechanisms.posterior.weights import FORMAT, Reference
from dpbayes.publication.database import Database
from dpbayes.publication.url import read_url, redact, shown
from dpbayes.records.overlap import TableSketch
from dpbayes.stan.families import FAMILIES
from dpbayes.stan.json_data import read_json_data
from tests.fuzzing import many, said, scrambled, seeds

pytestmark = pytest.mark.fuzz
NAMES = ("n", "y", "weights", "anchor", "clip_lower", "clip_upper", "emit", "emit_y_rep", "K", "z")
JSON = tuple(
    json.dumps(tree)
    for tree in (
        {"n": 3, "y": [0.5, 1.5, -2.0]},
        {"n": 3, "y": [1, 0, 1], "weights": [0.5, 0.5, 1.0], "anchor": [0, 0, 0], "emit": 1},
        {"n": 2, "z": [[1, 2], [3, 4]], "clip_lower": -1e300, "clip_upper": 1, "K": 0, "X": [[]]},
        {"y": 1, "n": True, "a": [], "emit_y_rep": [[[0.1]]], "b": None, "c": {"d": "e"}},
    )
)
ODD = (
    *(f'"{name}"' for name in NAMES), "-", "0", "1", "3", "2147483647", "4294967296", "NaN", "{}",
    "Infinity", "null", "true", '"x"', "[[", "[", "]", "}", ",", ":", "9" * 400, "9" * 5000, "[]",
    "[" * 3000, "1e400", "-0.0", "0.1", '"\\ud800"', '"00"', '"AAAA"', "[[1], [1, 2]]", "1e308",
)  # fmt: skip


@given(seed=seeds, text=st.one_of(st.text(max_size=20), *[st.none()] * 5))
@many
def test_json_data(seed, text, tmp_path):
    """What is taken is what numpy makes arrays of numbers of."""
    text = scrambled(JSON, ODD, seed) if text is None else text
    (tmp_path / "d.json").write_text(text, encoding="utf-8", newline="", errors="replace")
    with contextlib.suppress(DpbayesError):
        for value in read_json_data(tmp_path / "d.json").values():
            assert np.asarray(value).dtype.kind in "iufb"


FILES = dpb.Schema({"a": dpb.Column("a", "categorical", levels=("x", "y", "z"))})
TABLE = FILES.validate(pd.DataFrame({"a": ["x", "y", "z"] * 8}))
WRITTEN = {
    "format": FORMAT, "identity": {"program": "good"}, "trace": TableSketch.of(TABLE).to_dict(),
    "c1": 1.0, "c2": 0.0, "low": 0.5, "high": 2.0, "tuning": None,
    "draws": {"mu": [0.1, 0.2], "beta": [[1.0, 2.0], [3.0, 4.0]]},
}  # fmt: skip


@given(seed=seeds)
@many
def test_reference_fits(seed, tmp_path):
    """One that is read can be used."""
    text = scrambled((json.dumps(WRITTEN),), ODD, seed)
    (tmp_path / "w.json").write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(DpbayesError):
        found = Reference.load(tmp_path / "w.json")
        assert repr(found)
        found.check({"program": "good"})
        found.check_records(TABLE)


TOML = ("intercept = [0, 1]\ncoefficient = 2.5\ngroup_sd = 1", "[intercept]\nx = 1979-05-27")
ODD_TOML = (*ODD, "inf", "nan", "=", "[[", "intercept", "'''", "1_0", "0x", "=[", "group_sd.a")


@given(seed=seeds, text=st.one_of(st.text(max_size=20), *[st.none()] * 5))
@many
def test_prior_files(seed, text, tmp_path):
    text = scrambled(TOML, ODD_TOML, seed) if text is None else text
    (tmp_path / "p.toml").write_text(text, encoding="utf-8", newline="", errors="replace")
    with contextlib.suppress(DpbayesError):
        FAMILIES["categorical"].stan_data(FILES["a"], _read_priors(tmp_path / "p.toml"))


PASSWORD = "sEcReT7"
pieces = st.one_of(
    st.text(max_size=3),
    st.sampled_from(
        ["postgresql://", "postgresql+psycopg2://", "sqlite:///", "sqlite://", "mysql://", "://",
         "user", "host", "/db", ":5432", ":99999", "@", ":", "/", "//", "?", "&", "#", "%", "%40",
         " ", "\0", "\n", "[::1]", "[", "]", "host=", "dbname=x", "sslmode=no", "..", "~", "C:\\",
         "postgresql://user:pw@host/db", "tcp://", "tls://", "ucx://", "inproc://", "127.0.0.1",
         ":8786", "=", ",", "1", "é", "file:", "?host=/tmp", "ftp://"]
    ),
)  # fmt: skip
addresses = st.lists(pieces, max_size=6).map("".join)
hidden = st.sampled_from([f":{PASSWORD}@", f"?password={PASSWORD}", f" password={PASSWORD} "])


@given(before=addresses, secret=hidden, after=addresses)
@many
def test_addresses_of_ledgers(before, secret, after):
    """One that is taken is shown without its password; one that is not is not repeated."""
    with contextlib.suppress(DpbayesError):
        assert Database(before + after).url is not None
    text = f"postgresql://{before}{secret}{after}"
    assert PASSWORD not in redact(text)
    assert PASSWORD not in said(lambda: shown(read_url(text)))


@given(text=addresses)
@many
def test_addresses_of_schedulers(text):
    """One that is taken is one for Dask."""
    from distributed.comm import get_address_host_port, parse_address

    with contextlib.suppress(DpbayesError):
        check_scheduler(text)
        scheduler, rest = parse_address(text, strict=True)
        assert scheduler in ("tcp", "tls")
        assert get_address_host_port(f"{scheduler}://{rest}", strict=True)
