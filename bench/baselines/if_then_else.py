"""IF-THEN-ELSE (paper 002, section 5.1: IF-THEN): each tree becomes nested if-then-else blocks, and is compiled.

    for each document x
        score += tree 1 of x; score += tree 2 of x; ...
    tree t of x:
        if (x[3] <= 0.5) { if (x[1] <= 2.5) { return 0.1; } else { return -0.2; } }
        else { return 0.3; }
"""

from __future__ import annotations


def node(test: str, left: str, right: str) -> str:
    return f"if ({test}) {{ {left} }} else {{ {right} }}"


def leaf(value: str) -> str:
    return f"return {value};"


def tree(root: str) -> str:
    return root
