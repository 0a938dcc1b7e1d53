"""vLLM's `schedule` for a decision that is taken already, less the questions that do not arise.

Of what vLLM does for every running request in every iteration, most is there for what this request does not have:
drafts, encoder inputs, adapters, connectors, windows; and a decode whose next token fits into the last block it holds
needs nothing of the memory manager. Here such a request costs a few comparisons. Whatever does touch memory (a new
block, a block to enter into the prefix cache, an admission, a preemption) vLLM's own methods do, in vLLM's order.

The result is what vLLM's `schedule` returns for the same state, field by field, and leaves vLLM's state as that
leaves it. So that this holds it is used only where vLLM's own code is, to the letter, one that it was written for,
and nothing else is switched on that asks for more (`lean_known`); else vLLM's `schedule` is run.
"""

from __future__ import annotations

__all__ = ["Lean"]

import time
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreEventType
from vllm.v1.request import Request, RequestStatus

_READY = (RequestStatus.WAITING, RequestStatus.PREEMPTED)


@dataclass(slots=True)
class _Batch:
    """What an iteration is made of, in the lists that vLLM's output has."""

    began: float
    room: int
    counts: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    block_ids: list[tuple[list[int], ...] | None] = field(default_factory=list)
    computed: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    all_tokens: dict[str, list[int]] = field(default_factory=dict)
    preempted: bool = False
    resumed: list[Request] = field(default_factory=list)
    new: list[Request] = field(default_factory=list)
    structured: bool = False
    pending: bool = False


class Lean:
    """Carries decisions out for a scheduler without `obstacles`."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.kv: KVCacheManager = scheduler.kv_cache_manager
        own: Any = self.kv.coordinator.single_type_managers[0]
        self._held: dict[str, list[Any]] = own.req_to_blocks
        self._cached: dict[str, int] = own.num_cached_block
        self._block = int(own.block_size)
        self._caching = bool(self.kv.enable_caching and own.enable_caching and own.kv_cache_spec.prefix_cacheable)
        self._longest = int(scheduler.max_model_len) - 1
        self._room = min(scheduler.max_num_scheduled_tokens, scheduler.scheduler_config.max_num_batched_tokens)
        self._stepwise = bool(scheduler.use_v2_model_runner)

    def schedule(self, planned: dict[str, int], let_in: list[Request]) -> SchedulerOutput | None:
        """Return the iteration of `planned`, with `let_in` admitted; None, and nothing done, where vLLM has to look."""
        own = self.scheduler
        if own.kv_holding_waiting or any(r.status not in _READY or _unsettled(r) for r in let_in):
            return None
        own.current_step += 1
        batch = _Batch(time.monotonic(), self._room)
        self.kv.new_step_starts()
        self._run(batch, planned)
        if not batch.preempted:
            self._admit(batch, planned, let_in)
            own.prefill_capacity_bound = len(own.waiting) > len(own.deferred_waiting)
        return self._output(batch)

    def _run(self, batch: _Batch, planned: dict[str, int]) -> None:
        """Give the running requests, in vLLM's order, what was decided."""
        own, held, cached, block, longest = self.scheduler, self._held, self._cached, self._block, self._longest
        caching, stepwise, inflight = self._caching, self._stepwise, own._inflight_prefills
        before, following = own.prev_step_scheduled_req_ids, own.current_step + own.decode_stagger
        counts, names, computed_tokens, outputs = batch.counts, batch.names, batch.computed, batch.outputs
        block_ids, room = batch.block_ids, batch.room
        for request in own.running:  # it may lose members at its end meanwhile
            if room <= 0:
                break
            name = request.request_id
            count = planned.get(name, 0)
            if not count:
                continue
            tokens, computed = len(request._all_token_ids), request.num_computed_tokens
            ahead = request.num_output_placeholders
            if ahead and computed + 2 - ahead >= request.num_prompt_tokens + request.max_tokens:
                continue  # its last token is in flight
            count = min(count, tokens + ahead - computed, room, longest - computed)
            if count <= 0:
                continue
            reached = computed + count
            fresh = None
            if reached > block * len(held[name]) or (caching and min(reached, tokens) // block > cached.get(name, 0)):
                found = self._allocate(batch, request, count)
                if found is None:
                    break
                fresh = found.get_block_ids(allow_none=True)
            block_ids.append(fresh)
            names.append(name)
            counts[name] = count
            room -= count
            computed_tokens.append(computed)
            outputs.append(len(request._output_token_ids) + ahead)
            if not stepwise and name not in before:
                batch.all_tokens[name] = request._all_token_ids.copy()
            request.num_computed_tokens = reached
            request.num_in_flight_tokens += count
            if reached < tokens + ahead:
                request.is_prefill_chunk = True
                continue
            request.is_prefill_chunk = False
            request.num_output_placeholders = ahead + 1
            if inflight:
                inflight.discard(request)
            if request.structured_output_request is not None:
                batch.structured = True
                batch.pending |= ahead > 0
            if stepwise:
                request.next_decode_eligible_step = following
        batch.room = room

    def _allocate(self, batch: _Batch, request: Request, count: int) -> KVCacheBlocks | None:
        """Return the blocks for `count` tokens more, preempting from the end of the line; None when `request` went."""
        own = self.scheduler
        while (found := self.kv.allocate_slots(request, count, num_lookahead_tokens=0)) is None:
            victim = own.running.pop()
            own._preempt_request(victim, batch.began, drop_stale_output=False)
            batch.preempted = True
            if victim is request:
                return None
        return found

    def _admit(self, batch: _Batch, planned: dict[str, int], let_in: list[Request]) -> None:
        """Let requests in, in the order decided, until one does not fit."""
        own = self.scheduler
        for request in let_in:
            seated = len(own.running) + own.num_waiting_for_streaming_input
            if batch.room <= 0 or seated >= own.max_num_active_reqs:
                break
            blocks, hit, request.shared_prefix_boundary, _ = own._get_local_prefix_cache_hit(request)
            if request.prefill_stats and request.num_preemptions <= 0:
                request.prefill_stats.set(
                    num_prompt_tokens=request.num_prompt_tokens,
                    num_local_cached_tokens=hit,
                    num_external_cached_tokens=0,
                )
            count = min(planned[request.request_id], request.num_tokens - hit, batch.room)
            found = self.kv.allocate_slots(
                request,
                count,
                num_new_computed_tokens=hit,
                new_computed_blocks=blocks,
                full_sequence_must_fit=own.scheduler_reserve_full_isl,
                has_scheduled_reqs=bool(own.running),
            )
            if found is None:
                break
            self.kv.record_prefix_cache_stats(request, hit)
            own.waiting.remove(request)
            own.deferred_waiting.discard(request)
            own.running.append(request)
            if own.log_stats:
                request.record_event(EngineCoreEventType.SCHEDULED, batch.began)
            (batch.new if request.status == RequestStatus.WAITING else batch.resumed).append(request)
            request.status = RequestStatus.RUNNING
            request.num_computed_tokens = hit
            batch.counts[request.request_id] = count
            batch.room -= count
            if hit + count < request.num_tokens:
                own._inflight_prefills.add(request)

    def _output(self, batch: _Batch) -> SchedulerOutput:
        """Return the output, and leave the scheduler as after it."""
        own = self.scheduler
        new = self._tell_of_admitted(batch)
        for request in (*batch.new, *batch.resumed):
            self._advance(batch, request)
        if not self._stepwise:
            own.prev_step_scheduled_req_ids.clear()
            own.prev_step_scheduled_req_ids.update(batch.counts)
        self.kv.take_boundary_state_offloads()
        copies, retained = self.kv.take_kv_cache_block_copies()
        assert not copies and not retained
        total = self._room - batch.room
        encoder_stats = None
        if own.log_stats and own.observability_config.enable_logging_iteration_details:
            encoder_stats = own._make_scheduled_encoder_input_stats({})
        output = SchedulerOutput(
            scheduled_new_reqs=new,
            scheduled_cached_reqs=CachedRequestData(
                req_ids=batch.names,
                resumed_req_ids=set() if self._stepwise else {r.request_id for r in batch.resumed},
                new_token_ids=[],
                all_token_ids=batch.all_tokens,
                new_block_ids=batch.block_ids,
                num_computed_tokens=batch.computed,
                num_output_tokens=batch.outputs,
            ),
            num_scheduled_tokens=batch.counts,
            total_num_scheduled_tokens=total,
            scheduled_spec_decode_tokens={},
            scheduled_encoder_inputs={},
            scheduled_encoder_input_stats=encoder_stats,
            preempted_req_ids=own.reset_preempted_req_ids,
            finished_req_ids=own.finished_req_ids,
            free_encoder_mm_hashes=own.encoder_cache_manager.get_freed_mm_hashes(),
            new_block_ids_to_zero=own._get_new_block_ids_to_zero(),
            has_structured_output_requests=batch.structured,
            pending_structured_output_tokens=batch.pending,
            ec_manager_metadata=own.encoder_cache_manager.get_manager_metadata(),
        )
        own._spec_token_placeholders = []
        own.finished_req_ids, own.reset_preempted_req_ids = set(), set()
        return output

    def _tell_of_admitted(self, batch: _Batch) -> list[NewRequestData]:
        """Return what the workers are told of new requests; those that come back are told of as running ones."""
        own, stepwise = self.scheduler, self._stepwise
        told = (*batch.new, *batch.resumed) if stepwise else batch.new
        more = {"uses_mrope": own.model_uses_mrope}
        found = [
            NewRequestData.from_request(
                request,
                self.kv.get_block_ids(request.request_id),
                **more,
                **({"prefill_token_ids": request._all_token_ids} if stepwise else {}),
            )
            for request in told
        ]
        for request in () if stepwise else batch.resumed:
            name = request.request_id
            batch.names.append(name)
            batch.block_ids.append(self.kv.get_blocks(name).get_block_ids(allow_none=True))
            batch.computed.append(request.num_computed_tokens)
            batch.outputs.append(request.num_output_tokens + request.num_output_placeholders)
            if name not in own.prev_step_scheduled_req_ids:
                batch.all_tokens[name] = request._all_token_ids.copy()
        return found

    def _advance(self, batch: _Batch, request: Request) -> None:
        """Count an admitted request's tokens as computed, as `_run` does those of the others."""
        own = self.scheduler
        count = batch.counts[request.request_id]
        request.num_computed_tokens += count
        request.num_in_flight_tokens += count
        ahead = request.num_output_placeholders
        request.is_prefill_chunk = request.num_computed_tokens < request.num_tokens + ahead
        if request.is_prefill_chunk:
            return
        request.num_output_placeholders = ahead + 1
        own._inflight_prefills.discard(request)
        if request.structured_output_request is not None:
            batch.structured = True
            batch.pending |= ahead > 0
        if self._stepwise:
            request.next_decode_eligible_step = own.current_step + own.decode_stagger

    def take_output(self, request: Request, token_ids: list[int], is_stale: bool) -> tuple[list[int], bool]:
        """Append a request's tokens as vLLM does; its memory manager is asked only when a block has become full."""
        own = self.scheduler
        ran = request.status == RequestStatus.RUNNING
        token_ids, stopped = Scheduler._update_request_with_output(own, request, token_ids)
        if not is_stale:
            request.num_output_placeholders -= len(token_ids)
            assert request.num_output_placeholders >= 0
        if ran and self._caching:
            computed = request.num_computed_tokens - request.num_output_placeholders
            if computed // self._block > self._cached.get(request.request_id, 0):
                self.kv.cache_blocks(request, computed)
        return token_ids, stopped


def _unsettled(request: Request) -> bool:
    """Return whether output of before a preemption is still to come, or its memory is not that of a new request."""
    return bool(request.num_stale_output_tokens or request.num_computed_tokens)
