"""Parameters that certainly have no prior, by the text of a Stan program."""

from __future__ import annotations

from collections.abc import Mapping

from dpbayes.stan.proof.priors import Declared, adds_to_target, assigned_in, declarations_in
from dpbayes.stan.proof.syntax import Node, every, names_in
from dpbayes.stan.proof.template import is_clamp


def flat(blocks: Mapping[str, Node]) -> list[str]:
    """List the unbounded parameters that no statement on priors mentions, through others or not."""
    declared: dict[str, Declared] = {}
    if "parameters_block" in blocks:
        declared = dict(declarations_in(blocks["parameters_block"], set()))
    reads: dict[str, set[str]] = {}
    mentioned: set[str] = set()
    for kind in ("transformed_parameters", "model_block"):
        for statement in blocks[kind].present if kind in blocks else ():
            mentioned |= _words_on_priors(statement)
            for name in assigned_in(statement):
                reads.setdefault(name, set()).update(names_in(statement))
    new = set(mentioned)
    while new:
        new = set().union(*(reads.get(name, set()) for name in new)) - mentioned
        mentioned |= new
    free = (name for name, of in declared.items() if not of.bounded and len(of.limits) < 2)
    return [name for name in free if name not in mentioned]


def _words_on_priors(node: Node) -> set[str]:
    """Words of what adds to target in a statement, but for the clamp."""
    if is_clamp(node) or not adds_to_target(node):
        return set()
    if any(is_clamp(part) for part in every(node)):
        return set().union(*map(_words_on_priors, node.present))
    return set(names_in(node))
