"""The engine's batches against `recomputed/plain_schedules.py`, which knows neither the engine nor its reference."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.registry import policy
from tileq_theory.iteration_time import IterationTime

sys.path.insert(0, str(Path(__file__).parent / "recomputed"))

import plain_schedules as plain

MS = 10**9
LAUNCH_MS, TOKEN_US = 5, 100  # an iteration of n tokens takes 5 ms + n * .1 ms
TIME = IterationTime(launch_s=LAUNCH_MS * 1e-3, token_s=TOKEN_US * 1e-6)


def took(tokens: int) -> int:
    return LAUNCH_MS * MS + tokens * TOKEN_US * 10**6


def asked(seed: int, count: int = 30, gap_ms: float = 12.0, longest: int = 90) -> list[plain.Req]:
    g = np.random.default_rng(seed)
    at = np.cumsum(np.where(g.random(count) < 0.3, 0, g.integers(0, int(2 * gap_ms * MS), count)))
    paying = g.random(count) < 0.3
    return [
        plain.Req(i, int(at[i]), int(g.integers(1, longest)), int(g.integers(1, 40)), (500 - 400 * int(paying[i])) * MS)
        for i in range(count)
    ]


def engine_batches(requests: list[plain.Req], name: str, config: EngineConfig, mode: Any, **params: Any) -> Any:
    run = simulate(
        Requests.from_arrays(
            arrival_ps=[r.arrival for r in requests],
            prompt_tokens=[r.prompt for r in requests],
            output_tokens=[r.output for r in requests],
            tbt_limit_ps=[r.limit for r in requests],
            class_index=[r.kind for r in requests],
        ),
        policy(name, **params),
        TIME,
        config.with_(trace_limit=100_000, check=True),
        mode=mode,
    )
    t, rows = run.trace, {}
    for start, who, chunk, decode in zip(
        *(v.tolist() for v in (t.start_ps, t.request, t.prefill_tokens, t.decode)), strict=True
    ):
        rows.setdefault(start, []).append((who, chunk or 1, bool(decode)))
    return run, [(start, sorted(members)) for start, members in rows.items()]


def same(requests: list[plain.Req], told: Any, run: Any, batches: Any) -> None:
    assert len(told) == len(batches) > 30
    for one, other in zip(told, batches, strict=True):
        assert one == other
    assert [r.end for r in requests] == run.finish_ps.tolist()
    assert [r.first for r in requests] == run.first_token_ps.tolist()
    assert [r.restarts for r in requests] == run.preemptions.tolist()


@pytest.mark.parametrize("mode", ["python", "stepped"])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_vllm_v1_under_preemption(seed: int, sequence: bool, mode: Any) -> None:
    requests, blocks = asked(seed), 14
    told = plain.run(requests, plain.vllm_v1(48, 8, sequence), took, blocks)
    config = EngineConfig(token_budget=48, max_num_seqs=8, kv_tokens=blocks * 16)
    gate = "sequence" if sequence else "chunk"
    run, batches = engine_batches(requests, "vllm_v1", config, mode, admission=gate)
    same(requests, told, run, batches)
    assert run.counters["preemptions"] >= 5


@pytest.mark.parametrize("mode", ["python", "stepped"])
@pytest.mark.parametrize(
    ("seed", "blocks", "order", "cap"), [(4, 10**6, "spf", 128), (5, 15, "fcfs", 6), (6, 13, "spf", 128)]
)
def test_slai_decision_by_decision(seed: int, blocks: int, order: str, cap: int, mode: Any) -> None:
    requests = asked(seed, gap_ms=8.0)
    watermark = 1 if blocks < 10**6 else 0
    told = plain.run(
        requests,
        plain.slai(32, 12, cap, order == "spf", watermark),
        took,
        blocks,
        after=plain.slai_deadline(blocks),
    )
    kv = None if blocks == 10**6 else blocks * 16
    share = 0.0 if kv is None else 1.5 / blocks
    config = EngineConfig(token_budget=32, max_num_seqs=12, kv_tokens=kv, watermark=share)
    run, batches = engine_batches(requests, "slai", config, mode, order=order, decode_cap=cap)
    same(requests, told, run, batches)
    assert kv is None or run.counters["preemptions"] >= 1
    # decodes were put off (the rule at work), and critical ones served beside chunks
    assert any(any(d for _, _, d in members) and any(not d for _, _, d in members) for _, members in told)


@pytest.mark.parametrize("cycle", [None, 4])
@pytest.mark.parametrize("mode", ["python", "stepped"])
def test_rad_with_its_cycle(cycle: int | None, mode: Any) -> None:
    requests = asked(7)
    told = plain.run(requests, plain.rad(6, 12, cycle), took, engine=False)
    config = EngineConfig(convention="paper", max_num_seqs=7)
    params: dict[str, Any] = {"b_col": 6, "b_lcm": 12, "cycle": cycle}
    run, batches = engine_batches(requests, "rad", config.with_(check=False), mode, **params)
    same(requests, told, run, batches)


@pytest.mark.parametrize("mode", ["python", "stepped"])
def test_wait_with_two_types(mode: Any) -> None:
    requests = asked(8)
    for r in requests:
        r.kind = r.i % 3 % 2
    told = plain.run(requests, plain.wait([3, 2]), took)
    run, batches = engine_batches(requests, "wait", EngineConfig(), mode, thresholds=[3, 2])
    same(requests, told, run, batches)


def test_fluid_thresholds_of_wait() -> None:
    """n_j = lambda_j DeltaT*, DeltaT* = d0/(1 - d1 S), S = sum lambda_j (l'_j + 1)(l_j + l'_j/2), rounded up."""
    d0, d1, prompts, outputs, counts, span = 0.02, 1e-6, (100, 300), (50, 20), (600, 300), 100.0
    S = sum(n / span * (out + 1) * (p + out / 2) for n, p, out in zip(counts, prompts, outputs, strict=True))
    delta = d0 / (1 - d1 * S)
    kind = np.repeat([0, 1], counts)
    requests = Requests.from_arrays(
        arrival_s=np.linspace(0, span, sum(counts)),
        class_index=kind,
        prompt_tokens=np.take(prompts, kind),
        output_tokens=np.take(outputs, kind),
    )
    rule = policy("wait")
    assert rule.prepare is not None
    time = IterationTime(launch_s=d0, kv_token_s=d1, kv_counts_prefill=True)
    found = rule.prepare(rule, requests, time, EngineConfig()).integers
    assert list(found) == [int(np.ceil(n / span * delta)) for n in counts]


# ------------------------------------------------------------------ Dai, Fig. 8


def figure_8(name: str) -> str:
    """The four policies in a dozen lines: A, B, C hold KV; D and E come during batch 1; one token a member."""
    left = dict(zip("ABCDE", (2, 4, 3, 1, 1), strict=True))
    inside, queue, late, batches = "ABC", "", "DE", []
    budget = 5 if name == "orca" else 4
    while inside or queue or late:
        decodes, prefill = inside[:budget], ""
        if name == "vllm_v0" and queue:
            prefill, decodes = queue[:budget], ""
        elif name == "orca":
            prefill = queue[:budget]
            decodes = decodes[: budget - len(prefill)]
        elif name == "sarathi":
            prefill = queue[: max(budget - len(decodes), 0)]
        elif name == "static" and not inside:
            prefill = queue
        batches.append(decodes + "".join(p + "p" for p in prefill))
        for x in decodes:
            left[x] -= 1
        queue = queue[len(prefill) :] + late
        late = ""
        inside = "".join(x for x in inside + prefill if left[x] > 0)
    return "".join(f"[{b}]" for b in batches)


PRINTED = {
    "vllm_v0": "[ABC][DpEp][ABCD][BCE][B]",
    "orca": "[ABC][ABCDpEp][BCDE][B]",
    "static": "[ABC][ABC][BC][B][DpEp][DE]",
    "sarathi": "[ABC][ABCDp][BCDEp][BE]",
}


@pytest.mark.parametrize("name", list(PRINTED))
def test_figure_8_is_what_its_rules_give(name: str) -> None:
    assert figure_8(name) == PRINTED[name]
