"""`tileq catalog`: what can be named on the command line."""

from __future__ import annotations

__all__ = ["catalog"]

from typing import Annotated, Literal

from cyclopts import Parameter

EXAMPLE = "Example: `tileq catalog gpus`"
Kind = Literal["gpus", "models", "workloads", "traces", "policies", "closed-forms"]


def catalog(
    kind: Kind,
    /,
    *,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """List what can be named: GPUs, models, workloads, trace formats, policies, closed forms.

    Example: `tileq catalog gpus`

    Parameters
    ----------
    kind
        What to list.
    json
        Print one JSON document and nothing else.
    """
    print(kind, json)
