"""Carried out by Tileq or by vLLM's own `schedule`, a decision comes to the same: output, requests, memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm.v1", reason="no vLLM here: tools/vllm_environment.sh makes an environment with it")

from vllm_driving import Clock  # noqa: E402
from vllm_harness import make_request, make_scheduler, output_of  # noqa: E402
from vllm_twins import Arbitrary, Twins, pair  # noqa: E402

from tileq_engine.vllm import SarathiScheduler, TileqScheduler, lean_known  # noqa: E402
from tileq_engine.vllm.lean_known import obstacles  # noqa: E402

POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("sarathi", {}),
    ("slai", {"order": "paying_spf", "mean": "ewma"}),
    ("rad_general", {"levels": [[64, 48, 16, 1.0], [32, 0, 32, 2.0]]}),
    ("aging", {"base": "sarathi"}),
]


def counted(scheduler: Any) -> list[bool]:
    """Return a list that notes of every iteration whether it was carried out without vLLM's `schedule`."""
    seen: list[bool] = []
    own = scheduler._lean.schedule

    def schedule(planned: dict[str, int], let_in: list[Any]) -> Any:
        output = own(planned, let_in)
        seen.append(output is not None)
        return output

    scheduler._lean.schedule = schedule
    return seen


@pytest.mark.parametrize("second_runner", [False, True], ids=["runner 1", "runner 2"])
@pytest.mark.parametrize("depth", [1, 2], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("blocks", [24, 400], ids=["tight", "ample"])
@pytest.mark.parametrize("caching", [True, False], ids=["caching", "plain"])
def test_any_decision_comes_to_what_vllm_makes_of_it(
    caching: bool, blocks: int, depth: int, second_runner: bool
) -> None:
    preempted = hits = 0
    for seed in range(3):
        options = {"max_num_seqs": 10, "max_num_batched_tokens": 100, "max_model_len": 180, "blocks": blocks}
        both = pair(Arbitrary, second_runner=second_runner, asynchronous=depth > 1, prefix_caching=caching, **options)
        both[0].seed = both[1].seed = seed
        seen = counted(both[0])
        twins = Twins(both, seed, 16 if caching else None, count=60)
        twins.run(depth, steps=200)
        assert np.mean(seen) > 0.6, "vLLM's schedule was asked too often for this to say anything"
        preempted, hits = preempted + twins.preempted, hits + twins.hits
    assert preempted or blocks > 24
    assert hits or not caching


@pytest.mark.parametrize(("name", "params"), POLICIES, ids=[name for name, _ in POLICIES])
@pytest.mark.parametrize("blocks", [30, 400], ids=["tight", "ample"])
def test_a_policys_stream_is_the_same_either_way(name: str, params: dict[str, Any], blocks: int) -> None:
    tiers = {"paying": {"tbt_limit_s": 0.02, "paying": True}, "standard": {"tbt_limit_s": 0.08}}
    settings = {"policy": name, "params": params, "tiers": tiers}
    both = pair(
        TileqScheduler,
        second_runner=False,
        asynchronous=True,
        prefix_caching=True,
        tileq=settings,
        max_num_seqs=12,
        blocks=blocks,
        max_model_len=500,
    )
    clock = Clock()
    for scheduler in both:
        scheduler.clock, scheduler._began_ns = clock, 0
    seen = counted(both[0])
    twins = Twins(both, 7, 16, count=80)

    before = twins._disturb

    def disturb(rng: np.random.Generator) -> None:
        clock.ns += 2_000_000
        before(rng)
        assert both[0].mirror.state.S.tobytes() == both[1].mirror.state.S.tobytes(), "the mirrors"

    twins._disturb = disturb  # type: ignore[method-assign]
    twins.run(2, steps=400)
    assert not both[0].has_unfinished_requests()
    assert np.mean(seen) > 0.9


def test_what_is_not_plain_is_left_to_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make_scheduler(SarathiScheduler)
    assert obstacles(scheduler) == []
    scheduler.num_spec_tokens = 2
    assert obstacles(scheduler) == ["speculative decoding"]
    monkeypatch.setattr(lean_known, "KNOWN", frozenset())
    other = make_scheduler(SarathiScheduler)
    assert other._lean is None and "a vLLM whose scheduler has other code" in obstacles(other)

    class Own(SarathiScheduler):  # type: ignore[misc]
        def _update_after_schedule(self, scheduler_output: Any) -> None:
            super()._update_after_schedule(scheduler_output)

    assert "a subclass with a vLLM method of its own" in obstacles(make_scheduler(Own))


def test_a_request_with_pictures_is_left_to_vllm() -> None:
    scheduler = make_scheduler(SarathiScheduler)
    seen = counted(scheduler)
    scheduler.add_request(make_request("a", 10, 3))
    session = make_request("b", 10, 2)
    session.resumable = True
    scheduler.add_request(session)
    scheduled = scheduler.schedule()
    assert not seen and dict(scheduled.num_scheduled_tokens) == {"a": 10, "b": 10}
    scheduler.update_from_output(scheduled, output_of(scheduler, scheduled))
    from vllm.v1.request import RequestStatus

    scheduler.finish_requests(["b"], RequestStatus.FINISHED_ABORTED)
    scheduler.schedule()
    assert seen == [True]
