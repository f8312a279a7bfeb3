"""Programs that leak, or may: none is proved, and each is one change away from one that is."""

import pytest

from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.program import StanProgram, _expand, stan_directory
from dpbayes.stan.proof.check import prove
from tests.attacks import BASES, ERRORS, OTHERS, attack
from tests.more_attacks import TABLES

ATTACKS = {
    f"{table}: {name}": change
    for table, changes in {"other records": OTHERS, "errors": ERRORS, **TABLES}.items()
    for name, change in changes.items()
}


def program(name: str) -> StanProgram:
    """The program of an attack, with nothing checked by name."""
    text = _expand(attack(*ATTACKS[name]), (stan_directory() / "include",))
    return StanProgram("attack", text, text, False)


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_is_proved(name):
    assert not prove(program(name)).proved


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_stan(name):
    """What does not compile would be no attack."""
    EmbeddedEngine().compile(program(name))


def test_an_attack_changes_a_program_that_is_proved():
    """Else it might be unproved for another reason."""
    assert {text for text, _ in ATTACKS.values()} <= set(BASES.values())
    assert all(changes for _, changes in ATTACKS.values())
