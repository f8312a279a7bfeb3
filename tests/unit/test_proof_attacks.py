"""Programs that leak, or may: none is proved, and each is one change away from one that is."""

import pytest

from dpbayes.engines.embedded import EmbeddedEngine
from dpbayes.stan.program import StanProgram, _expand, stan_directory
from dpbayes.stan.proof.check import prove
from tests.attacks import BASES, ERRORS, OTHERS, attack
from tests.more_attacks import TABLES

ALL = {"other records": OTHERS, "errors": ERRORS, **TABLES}
every_table = pytest.mark.parametrize("table", ALL)


def program(text: str, changes) -> StanProgram:
    """The program of an attack, with nothing checked by name."""
    text = _expand(attack(text, changes), (stan_directory() / "include",))
    return StanProgram("attack", text, text)


@every_table
def test_no_attack_is_proved(table):
    proved = [name for name, case in ALL[table].items() if prove(program(*case)).proved]
    assert proved == []


@every_table
def test_attacks_are_stan(table):
    """What does not compile would be no attack."""
    for case in ALL[table].values():
        EmbeddedEngine().compile(program(*case))


def test_an_attack_changes_a_program_that_is_proved():
    """Else it might be unproved for another reason."""
    cases = [case for table in ALL.values() for case in table.values()]
    assert len(cases) > 400
    assert {text for text, _ in cases} <= set(BASES.values())
    assert all(changes for _, changes in cases)
