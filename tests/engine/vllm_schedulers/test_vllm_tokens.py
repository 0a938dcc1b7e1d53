"""With any of Tileq's schedulers a greedy request gets the tokens that it gets from vLLM's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm.v1", reason="no vLLM here: tools/vllm_environment.sh makes an environment with it")

from vllm_harness import VOCAB, allow_a_second_engine, model_with_weights  # noqa: E402

STOCK = None
SCHEDULERS: list[tuple[str, dict[str, Any]]] = [
    ("SarathiScheduler", {"token_budget": 48}),
    ("SlaiScheduler", {"tiers": {"paying": {"tbt_limit_s": 0.004, "paying": True}, "standard": {"tbt_limit_s": 0.05}}}),
    ("RadScheduler", {"params": {"levels": [[64, 48, 16, 1.0], [32, 0, 32, 2.0]]}}),
    ("AgingScheduler", {}),
    ("ShortestPromptScheduler", {"max_num_seqs": 6}),
    ("TileqScheduler", {"policy": "priority"}),
]
KINDS = {
    "asynchronous": {"async_scheduling": True},
    "synchronous": {"async_scheduling": False},
}


@pytest.fixture(scope="module")
def folder() -> str:
    return model_with_weights()


def make_engine(folder: str, scheduler: str | None, tileq: dict[str, Any], **options: Any) -> Any:
    """Return an engine with a small KV cache: 20 blocks of 32 tokens, prefix caching and chunked prefill on."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    allow_a_second_engine()
    own = {} if scheduler is None else {"scheduler_cls": f"tileq_engine.vllm.{scheduler}"}
    if tileq:
        own["additional_config"] = {"tileq": tileq}
    return LLMEngine.from_engine_args(
        EngineArgs(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            max_model_len=512,
            block_size=32,
            num_gpu_blocks_override=21,
            max_num_seqs=8,
            max_num_batched_tokens=64,
            enable_prefix_caching=True,
            seed=0,
            **own,
            **options,
        )
    )


def draw(seed: int, count: int = 40) -> list[dict[str, Any]]:
    """Return requests: prompts of which a third share a prefix, some given up after a few tokens."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(3, VOCAB, 80).tolist()
    drawn = []
    for k in range(count):
        own = rng.integers(3, VOCAB, int(rng.integers(1, 150))).tolist()
        drawn.append(
            {
                "name": f"r{k}",
                "prompt": (shared[: int(rng.integers(20, 80))] if rng.random() < 0.35 else []) + own,
                "output": int(rng.integers(1, 60)),
                "at_step": int(rng.integers(0, 80)),
                "paying": bool(rng.random() < 0.3),
                "priority": int(rng.integers(0, 3)),
                "give_up_after": int(rng.integers(1, 10)) if rng.random() < 0.15 else None,
            }
        )
    return drawn


def serve(engine: Any, drawn: list[dict[str, Any]], tileq: bool) -> tuple[dict[str, list[int]], int]:
    """Return the tokens of each request that was not given up, and how many preemptions there were."""
    from vllm.sampling_params import SamplingParams

    tokens: dict[str, list[int]] = {}
    given_up: set[str] = set()
    waiting = sorted(drawn, key=lambda r: r["at_step"])
    by_name = {r["name"]: r for r in drawn}
    step = preempted = 0
    while waiting or engine.has_unfinished_requests():
        while waiting and (waiting[0]["at_step"] <= step or not engine.has_unfinished_requests()):
            asked = waiting.pop(0)
            extra = {"tileq_tier": "paying" if asked["paying"] else "standard"}
            params = SamplingParams(
                temperature=0.0,
                max_tokens=asked["output"],
                ignore_eos=True,
                detokenize=False,
                extra_args=extra if tileq else None,
            )
            engine.add_request(asked["name"], {"prompt_token_ids": asked["prompt"]}, params)
        for out in engine.step():
            tokens[out.request_id] = list(out.outputs[0].token_ids)
            limit = by_name[out.request_id]["give_up_after"]
            if limit is not None and len(tokens[out.request_id]) >= limit and not out.finished:
                engine.abort_request([out.request_id])
                given_up.add(out.request_id)
        step += 1
        assert step < 5000, "the engine does not come to an end"
    core = engine.engine_core.engine_core.scheduler
    assert not core.running and not core.waiting and not core.requests
    assert core.kv_cache_manager.block_pool.get_num_free_blocks() == 20
    if tileq:
        assert len(core.mirror) == 0 and core.mirror.residents == 0
        assert core.report.stock_decisions == 0
    return {name: found for name, found in tokens.items() if name not in given_up}, preempted


@pytest.fixture(scope="module")
def stock_tokens(folder: str) -> dict[int, dict[str, list[int]]]:
    engine = make_engine(folder, None, {})
    return {seed: serve(engine, draw(seed), False)[0] for seed in (1, 2)}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("scheduler", "tileq"), SCHEDULERS, ids=[name for name, _ in SCHEDULERS])
def test_the_tokens_are_those_of_vllms_own_scheduler(
    folder: str, stock_tokens: dict[int, dict[str, list[int]]], scheduler: str, tileq: dict[str, Any], kind: str
) -> None:
    engine = make_engine(folder, scheduler, tileq, **KINDS[kind])
    if engine.vllm_config.scheduler_config.async_scheduling is not KINDS[kind]["async_scheduling"]:
        pytest.skip(
            "this platform of vLLM (a CPU) switches asynchronous scheduling off: it would be the other case again"
        )
    for seed, expected in stock_tokens.items():
        found, _ = serve(engine, draw(seed), True)
        by_name = {r["name"]: r for r in draw(seed)}
        assert {n: len(t) for n, t in found.items()} == {n: by_name[n]["output"] for n in found}
        assert {n: t for n, t in found.items() if n in expected} == {n: t for n, t in expected.items() if n in found}
        assert len({tuple(t[-8:]) for t in found.values()}) > len(found) // 2, "the model's tokens should differ"


def test_the_stream_is_a_hard_one(folder: str) -> None:
    """The requests above do preempt, are chunked and hit the prefix cache."""
    engine = make_engine(folder, "SarathiScheduler", {})
    core = engine.engine_core.engine_core.scheduler
    preempted, hits = [], []
    original = core.schedule

    def watched(*args: Any) -> Any:
        out = original(*args)
        preempted.extend(out.preempted_req_ids or ())
        hits.extend(new.num_computed_tokens for new in out.scheduled_new_reqs)
        return out

    core.schedule = watched
    serve(engine, draw(1), True)
    assert preempted and any(hits)
