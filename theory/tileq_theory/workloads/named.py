"""The workloads that ship with the library, so that everything runs with no file at hand."""

from __future__ import annotations

__all__ = ["named_workload", "workload_facts", "workload_names"]

import tomllib
from functools import cache
from importlib import resources
from typing import Any, Literal

import numpy as np

from tileq_theory.arrivals import ArrivalProcess, GammaArrivals, OnOff, Poisson
from tileq_theory.errors import InputError, near_matches
from tileq_theory.provenance import Provenance
from tileq_theory.request_class import RequestClass
from tileq_theory.workload import Workload
from tileq_theory.workloads.table import JointTable

ArrivalKind = Literal["poisson", "gamma", "on-off"]
_FOLDER = "tables"


def workload_names() -> tuple[str, ...]:
    """Return the names of the workloads that ship, sorted.

    Examples
    --------
    >>> workload_names()
    ('chat', 'code', 'sharegpt', 'summarisation')
    """
    folder = resources.files(__package__) / _FOLDER
    return tuple(sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")))


def workload_facts(name: str) -> dict[str, Any]:
    """Return what the file of a named workload says: title, source, licence, selection, rows, arrivals, fit.

    Raises
    ------
    InputError
        For an unknown name, with near matches.
    """
    return {key: value for key, value in _read(_known(name)).items() if key != "table"}


def named_workload(name: str, arrivals: ArrivalKind | None = None) -> Workload:
    """Return the workload that ships under `name`: one class, a fitted joint table of its lengths, its arrivals.

    Parameters
    ----------
    name
        One of `workload_names()`.
    arrivals
        "poisson", "gamma" (the recorded CV of gaps) or "on-off" (the recorded burst pattern); None: what the file
        calls its own, which for a trace without times is no arrivals at all.

    Raises
    ------
    InputError
        For an unknown name, with near matches, or arrivals that the source does not have.

    Examples
    --------
    >>> named_workload("chat").arrivals.describe()
    'gamma gaps, 5.53014/s, CV 1.09417'
    """
    found = _known(name)
    facts = _read(found)
    fit = facts["fit"]
    notes = (
        facts["selection"],
        f"licence {facts['licence']}",
        f"fitted to {facts['rows']} requests; moments within {100 * fit['worst']:.2g} % at chunks of 512 tokens, "
        f"Kolmogorov-Smirnov distance {fit['ks_prompt']:.2g} (prompt), {fit['ks_output']:.2g} (output)",
    )
    source = Provenance("fitted", facts["source"], notes)
    law = _table(facts["table"]).law()
    return Workload((RequestClass(found, law),), _arrivals(found, facts.get("arrivals"), arrivals), found, source)


def _known(name: str) -> str:
    key = name.strip().lower()
    if key not in workload_names():
        raise InputError(f"workload {name!r} is unknown; {near_matches('workloads', key, workload_names())}")
    return key


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / _FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def _table(data: dict[str, Any]) -> JointTable:
    rows = data["bins"]
    return JointTable(
        shares=np.array([row["requests"] for row in rows], dtype=float),
        prompt_levels=np.array(data["prompt_levels"], dtype=float),
        output_levels=np.array(data["output_levels"], dtype=float),
        prompts=np.array([row["prompt"] for row in rows], dtype=float),
        outputs=np.array([row["output"] for row in rows], dtype=float),
    )


def _arrivals(name: str, facts: dict[str, Any] | None, kind: str | None) -> ArrivalProcess | None:
    if facts is None:
        if kind is None:
            return None
        raise InputError(f"workload {name!r} was recorded without arrival times; give a rate instead (with_rate)")
    chosen = facts["kind"] if kind is None else kind
    rate = float(facts["rate_per_s"])
    if chosen == "poisson":
        return Poisson(rate)
    if chosen == "gamma" and "cv" in facts:
        return GammaArrivals(rate, float(facts["cv"]))
    if chosen == "on-off" and "mean_on_s" in facts:
        return OnOff(float(facts["rate_on_per_s"]), float(facts["mean_on_s"]), float(facts["mean_off_s"]))
    has = ["poisson", *(["gamma"] if "cv" in facts else []), *(["on-off"] if "mean_on_s" in facts else [])]
    raise InputError(f"arrivals {chosen!r} of workload {name!r} are not known; it has {', '.join(has)}")
