"""Random small instances, and what it means that two runs are the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, RawRun, Requests
from tileq_theory.iteration_time import IterationTime

ENDLESS = 30_000  # iterations; no instance needs so many unless its requests restart each other for ever
Instance = tuple[Requests, IterationTime, EngineConfig]
_GIVEN = ("requests", "policy", "config", "time", "mode", "notes")


def difference(a: Any, b: Any) -> str:
    """Return where two runs (or parts of them) differ, '' when they are the same to the bit."""
    for item in dataclasses.fields(a):
        x, y = getattr(a, item.name), getattr(b, item.name)
        if item.name in _GIVEN:
            continue
        if isinstance(x, np.ndarray):
            if not np.array_equal(x, y):
                return f"{item.name}: {x} against {y}"
        elif dataclasses.is_dataclass(x):
            inside = difference(x, y)
            if inside:
                return f"{item.name}.{inside}"
        elif item.name == "counters":
            apart = {k: (x[k], y[k]) for k in x if k != "jumped_iterations" and x[k] != y[k]}
            if apart:
                return f"counters {apart}"
        elif x != y:
            return f"{item.name}: {x} against {y}"
    return ""


def instance(seed: int, **settings: Any) -> Instance:
    """Return a small instance: few slots, tight memory, ties in time, every feature switched on now and then."""
    g = np.random.default_rng(seed)
    n = int(g.integers(1, 30))
    prompt = g.integers(1, g.choice([5, 60, 200]), n)
    output = g.integers(1, g.choice([4, 30, 80]), n)
    arrival = g.exponential(g.choice([0.01, 0.3, 3.0]), n).cumsum()
    if g.random() < 0.3:
        arrival = np.round(arrival, 1)
    requests = Requests.from_arrays(
        arrival_s=arrival,
        prompt_tokens=prompt,
        output_tokens=output,
        class_index=g.integers(0, 2, n),
        priority=g.integers(0, 3, n),
        paying=g.random(n) < 0.3,
        tbt_limit_s=g.choice([0, 0.05, 0.2, 0.5], n),
        tenant=g.integers(0, 2, n),
        predicted_output_tokens=np.maximum(1, np.rint(output * g.lognormal(0, 0.5, n))),
        prefilled_tokens=np.where(g.random(n) < 0.1, prompt, 0) if g.random() < 0.3 else None,
    )
    time = IterationTime(
        launch_s=0.01,
        tile_s=float(g.choice([0, 0.02])),
        tile_tokens=int(g.choice([1, 16, 32])),
        token_s=float(g.choice([0, 1e-4])),
        kv_token_s=float(g.choice([0, 1e-6])),
        pair_s=float(g.choice([0, 1e-7])),
        sequence_s=float(g.choice([0, 1e-4])),
        kv_counts_prefill=bool(g.integers(2)),
    )
    slots = int(g.integers(1, 12))
    config = EngineConfig(
        token_budget=max(slots, int(g.choice([4, 16, 64, 512]))),
        max_num_seqs=slots,
        kv_tokens=None if g.random() < 0.25 else int(g.integers(2, 60)) * 16,
        watermark=float(g.choice([0, 0.01, 0.1])),
        convention="engine" if g.random() < 0.5 else "paper",
        preemption="swap" if g.random() < 0.4 else "recompute",
        swap_token_s=1e-5,
        queue_limit=None if g.random() < 0.8 else 6,
        check=True,
        stop_time_s=None if g.random() < 0.85 else 2.0,
        stop_backlog=None if g.random() < 0.9 else 8,
        stop_iterations=ENDLESS if g.random() < 0.9 else 50,
        sample_limit=int(g.choice([2, 8, 64])),
        gap_mode="exact" if g.random() < 0.5 else "histogram",
        gap_from_s=0.0 if g.random() < 0.7 else 0.5,
    )
    return requests, time, config.with_(**settings) if settings else config


@pytest.fixture(scope="session")
def make_instance() -> Callable[..., Instance]:
    return instance


@pytest.fixture(scope="session")
def differ() -> Callable[[RawRun, RawRun], str]:
    return difference


VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("static", {}),
    ("orca", {}),
    ("orca", {"chunks": True}),
    ("vllm_v0", {}),
    ("vllm_v0", {"order": "spf", "cap_decodes": False}),
    ("vllm_v1", {}),
    ("vllm_v1", {"order": "priority"}),
    ("sarathi", {}),
    ("sarathi", {"order": "spf"}),
    ("sjf", {}),
    ("sjf", {"base": "sarathi", "key": "total", "predictor": "noise"}),
    ("svf", {}),
    ("priority", {}),
    ("priority", {"base": "sarathi"}),
    ("aging", {}),
    ("aging", {"base": "sarathi", "predictor": "quantile"}),
    ("rad", {"b_col": 4}),
    ("rad", {"b_col": 4, "b_row": 6, "cycle": 3, "pad": False}),
    ("rad_general", {"levels": [(8, 4, 4, 0.5), (16, 16, 0, 0.5)]}),
    ("rad_general", {"levels": [(12, 8, 4, 1.0)]}),
    ("slai", {}),
    ("slai", {"order": "paying_spf", "mean": "ewma", "decode_cap": 3}),
    ("slai", {"order": "spf", "theta": 10}),
    ("wait", {"thresholds": [2, 1]}),
    ("nested_wait", {"boundaries": [3, 10], "thresholds": [2, 2, 1]}),
    ("theta", {}),
    ("eb_plus", {}),
    ("psjf", {}),
    ("srpt", {"predictor": "noise"}),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "variant" in metafunc.fixturenames:
        ids = [
            name + "".join(f"-{v}" for v in params.values() if isinstance(v, str | int)) for name, params in VARIANTS
        ]
        metafunc.parametrize("variant", VARIANTS, ids=ids)
