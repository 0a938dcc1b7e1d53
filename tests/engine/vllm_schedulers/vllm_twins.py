"""Two schedulers on one stream, one of which carries decisions out by vLLM's own `schedule`: all that they hold."""

from __future__ import annotations

import dataclasses
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
from vllm.v1.request import Request, RequestStatus
from vllm_harness import VOCAB, make_request, make_scheduler, output_of

from tileq_engine.vllm.mirror import Decision
from tileq_engine.vllm.scheduler import TileqScheduler

_OF_A_REQUEST = [
    "status",
    "num_computed_tokens",
    "num_in_flight_tokens",
    "num_output_placeholders",
    "num_stale_output_tokens",
    "drop_stale_output",
    "is_prefill_chunk",
    "num_preemptions",
    "next_decode_eligible_step",
    "spec_token_ids",
    "shared_prefix_boundary",
    "prefill_stats",
    "block_hashes",
    "_all_token_ids",
    "_output_token_ids",
    "stop_reason",
]


class Arbitrary(TileqScheduler):  # type: ignore[misc]
    """Decides at random: anybody may get any number of tokens, and be let in in any order, memory or not."""

    seed, step = 0, 0

    def _decide(self) -> Decision | None:
        self._forget_gone()
        self.step += 1
        rng = np.random.default_rng([self.seed, self.step])
        tokens: dict[str, int] = {}
        for request in self.running:
            if rng.random() < 0.85:
                tokens[request.request_id] = 1 if rng.random() < 0.5 else int(rng.integers(1, 90))
        ready = (RequestStatus.WAITING, RequestStatus.PREEMPTED)
        let_in = [r.request_id for r in self.waiting if r.status in ready and rng.random() < 0.4]
        rng.shuffle(let_in)
        tokens |= {name: int(rng.integers(1, 60)) for name in let_in}
        return Decision(tokens, [], let_in)

    def _settle(self, planned: dict[str, int], output: Any) -> None:
        self._lost.clear()

    def _land(self, flight: Any) -> None:
        pass


def pair(kind: type, *, second_runner: bool, **options: Any) -> tuple[Any, Any]:
    """Return a scheduler that carries out by itself, and its twin that leaves that to vLLM."""
    made = tuple(make_scheduler(kind, log_stats=True, **options) for _ in range(2))
    for scheduler in made:
        assert scheduler._lean is not None
        scheduler.use_v2_model_runner = scheduler._lean._stepwise = second_runner
        scheduler.structured_output_manager.accept_tokens = lambda request, tokens: True
    made[1]._lean = None
    return made[0], made[1]


def drawn_request(name: str, seed: int, block_tokens: int | None) -> Request:
    """Return a request by its number in the stream; a third share a prefix, some have a grammar."""
    rng = np.random.default_rng([seed, int(name)])
    shared = [(3 + 7 * k) % (VOCAB - 3) for k in range(80)] if rng.random() < 0.4 else []
    own = rng.integers(3, VOCAB, int(rng.integers(1, 90))).tolist()
    extra = {"tileq_tier": "paying" if rng.random() < 0.3 else "standard"}
    request = make_request(
        name, shared + own, int(rng.integers(1, 30)), extra=extra, block_tokens=block_tokens, ignore_eos=False
    )
    request.arrival_time = float(int(name))
    if rng.random() < 0.2:
        request.structured_output_request = SimpleNamespace(grammar=None)
    return request


def told(output: Any) -> dict[str, Any]:
    """Return an output of `schedule`, field by field."""
    found = dict(vars(output))
    found["num_scheduled_tokens"] = list(output.num_scheduled_tokens.items())  # in order
    found["scheduled_cached_reqs"] = dataclasses.asdict(output.scheduled_cached_reqs)
    return found


def answered(outputs: dict[int, Any]) -> list[Any]:
    """Return what `update_from_output` returns, without its times."""
    found: list[Any] = []
    for client, of_client in outputs.items():
        stats = of_client.scheduler_stats
        rows = [
            (o.request_id, list(o.new_token_ids), o.finish_reason, o.stop_reason, o.prefill_stats, _kinds(o.events))
            for o in of_client.outputs
        ]
        found.append((client, rows, of_client.finished_requests, None if stats is None else dataclasses.asdict(stats)))
    return found


def _kinds(events: Any) -> list[Any]:
    return [event.type for event in events or ()]


def state_of(scheduler: Any) -> dict[str, Any]:
    """Return all that a scheduler and its memory hold, by value; times and the mirror left out."""
    pool = scheduler.kv_cache_manager.block_pool
    own = scheduler.kv_cache_manager.coordinator.single_type_managers[0]
    requests = {
        name: {field: getattr(r, field) for field in _OF_A_REQUEST} | {"events": _kinds(r.events)}
        for name, r in scheduler.requests.items()
    }
    return {
        "running": [r.request_id for r in scheduler.running],
        "waiting": [r.request_id for r in scheduler.waiting],
        "holding": [r.request_id for r in scheduler.kv_holding_waiting],
        "deferred": {r.request_id for r in scheduler.deferred_waiting},
        "prefilling": {r.request_id for r in scheduler._inflight_prefills},
        "bound": scheduler.prefill_capacity_bound,
        "before": set(scheduler.prev_step_scheduled_req_ids),
        "step": scheduler.current_step,
        "gone": (set(scheduler.finished_req_ids), set(scheduler.reset_preempted_req_ids)),
        "requests": requests,
        "blocks": {name: [b.block_id for b in blocks] for name, blocks in own.req_to_blocks.items()},
        "cached": dict(own.num_cached_block),
        "new": list(own.new_block_ids),
        "pool": [(b.ref_cnt, b.block_hash) for b in pool.blocks],
        "free": [b.block_id for b in pool.free_block_queue.get_all_free_blocks()],
        "stats": dataclasses.asdict(scheduler.kv_cache_manager.prefix_cache_stats),
    }


def same(where: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    """Fail with the first field that differs."""
    assert list(one) == list(other), where
    for name in one:
        assert one[name] == other[name], f"{where}: {name}"


class Twins:
    """A pair driven in step; every difference fails."""

    def __init__(self, pair: tuple[Any, Any], seed: int, block_tokens: int | None, count: int) -> None:
        self.pair, self.seed, self.block_tokens, self.count = pair, seed, block_tokens, count
        self.flights: tuple[deque[Any], deque[Any]] = (deque(), deque())
        self.came = self.step = self.carried = self.preempted = self.hits = 0

    def run(self, depth: int, steps: int) -> None:
        """Serve the stream with up to `depth` iterations in flight."""
        rng = np.random.default_rng(self.seed)
        while self.step < steps and (self.came < self.count or self.pair[0].has_unfinished_requests()):
            self.step += 1
            self._disturb(rng)
            self._iteration(rng)
            while len(self.flights[0]) >= depth or (self.flights[0] and rng.random() < 0.3):
                self._update()
        while self.flights[0]:
            self._update()

    def _disturb(self, rng: np.random.Generator) -> None:
        """Let requests come, some be given up, and seldom empty the prefix cache."""
        for _ in range(int(rng.integers(0, 3))):
            if self.came < self.count:
                for scheduler in self.pair:
                    scheduler.add_request(drawn_request(str(self.came), self.seed, self.block_tokens))
                self.came += 1
        known = sorted(self.pair[0].requests)
        if known and rng.random() < 0.04:
            name = known[int(rng.integers(len(known)))]
            for scheduler in self.pair:
                scheduler.finish_requests([name], RequestStatus.FINISHED_ABORTED)
        if rng.random() < 0.01:
            for scheduler in self.pair:
                scheduler.reset_prefix_cache(reset_running_requests=True)
        self._compare("before")

    def _iteration(self, rng: np.random.Generator) -> None:
        stop = rng.random() < 0.1
        outputs = []
        for scheduler, flights in zip(self.pair, self.flights, strict=True):
            output = scheduler.schedule()
            outputs.append(told(output))
            ending = frozenset(list(output.num_scheduled_tokens)[:1]) if stop else frozenset()
            flights.append((output, output_of(scheduler, output, stop=ending)))
        same(f"output {self.step}", *outputs)
        self.preempted += len(outputs[0]["preempted_req_ids"])
        self.hits += sum(new.num_computed_tokens > 0 for new in outputs[0]["scheduled_new_reqs"])
        self._compare("scheduled")

    def _update(self) -> None:
        found = [s.update_from_output(*flights.popleft()) for s, flights in zip(self.pair, self.flights, strict=True)]
        assert answered(found[0]) == answered(found[1]), f"update {self.step}"
        self._compare("updated")

    def _compare(self, when: str) -> None:
        same(f"{when} {self.step}", state_of(self.pair[0]), state_of(self.pair[1]))
