"""Settings as people write them, and groups of options as typer reads them."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

import dpbayes as dpb
from dpbayes.cli.options import flattened
from dpbayes.core.errors import DataError, GuaranteeError
from dpbayes.mechanisms.options import read_settings


@pytest.mark.parametrize(
    ("named", "assignments", "expected"),
    [
        ({"epsilon": 1.0, "window": None}, [], {"epsilon": 1.0}),
        ({"window": "-1,0.5"}, [], {"window": (-1.0, 0.5)}),
        ({}, ["window=[-1, 0]"], {"window": (-1.0, 0.0)}),
        ({}, ["window=negative"], {"window": "negative"}),
        ({"weights": "0.5"}, [], {"weights": dpb.ConstantWeights(0.5)}),
        ({}, ["weights=0.5"], {"weights": dpb.ConstantWeights(0.5)}),
        ({"weights": "confidential"}, [], {"weights": dpb.ConfidentialWeights()}),
        ({"c1": 0.8}, [], {"weights": dpb.ConfidentialWeights(c1=0.8)}),
        ({"weights": "confidential", "c2": 0.1}, ["c1=0.5"],
         {"weights": dpb.ConfidentialWeights(0.5, 0.1)}),
        ({}, ["weights=[0.7, 0.3]"], {"weights": [0.7, 0.3]}),
        ({"anchor": "none"}, [], {"anchor": "none"}),
        ({}, ["bins=scott", " sigma = {age = 12} ", "nested=4", "resample=false"],
         {"bins": "scott", "sigma": {"age": 12}, "nested": 4, "resample": False}),
        ({}, ["text=a=b"], {"text": "a=b"}),
    ],
)  # fmt: skip
def test_settings_end_in_one_mapping(named, assignments, expected):
    assert read_settings(named, assignments) == expected


@pytest.mark.parametrize(
    ("named", "assignments", "error", "message"),
    [
        ({}, ["bins"], GuaranteeError, "expected NAME=VALUE"),
        ({}, ["=3"], GuaranteeError, "expected NAME=VALUE"),
        ({"epsilon": 1.0}, ["epsilon=2"], GuaranteeError, "epsilon is given twice"),
        ({}, ["bins=2", "bins=3"], GuaranteeError, "bins is given twice"),
        ({"window": "1,2,3"}, [], GuaranteeError, "two numbers"),
        ({}, ["window=3"], GuaranteeError, "two numbers"),
        ({"weights": "2"}, [], GuaranteeError, "alpha = 2.0 must lie in"),
        ({"weights": "0.5", "c1": 1.0}, [], GuaranteeError, "constant weights have none"),
        ({"c1": 1.0}, ["weights=[1, 0]"], GuaranteeError, "scale risk weights"),
        ({}, ["c1=much"], GuaranteeError, "c1 = 'much' must be a number"),
        ({"weights": "none.json"}, [], DataError, "none.json': No such file"),
        ({"anchor": "none.json"}, [], DataError, "none.json': No such file"),
    ],
)
def test_what_cannot_be_read_is_named(named, assignments, error, message):
    with pytest.raises(error, match=message):
        read_settings(named, assignments)


@dataclass(frozen=True, kw_only=True)
class Group:
    needed: Annotated[int, typer.Option(help="a")]
    more: Annotated[str, typer.Option(help="b")] = "x"


def test_groups_become_options():
    seen = []

    def command(name: Annotated[str, typer.Argument()], group: Group, last: bool = False) -> None:
        """What it does."""
        seen.append((name, group, last))

    flat = flattened(command)
    assert flat.__doc__ == "What it does."
    found = inspect.signature(flat).parameters
    assert list(found) == ["name", "needed", "more", "last"]
    assert found["needed"].default is inspect.Parameter.empty
    assert found["more"].default == "x"
    flat(name="n", needed=3, more="y", last=True)
    assert seen == [("n", Group(needed=3, more="y"), True)]
