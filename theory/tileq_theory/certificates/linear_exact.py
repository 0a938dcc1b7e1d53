"""Small linear systems and polytopes in fractions."""

from __future__ import annotations

__all__ = ["solve_exact", "vertices"]

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

Row = Sequence[Fraction]  # coefficients, then the right-hand side


def solve_exact(rows: Sequence[Row]) -> tuple[Fraction, ...] | None:
    """Solve a square system by elimination; None where it is singular."""
    size = len(rows)
    table = [list(row) for row in rows]
    for k in range(size):
        pivot = next((r for r in range(k, size) if table[r][k] != 0), None)
        if pivot is None:
            return None
        table[k], table[pivot] = table[pivot], table[k]
        table[k] = [x / table[k][k] for x in table[k]]
        for r in range(size):
            if r != k and table[r][k] != 0:
                table[r] = [x - table[r][k] * y for x, y in zip(table[r], table[k], strict=True)]
    return tuple(row[size] for row in table)


def vertices(equal: Sequence[Row], at_most: Sequence[Row], size: int) -> set[tuple[Fraction, ...]]:
    """Return the vertices of {x >= 0: equal, at_most}, by trying which inequalities are tight."""
    signs = [[Fraction(-int(j == k)) for j in range(size)] + [Fraction(0)] for k in range(size)]
    limits = [*signs, *at_most]
    found = set()
    for tight in combinations(limits, size - len(equal)):
        point = solve_exact([*equal, *tight])
        if point is not None and all(_value(row, point) <= row[size] for row in limits):
            found.add(point)
    return found


def _value(row: Row, point: Sequence[Fraction]) -> Fraction:
    return sum((a * x for a, x in zip(row, point, strict=False)), Fraction(0))
