"""CONDOP (paper 002, section 5.1): each tree becomes one expression of nested conditional operators, and is compiled.

    for each document x
        score += tree 1 of x; score += tree 2 of x; ...
    tree t of x:
        return x[3] <= 0.5 ? (x[1] <= 2.5 ? 0.1 : -0.2) : 0.3;
"""

from __future__ import annotations


def node(test: str, left: str, right: str) -> str:
    return f"({test} ? {left} : {right})"


def leaf(value: str) -> str:
    return value


def tree(root: str) -> str:
    return f"return {root};"
