"""What goes wrong, goes wrong clearly: tiers, limits, plans, aborts, stop tokens, prefix resets, pauses, restarts."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm.v1", reason="no vLLM here: tools/vllm_environment.sh makes an environment with it")

from vllm_harness import make_request, make_scheduler, output_of  # noqa: E402

from tileq_engine.vllm import SarathiScheduler, SlaiScheduler, TileqScheduler  # noqa: E402
from tileq_engine.vllm.mirror import error_of  # noqa: E402
from tileq_engine.vllm.report import report_path  # noqa: E402
from tileq_theory.errors import InputError  # noqa: E402

PLAN: dict[str, Any] = {
    "question": {"gpu": "cpu"},
    "engine": "vllm",
    "token_budget": 64,
    "max_num_seqs": 16,
    "rate_per_s": 20.0,
    "model": {"name": "tiny", "layers": 2, "hidden": 128, "heads": 4, "vocab": 512},
    "gpu": {"name": "cpu"},
    "tp": 1,
    "kv_tokens": 16000,
    "iteration_time": {"launch_s": 0.2, "token_s": 1e-5, "tile_tokens": 1},
}


def run(scheduler: Any, steps: int = 1, stop: frozenset[str] = frozenset()) -> list[dict[str, int]]:
    seen = []
    for _ in range(steps):
        scheduled = scheduler.schedule()
        seen.append(dict(scheduled.num_scheduled_tokens))
        scheduler.update_from_output(scheduled, output_of(scheduler, scheduled, stop=stop))
        assert error_of(scheduler.mirror) is None
    return seen


def test_an_unknown_tier_is_answered_with_an_error_and_the_others_are_served() -> None:
    from vllm.v1.engine import FinishReason

    scheduler = make_scheduler(SlaiScheduler)
    scheduler.add_request(make_request("good", 10, 3))
    scheduler.add_request(make_request("bad", 10, 3, extra={"tileq_tier": "gold"}))
    scheduled = scheduler.schedule()
    assert dict(scheduled.num_scheduled_tokens) == {"good": 10}
    outputs = scheduler.update_from_output(scheduled, output_of(scheduler, scheduled))
    ended = {o.request_id: o.finish_reason for o in outputs[0].outputs}
    assert ended["bad"] == FinishReason.ERROR and ended["good"] is None
    assert "bad" not in scheduler.requests and scheduler.report.rejected == 1
    assert run(scheduler, 2) == [{"good": 1}, {"good": 1}] and not scheduler.has_unfinished_requests()


def test_an_unknown_tier_alone_does_not_keep_the_engine_busy() -> None:
    scheduler = make_scheduler(SlaiScheduler)
    scheduler.add_request(make_request("bad", 10, 3, extra={"tileq_teir": "paying"}))
    run(scheduler)
    assert not scheduler.has_unfinished_requests()


def test_an_unknown_tier_can_be_served_as_the_default_one() -> None:
    scheduler = make_scheduler(SlaiScheduler, tileq={"unknown_tier": "default"})
    scheduler.add_request(make_request("odd", 10, 2, extra={"tileq_tier": "gold"}))
    assert run(scheduler, 2) == [{"odd": 10}, {"odd": 1}]


def test_a_limit_that_cannot_be_met_is_counted_and_served_all_the_same() -> None:
    scheduler = make_scheduler(SlaiScheduler, tileq={"plan": PLAN})
    scheduler.add_request(make_request("hasty", 10, 2, extra={"tileq_tbt_limit_s": 0.001}))
    assert run(scheduler, 2) == [{"hasty": 10}, {"hasty": 1}]
    assert scheduler.report.unreachable == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": {"name": "llama-3.1-8b", "layers": 32}}, "the plan is for llama-3.1-8b with 32 layers"),
        ({"gpu": {"name": "h100-sxm"}}, "the plan is for a h100-sxm, this is cpu"),
        ({"kv_tokens": 10**6}, "the plan counts on 1000000 KV tokens"),
    ],
    ids=str,
)
def test_a_plan_for_another_machine_stops_the_start(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        make_scheduler(SlaiScheduler, tileq={"plan": {**PLAN, **change}})
    settings = {"plan": {**PLAN, **change}, "allow_other_machine": True}
    assert make_scheduler(SlaiScheduler, tileq=settings).settings.allow_other_machine


@pytest.mark.parametrize(
    ("tileq", "says"),
    [
        ({"token_budget": 65}, "token_budget is 65; vLLM allows 64"),
        ({"max_num_seqs": 17}, "max_num_seqs is 17; vLLM allows 16"),
        ({"policy": "rad_general", "params": {"levels": [[128, 64, 64, 1.0]]}}, "a level of the plan has 128 tokens"),
        ({"policy": "rad_general"}, "rad_general needs a plan or levels"),
    ],
    ids=str,
)
def test_settings_that_vllm_cannot_carry_out_stop_the_start(tileq: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        make_scheduler(TileqScheduler, tileq=tileq)


def test_a_client_that_disconnects_frees_its_seat_at_once() -> None:
    from vllm.v1.request import RequestStatus

    scheduler = make_scheduler(SarathiScheduler, max_num_seqs=2)
    for name in "abcd":
        scheduler.add_request(make_request(name, 10, 9))
    run(scheduler, 2)
    scheduler.finish_requests(["a", "c"], RequestStatus.FINISHED_ABORTED)  # one runs, one waits
    assert run(scheduler) == [{"b": 1, "d": 10}]
    scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    run(scheduler)
    assert len(scheduler.mirror) == 0 and not scheduler.has_unfinished_requests()


def test_a_client_that_disconnects_while_the_iteration_runs() -> None:
    from vllm.v1.request import RequestStatus

    scheduler = make_scheduler(SarathiScheduler)
    for name in "ab":
        scheduler.add_request(make_request(name, 10, 9))
    scheduled = scheduler.schedule()
    output = output_of(scheduler, scheduled)
    scheduler.finish_requests(["a"], RequestStatus.FINISHED_ABORTED)
    scheduler.update_from_output(scheduled, output)
    assert run(scheduler) == [{"b": 1}]


def test_a_stop_token_ends_a_request_before_its_limit() -> None:
    scheduler = make_scheduler(SarathiScheduler)
    scheduler.add_request(make_request("a", 10, 50, ignore_eos=False))
    scheduler.requests["a"].sampling_params.stop_token_ids = [2]
    scheduler.requests["a"].sampling_params._all_stop_token_ids = {2}
    run(scheduler, 3)
    run(scheduler, 1, stop=frozenset({"a"}))
    assert not scheduler.has_unfinished_requests() and len(scheduler.mirror) == 0


def test_a_reset_of_the_prefix_cache_preempts_everybody_and_all_end() -> None:
    scheduler = make_scheduler(SarathiScheduler, prefix_caching=True)
    for name in "abc":
        scheduler.add_request(make_request(name, 30, 6, block_tokens=16))
    run(scheduler, 3)
    assert scheduler.reset_prefix_cache(reset_running_requests=True)
    run(scheduler, 12)
    assert not scheduler.has_unfinished_requests() and len(scheduler.mirror) == 0


def test_a_pause_stops_and_goes_on() -> None:
    from vllm.v1.core.sched.interface import PauseState

    scheduler = make_scheduler(SarathiScheduler)
    scheduler.add_request(make_request("a", 10, 4))
    run(scheduler)
    scheduler.add_request(make_request("b", 10, 4))
    scheduler.set_pause_state(PauseState.PAUSED_ALL)
    assert run(scheduler) == [{}]
    scheduler.set_pause_state(PauseState.PAUSED_NEW)
    assert run(scheduler) == [{"a": 1}]
    scheduler.set_pause_state(PauseState.UNPAUSED)
    assert run(scheduler) == [{"a": 1, "b": 10}]
    run(scheduler, 4)
    assert not scheduler.has_unfinished_requests() and len(scheduler.mirror) == 0


def test_a_prefix_in_the_cache_is_not_counted_as_work() -> None:
    scheduler = make_scheduler(SarathiScheduler, prefix_caching=True)
    prompt = list(range(3, 103))
    scheduler.add_request(make_request("a", prompt, 2, block_tokens=16))
    run(scheduler, 3)
    scheduler.add_request(make_request("b", prompt, 2, block_tokens=16))
    scheduler.add_request(make_request("c", 50, 2, block_tokens=16))
    assert run(scheduler) == [{"b": 4, "c": 50}], "96 of b's 100 tokens are cached, so that c fits beside it"
    assert scheduler.mirror.repaired == 0


def test_what_is_not_supported_is_refused_at_the_start() -> None:
    class Chunkless(SarathiScheduler):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs["vllm_config"].scheduler_config.enable_chunked_prefill = False
            super().__init__(*args, **kwargs)

    with pytest.raises(InputError, match="do not run with chunked prefill switched off"):
        make_scheduler(Chunkless)


def test_the_report_reaches_the_prometheus_endpoint() -> None:
    from prometheus_client import REGISTRY

    from tileq_engine.vllm import TileqStatLogger

    scheduler = make_scheduler(SlaiScheduler, tileq={"plan": PLAN})
    scheduler.add_request(make_request("a", 10, 4))
    run(scheduler, 2)
    scheduler.report._written -= 10
    run(scheduler)
    path = report_path(str(scheduler.vllm_config.instance_id), 0)
    assert json.loads(path.read_text(encoding="utf-8"))["planned_rate_per_s"] == 20.0
    logger = TileqStatLogger(scheduler.vllm_config, 0)
    logger.record(None, None)
    assert REGISTRY.get_sample_value("tileq:decisions_total", {"engine": "0"}) == 3.0
    assert REGISTRY.get_sample_value("tileq:headroom_per_s", {"engine": "0"}) is not None
    path.unlink()


def test_where_the_rules_let_nobody_run_vllm_decides() -> None:
    from tileq_engine.vllm.mirror import Decision

    scheduler = make_scheduler(SarathiScheduler)
    scheduler.add_request(make_request("a", 10, 3))
    decide = scheduler.mirror.decide
    scheduler.mirror.decide = lambda now_ps, free_blocks: Decision()
    assert run(scheduler) == [{"a": 10}]
    assert scheduler.report.stock_decisions == 1
    scheduler.mirror.decide = decide
    run(scheduler, 2)
    assert not scheduler.has_unfinished_requests() and len(scheduler.mirror) == 0


def test_a_record_that_cannot_be_written_stops_the_start() -> None:
    with pytest.raises(InputError, match="which cannot be written"):
        make_scheduler(SarathiScheduler, tileq={"record": "/nowhere/record.jsonl"})


def test_a_scheduler_made_anew_begins_with_nothing() -> None:
    first = make_scheduler(SarathiScheduler)
    first.add_request(make_request("a", 10, 9))
    run(first, 2)
    second = make_scheduler(SarathiScheduler)  # the server was killed and started again
    assert len(second.mirror) == 0
    second.add_request(make_request("a", 10, 2))  # the client asks again, by the same name
    assert run(second, 2) == [{"a": 10}, {"a": 1}]


def test_what_clients_ask_for_fills_neither_the_log_nor_the_memory() -> None:
    scheduler = make_scheduler(SlaiScheduler, tileq={"unknown_tier": "default", "plan": PLAN})
    for k in range(30):
        scheduler.add_request(make_request(f"a{k}", 10, 2, extra={"tileq_tier": f"gold{k}"}))
        scheduler.add_request(make_request(f"b{k}", 10, 2, extra={"tileq_tbt_limit_s": 0.001 + 1e-6 * k}))
    assert scheduler.report.unreachable == 30 and len(scheduler.report._warned) == 2


def test_a_new_request_by_the_name_of_one_that_has_just_gone() -> None:
    from vllm.v1.request import RequestStatus

    scheduler = make_scheduler(SarathiScheduler)
    scheduler.add_request(make_request("a", 10, 9))
    run(scheduler, 3)
    scheduler.finish_requests(["a"], RequestStatus.FINISHED_ABORTED)
    scheduler.add_request(make_request("a", 30, 2))
    assert run(scheduler, 2) == [{"a": 30}, {"a": 1}]
    assert scheduler.mirror.repaired == 0 and len(scheduler.mirror) == 0


def test_no_more_adapters_run_together_than_there_is_room_for() -> None:
    """SLAI puts the first one's decodes off; vLLM would then let another adapter in, and stop when both are to run."""
    from types import SimpleNamespace

    tiers = {"standard": {"tbt_limit_s": 0.02}}
    scheduler = make_scheduler(SlaiScheduler, tileq={"tiers": tiers})
    scheduler.lora_config, scheduler._lean = SimpleNamespace(max_loras=1), None
    clock = SimpleNamespace(ns=0)
    scheduler.clock, scheduler._began_ns = lambda: clock.ns, 0
    for name, prompt in (("a", 10), ("b", 500), ("c", 20)):
        request = make_request(name, prompt, 6)
        request.lora_request = SimpleNamespace(lora_int_id={"a": 1, "b": 2, "c": 1}[name])
        scheduler.add_request(request)
        clock.ns += 1_000_000
        run(scheduler)
    served: set[str] = set()
    for _ in range(800):
        if not scheduler.has_unfinished_requests():
            break
        clock.ns += 1_000_000
        served |= set(run(scheduler)[0])
        assert len({r.lora_request.lora_int_id for r in scheduler.running}) <= 1
    assert served >= {"b"} and not scheduler.has_unfinished_requests() and len(scheduler.mirror) == 0


def test_whom_vllm_preempted_is_known_by_what_is_still_cached_of_it() -> None:
    scheduler = make_scheduler(SarathiScheduler, prefix_caching=True, max_num_batched_tokens=128)
    scheduler.add_request(make_request("a", 100, 9, block_tokens=16))
    run(scheduler, 2)
    scheduler._preempt_request(scheduler.running.pop(), 0.0)
    assert run(scheduler) == [{"a": 6}], "96 of 102 tokens are in full blocks"
    assert scheduler._hits == {"a": 96}
    run(scheduler, 6)
    assert not scheduler._hits and not scheduler.has_unfinished_requests()


def test_cached_blocks_that_nobody_holds_are_free_ones_too() -> None:
    """SLAI gives b's prompt the budget; vLLM has no room for it yet, and the decodes do not wait for that.

    Of 40 blocks b needs 36. a's prompt of 25 is cached and free, so that b seems to lack 11 alone; c holds 8.
    """
    tiers = {"standard": {"tbt_limit_s": 10.0}}
    options = {"prefix_caching": True, "blocks": 40, "max_num_batched_tokens": 512}
    scheduler = make_scheduler(SlaiScheduler, tileq={"tiers": tiers, "token_budget": 64}, **options)
    shared = list(range(3, 403))
    scheduler.add_request(make_request("a", shared, 1, block_tokens=16))
    run(scheduler, 8)
    assert not scheduler.has_unfinished_requests()
    scheduler.add_request(make_request("c", 100, 20, block_tokens=16))
    run(scheduler, 3)
    scheduler.add_request(make_request("b", shared + [7, 9] * 85, 2, block_tokens=16))
    assert run(scheduler, 20) == [{}, *[{"c": 1}] * 18, {"b": 64}], "c has gone on beside b's wait"
    run(scheduler, 12)
    assert not scheduler.has_unfinished_requests() and len(scheduler.mirror) == 0


def test_ahead_of_time_the_clock_comes_back_to_the_real_one_after_slow_iterations() -> None:
    """Deadlines are counted by it: were it seconds ahead, every decode would seem late, and SLAI be Sarathi-Serve."""
    from collections import deque
    from types import SimpleNamespace

    ms = 1_000_000
    scheduler = make_scheduler(SlaiScheduler, asynchronous=True)
    clock = SimpleNamespace(ns=0)
    scheduler.clock, scheduler._began_ns = lambda: clock.ns, 0
    scheduler.add_request(make_request("a", 10, 300))
    flights: deque[Any] = deque()
    ahead = []
    for k in range(250):
        scheduled = scheduler.schedule()
        flights.append((scheduled, output_of(scheduler, scheduled)))
        if len(flights) == 2:
            clock.ns += (5000 if k < 4 or k == 150 else 10) * ms  # the first ones compile; one stands still
            scheduler.update_from_output(*flights.popleft())
        ahead.append(scheduler.mirror.now_ps // 1000 - clock.ns)
    assert max(ahead[40:]) <= 10 * ms, "the iteration that runs is all that it is ahead"
    assert min(ahead[40:150] + ahead[152:]) >= -10 * ms
