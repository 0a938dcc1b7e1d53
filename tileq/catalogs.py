"""What can be named: GPUs, models, workloads, trace formats, policies, closed forms, calibrations, profile formats."""

from __future__ import annotations

__all__ = ["KINDS", "Catalog", "catalog"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tileq.plain import plain
from tileq_theory.errors import InputError, near_matches

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Catalog:
    """One list: its kind, a row per entry, how to name an entry in a command, and what to print for a person.

    `columns` are the entries of a row that fit a terminal; the document has them all.

    Examples
    --------
    >>> "h100-sxm" in [row["name"] for row in catalog("gpus").rows]
    True
    """

    kind: str
    usage: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the list as the document that `tileq catalog --json` prints."""
        document: dict[str, Any] = plain(
            {"schema_version": 1, "kind": self.kind, "usage": self.usage, "rows": self.rows}
        )
        return document


def catalog(kind: str) -> Catalog:
    """Return the list called `kind`; `InputError` with near matches when there is none."""
    if kind not in KINDS:
        raise InputError(f"catalog {kind!r} is not known; {near_matches('catalogs', kind, KINDS)}")
    usage, rows, columns = KINDS[kind]
    return Catalog(kind, usage, tuple(rows()), columns)


def _gpus() -> list[Row]:
    from tileq_theory.hardware import catalog_rows

    return [dict(row) for row in catalog_rows("gpus")]


def _models() -> list[Row]:
    from tileq_theory.hardware import catalog_rows

    return [dict(row) for row in catalog_rows("models")]


def _workloads() -> list[Row]:
    from tileq_theory.workloads import named_workload, workload_facts, workload_names

    rows = []
    for name in workload_names():
        facts, workload = workload_facts(name), named_workload(name)
        lengths = workload.lengths
        rows.append(
            {
                "name": name,
                "title": facts["title"],
                "prompt_mean": lengths.prompt_law.mean(),
                "output_mean": lengths.output_law.mean(),
                "rate_per_s": workload.rate_per_s,
                "requests": facts["rows"],
                "fit_worst": facts["fit"]["worst"],
                "source": facts["source"],
                "licence": facts["licence"],
            }
        )
    return rows


def _traces() -> list[Row]:
    from tileq_profiling.readers import reader_names

    return [{"name": name, "summary": summary} for name, summary in sorted(reader_names().items())]


def _policies() -> list[Row]:
    """Return the engine's policies; `bound` is the program over the batches that a policy forms, if any."""
    import inspect

    from tileq_engine.registry import policy_doc, policy_maker, policy_names

    rows = []
    for name in policy_names():
        text = policy_doc(name)
        known = inspect.signature(inspect.unwrap(policy_maker(name))).parameters
        defaults = {n: p.default for n, p in known.items() if n not in _ENGINE_SETTINGS}
        rows.append(
            {
                "name": name,
                "summary": text.split("\n")[0].rstrip("."),
                "settings": list(defaults),
                "defaults": [f"{n}={_written(value)}" for n, value in defaults.items()],
                "bound": _BOUNDS.get(name),
                "about": " ".join(text.split()),
            }
        )
    return rows


def _written(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


_ENGINE_SETTINGS = ("token_budget", "max_num_seqs")
_BOUNDS = {
    "static": "tq.static_capacity",
    "vllm_v0": "tq.exclusive_capacity",
    "theta": "tq.exclusive_capacity",
    "rad": "tq.rad_capacity",
    "sarathi": "tq.sarathi_capacity",
    "vllm_v1": "tq.sarathi_capacity",
}


def _closed_forms() -> list[Row]:
    from tileq_theory.closed_forms import closed_forms

    return [{"name": form.name, "title": form.title, "source": form.source} for form in closed_forms().values()]


def _calibrations() -> list[Row]:
    from tileq_theory.calibrations import calibration_names, named_calibration

    rows: list[Row] = []
    for name in calibration_names():
        found = named_calibration(name)
        tile = found.time.tile_tokens if found.time.tile_s > 0 else None
        rows.append(
            {
                **found.to_dict(),
                "tile_tokens": tile,
                "median_error_percent": None if found.median_error is None else 100 * found.median_error,
                "source": found.time.provenance.source,
            }
        )
    return rows


def _profiles() -> list[Row]:
    from tileq_profiling.steps import operator_reader_names, profile_reader_names, run_reader_names

    steps, operators = profile_reader_names(), operator_reader_names()
    latencies = {name: told for name, told in run_reader_names().items() if name not in {*steps, *operators}}
    groups = (("step times", steps), ("operator times", operators), ("latencies", latencies))
    return [
        {"name": name, "holds": holds, "summary": summary}
        for holds, names in groups
        for name, summary in sorted(names.items())
    ]


KINDS: dict[str, tuple[str, Callable[[], list[Row]], tuple[str, ...]]] = {
    "gpus": (
        "tileq plan --gpu NAME",
        _gpus,
        ("name", "bf16_tflops", "fp8_tflops", "memory_gib", "bandwidth_gb_s"),
    ),
    "models": ("tileq plan --model NAME", _models, ("name", "layers", "params_b", "active_params_b", "experts")),
    "workloads": ("tileq plan --workload NAME", _workloads, ("name", "prompt_mean", "output_mean", "title")),
    "traces": ("tileq plan --trace FILE", _traces, ("name", "summary")),
    "policies": ("tileq simulate --policy NAME[:SETTING=VALUE:...]", _policies, ("name", "summary", "defaults")),
    "closed-forms": ("tq.closed_form(NAME)", _closed_forms, ("name", "title")),
    "calibrations": (
        "tileq plan --calibration NAME",
        _calibrations,
        ("name", "dtype", "tp", "tile_tokens", "median_error_percent"),
    ),
    "profiles": ("tileq calibrate FILE --format NAME", _profiles, ("name", "summary")),
}
