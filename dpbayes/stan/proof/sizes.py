"""Sizes of the numbers that are written in a Stan program (see priors.py)."""

from __future__ import annotations

from dpbayes.stan.proof.syntax import Node, every

# Ranges of numbers that may be in a constant, besides 0: next to a large constant in target a
# record's term would be lost in rounding.
USUAL = 1e-3, 1e3
NEAR_ONE = 0.1, 10.0
FILLED = ("rep_vector", "rep_row_vector", "zeros_vector", "ones_vector", "identity_matrix")


def is_number(node: Node, text: str) -> bool:
    """Tell whether a node is the number that is written like ``text``."""
    return node.kind == "number" and node[0].text == text


def is_usual(node: Node, sizes: tuple[float, float] = USUAL) -> bool:
    """Tell whether a node is a number, maybe signed, that is 0 or of a size in ``sizes``."""
    if node.kind == "unary" and node[0].text in ("+", "-"):
        node = node[1]
    if node.kind != "number" or not is_finite(node):
        return False
    size = float(node[0].text.replace("_", ""))
    return size == 0 or sizes[0] <= size <= sizes[1]


def has_usual_numbers(node: Node) -> bool:
    """Tell whether all numbers in an expression are usual, as in ``2 * scale``."""
    return all(is_usual(part) for part in every(node) if part.kind == "number")


def of_usual_numbers(node: Node) -> bool:
    """Tell whether an expression reads only numbers of usual size, as ``rep_vector(2, 3)``."""
    if node.kind in ("name", "index"):
        return False
    if node.kind == "call" and node[0].text in FILLED:  # the others are sizes
        return all(map(of_usual_numbers, node.parts[1].present[:1] if node.parts[1] else ()))
    return is_usual(node) or (node.kind != "number" and all(map(of_usual_numbers, node.present)))


def is_list_of_numbers(node: Node) -> bool:
    """Tell whether a node is a row or column of literal finite numbers."""
    if node.kind == "transpose":
        node = node[0]
    items = node.parts[0].present if node.kind == "row" and node.parts[0] else ()
    return bool(items) and all(map(is_finite, items))


def is_finite(node: Node) -> bool:
    """Tell whether a node is a literal finite real number, maybe signed."""
    if node.kind == "unary" and node[0].text in ("+", "-"):
        node = node[1]
    text = node[0].text.replace("_", "") if node.kind == "number" else "i"
    return not text.endswith("i") and float(text) < float("inf")  # 1i is complex
