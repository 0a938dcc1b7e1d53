"""Which coefficients the measurements can tell apart."""

from __future__ import annotations

__all__ = ["identified", "told_as_warnings", "what_is_missing"]

from collections.abc import Mapping, Sequence

import numpy as np

from tileq_profiling.fit.rows import BETA, NAMES, A, C, E, K, Rows, S, W
from tileq_profiling.profile.table import Profile

_ORDER = (C, BETA, K, E, S)  # of two columns that say the same, the later one goes
_SEEN = 1e-3  # share of a column (relative to the time) that the others must leave unexplained


def identified(profile: Profile, rows: Rows) -> tuple[list[int], dict[int, str]]:
    """Return the coefficients to fit, and for each that these batches cannot tell the reason."""
    columns = {
        C: np.ones(len(rows)),
        BETA: rows.tokens,
        K: rows.kv_tokens,
        E: rows.pairs,
        S: rows.sequences,
    }
    reasons: dict[int, str] = {}
    kept: list[int] = []
    basis = np.zeros((len(rows), 0))
    for j in _ORDER:
        column = columns[j] / rows.scale
        size = float(np.linalg.norm(column))
        if size == 0:
            reasons[j] = _absent(j, profile)
            continue
        rest = column - basis @ (basis.T @ column)
        rest -= basis @ (basis.T @ rest)
        if float(np.linalg.norm(rest)) < _SEEN * size:
            reasons[j] = f"cannot be told from {', '.join(NAMES[i] for i in kept)} in these batches"
            continue
        kept.append(j)
        basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
    if BETA in kept:
        kept += [W, A]
    return sorted(kept), reasons


def _absent(j: int, profile: Profile) -> str:
    column, what = {
        K: ("kv_tokens", "no decode with a context is in the profile"),
        E: ("pairs", "no prefill is in the profile"),
        S: ("sequences", "no batch states its sequences"),
    }[j]
    return f"is not measured: {f'the source does not tell {column}' if column in profile.unknown else what}"


def told_as_warnings(reasons: Mapping[int, str], lent: Sequence[int], lender: str) -> tuple[str, ...]:
    """Return a sentence for each coefficient that could not be told: what stands in its place, what that means."""
    out = []
    for j, why in reasons.items():
        if j in lent:
            out.append(f"{NAMES[j]} {why}; it is taken from: {lender}")
        elif j in (E, K):
            out.append(f"{NAMES[j]} {why}; it is left at 0, so long contexts look free")
        elif "cannot be told" in why:
            out.append(f"{NAMES[j]} {why}; it is left at 0")
    return tuple(out)


def what_is_missing(profile: Profile, split_tokens: float) -> tuple[str, ...]:
    """Return what a trustworthy fit would need and this profile lacks, one sentence each."""
    phases = set(profile.phase.tolist())
    out: list[str] = []
    if phases == {"decode"}:
        out.append("only decode iterations were measured: prefill is not; measure chunks of 256 tokens and more")
    if phases == {"prefill"}:
        out.append("only prefill iterations were measured: decode is not; measure decode batches at several contexts")
    smallest, largest = float(profile.tokens.min()), float(profile.tokens.max())
    if smallest > 64:
        out.append(
            f"no batch below {smallest:g} tokens was measured: weight floor and launch constant are not told apart"
        )
    if largest <= max(split_tokens, 64.0):
        out.append(
            f"no batch beyond {largest:g} tokens was measured: the linear layers never leave their floor, so the "
            "time of larger batches is a guess"
        )
    return tuple(out)
