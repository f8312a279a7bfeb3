"""Parameters that certainly have no prior, by the text of a Stan program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from dpbayes.stan.proof.priors import Declared, adds_to_target, assigned_in, declarations_in
from dpbayes.stan.proof.sizes import is_number
from dpbayes.stan.proof.syntax import Node, every, names_in
from dpbayes.stan.proof.template import is_clamp


def unbounded(blocks: Mapping[str, Node]) -> dict[str, Declared]:
    """Declarations of the parameters that have not two bounds, and have entries."""
    if "parameters_block" not in blocks:
        return {}
    return {
        name: of
        for name, of in declarations_in(blocks["parameters_block"], set())
        if not of.bounded and len(of.limits) < 2 and not any(is_number(s, "0") for s in of.sizes)
    }


def flat(blocks: Mapping[str, Node]) -> list[str]:
    """List the unbounded parameters that no prior is on, directly or through others.

    A density of other parameters integrates to 1 whatever its arguments are, so that it is no prior
    of these: but only where its outcomes have no other density, nor two bounds.
    """
    reads: dict[str, set[str]] = {}
    statements: list[Node] = []
    for kind in ("transformed_parameters", "model_block"):
        for statement in blocks[kind].present if kind in blocks else ():
            statements += _on_priors(statement)
            for name in assigned_in(statement):
                reads.setdefault(name, set()).update(names_in(statement))
    parameters: dict[str, Declared] = {}
    if "parameters_block" in blocks:
        parameters = dict(declarations_in(blocks["parameters_block"], set()))
    for name, of in parameters.items():  # who has a prior within bounds gives these one
        reads[name] = {word for limit in of.limits for word in names_in(limit)}
    times = Counter(word for statement in statements for word in _outcome(statement))
    free, mentioned = unbounded(blocks), set[str]()
    for statement in statements:
        outcome = _outcome(statement)
        alone = outcome and all(word in free and times[word] == 1 for word in outcome)
        mentioned |= outcome if alone else set(names_in(statement))
    new = set(mentioned)
    while new:
        new = set().union(*(reads.get(name, set()) for name in new)) - mentioned
        mentioned |= new
    return [name for name in free if name not in mentioned]


def _on_priors(node: Node) -> Iterator[Node]:
    """Yield the statements inside of one that add to target, but for the clamp."""
    if is_clamp(node) or not adds_to_target(node):
        return
    inside = ("sampling", "assignment")
    if node.kind in inside or not any(part.kind in inside for part in every(node)):
        yield node
        return
    for part in node.present:
        yield from _on_priors(part)


def _outcome(statement: Node) -> set[str]:
    """Words of the outcome of a sampling statement; none for other statements."""
    return set(names_in(statement[0])) if statement.kind == "sampling" else set()
