"""Times of single operators, in seconds, as a profiler measured them: the material of a whole-model time.

Nothing is put together here. An operator says what its time depends on (`kind`, `sizes`), how often an iteration
runs it (`per`), and which shapes it was measured at; the composition multiplies by layers and adds launches.
"""

from __future__ import annotations

__all__ = ["KINDS", "Operator", "OperatorKind", "OperatorTable", "Per"]

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float

from tileq_profiling.profile import Conditions
from tileq_theory.errors import InputError

OperatorKind = Literal[
    "tokens", "sequences", "mixed attention", "prefill attention", "decode attention", "gemm", "bytes"
]
Per = Literal["layer", "model", "call"]
# What the columns of `Operator.sizes` are, by kind.
KINDS: dict[str, tuple[str, ...]] = {
    "tokens": ("tokens",),
    "sequences": ("sequences",),
    # one prefill chunk of chunk_tokens after cached_tokens, and n decodes with context_tokens each
    "mixed attention": ("chunk_tokens", "cached_tokens", "decodes", "context_tokens"),
    # `sequences` prompts with chunk_tokens new tokens each after cached_tokens
    "prefill attention": ("sequences", "chunk_tokens", "cached_tokens"),
    # `sequences` decodes that read context_tokens each
    "decode attention": ("sequences", "context_tokens"),
    # (rows x inner) times (inner x columns)
    "gemm": ("rows", "columns", "inner"),
    "bytes": ("bytes", "workers"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """One operator at the sizes it was measured at.

    Parameters
    ----------
    name
        The profiler's name ("qkv_proj", "attn_prefill").
    kind
        What its time depends on; `KINDS[kind]` names the columns of `sizes`.
    per
        "layer": once a layer; "model": once an iteration; "call": as often as the model's shape asks.
    sizes
        One row a measurement.
    seconds
        Its time (the profiler's median where it has one, else its mean).
    shape
        Facts that hold for all rows: heads, head_dim, dtype, tp, as text or numbers.
    """

    name: str
    kind: OperatorKind
    per: Per
    sizes: Float[np.ndarray, "row size"]
    seconds: Float[np.ndarray, "row"]
    shape: Mapping[str, float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = KINDS[self.kind]
        if self.sizes.ndim != 2 or self.sizes.shape != (self.seconds.size, len(columns)):
            raise InputError(
                f"operator {self.name}: sizes must have {len(columns)} columns ({', '.join(columns)}), a row a time"
            )
        if not self.seconds.size:
            raise InputError(f"operator {self.name} has no measurement")
        if not (np.all(np.isfinite(self.seconds)) and np.all(self.seconds >= 0)):
            raise InputError(f"operator {self.name} has a time that is not a finite number of 0 or more")

    def column(self, name: str) -> Float[np.ndarray, "row"]:
        """Return one column of the sizes by its name."""
        columns = KINDS[self.kind]
        if name not in columns:
            raise InputError(f"operator {self.name} has no size {name!r}; it has {', '.join(columns)}")
        return self.sizes[:, columns.index(name)]


@dataclass(frozen=True, slots=True, eq=False)
class OperatorTable:
    """All operators of a profile, with its conditions.

    Parameters
    ----------
    operators
        One entry per operator and shape (a file of many shapes gives many).
    format
        Name in `operator_reader_names()`.
    conditions
        Device, model, dtype, tensor parallel degree where the files tell them.
    warnings
        What to know before relying on the numbers.
    """

    operators: tuple[Operator, ...]
    format: str
    conditions: Conditions = field(default=Conditions())
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.operators:
            raise InputError("the operator profile holds no operator")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operators, each once, in order."""
        return tuple(dict.fromkeys(operator.name for operator in self.operators))

    def find(self, name: str | None = None, kind: str | None = None, **shape: float | str) -> tuple[Operator, ...]:
        """Return the operators of that name and kind whose shape has all these facts."""
        return tuple(
            operator
            for operator in self.operators
            if (name is None or operator.name == name)
            and (kind is None or operator.kind == kind)
            and all(operator.shape.get(key) == value for key, value in shape.items())
        )

    def describe(self) -> str:
        """Return one line: operators and rows."""
        rows = sum(operator.seconds.size for operator in self.operators)
        return f"{self.conditions.source} ({self.format}): {rows} times of {', '.join(self.names)}"
