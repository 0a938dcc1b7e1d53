"""vLLM's asynchronous scheduler with Tileq's rules in the place of "first come, first served".

How it is done, least first. In a plain configuration `lean` carries out what the rules have decided. Where anything
more is switched on vLLM's own `schedule` does; it asks one method, `_reserve_prefill_lookahead`, how many tokens each
request may get, running and waiting alike: here it answers with what the rules have decided. vLLM's queue shows only
the requests they let in. Whom they preempt is preempted by vLLM's own means before. All else is vLLM's.

The rules see a mirror of the engine (`mirror`). In asynchronous scheduling an iteration is decided while the one
before runs: that one is then taken to last as long as the last ones did (their median, at most half of the shortest
TBT limit), from when it really began; its tokens are moved when it has ended. So the mirror's clock is ahead by one
iteration at most, and does not run away: ahead by a limit, every decode would seem late.
"""

from __future__ import annotations

__all__ = ["TileqScheduler"]

import time
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar

from vllm.logger import init_logger
from vllm.platforms import current_platform
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from tileq_engine.clock import PS_PER_S
from tileq_engine.vllm import starting
from tileq_engine.vllm.adapters import with_adapters
from tileq_engine.vllm.asked import asked_of
from tileq_engine.vllm.lean import Lean
from tileq_engine.vllm.lean_known import obstacles
from tileq_engine.vllm.mirror import Decision
from tileq_engine.vllm.report import Reporter
from tileq_engine.vllm.settings import VllmSettings
from tileq_engine.vllm.versions import check_interface, check_version, installed_version
from tileq_engine.vllm.waiting_queue import PolicyQueue
from tileq_theory.errors import InputError

check_version(installed_version())
check_interface(Scheduler, installed_version())
logger = init_logger("vllm.tileq")
_LAST = 15  # iterations whose median is how long the next is taken to last


@dataclass(slots=True)
class _Flight:
    """An iteration whose output is not here yet."""

    decided_ps: int
    shape: tuple[int, int, int, int]  # tokens, query-key pairs, KV tokens read, sequences
    end_ps: int | None = None  # where it was taken to end


class TileqScheduler(AsyncScheduler):
    """A vLLM V1 scheduler that decides by a policy of Tileq; the settings name it (`VllmSettings`).

    Its decisions can be watched: `report` counts them, and `clock` may be replaced by a simulated one.
    """

    defaults: ClassVar[dict[str, Any]] = {}  # settings of the class, where the user's say nothing

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        starting.refuse_what_is_not_supported(self)
        self.settings: VllmSettings = starting.settings_of(self.vllm_config, self.defaults)
        machine = starting.machine_of(self, current_platform.get_device_name())
        for line in starting.warnings_of(self.settings, machine):
            logger.warning("tileq: %s", line)
        self.mirror = starting.mirror_of(self, self.settings)
        self.waiting = PolicyQueue()
        self.kv_holding_waiting = PolicyQueue()
        self.report = Reporter(self.settings, self.vllm_config, self.mirror)
        self.clock: Any = time.perf_counter_ns  # nanoseconds
        self._began_ns = self.clock()
        self._groups = max(1, len(self.kv_cache_config.kv_cache_groups))
        self._caps: dict[str, int] | None = None
        self._own_preemption = False
        self._flights: deque[_Flight] = deque()
        self._now_ps = self._landed_ps = 0  # of the last decision, and of the last output
        self._lasted: deque[int] = deque(maxlen=_LAST)
        self._most_ahead_ps = round(PS_PER_S * min(tier.tbt_limit_s for tier in self.settings.tiers.values()) / 2)
        self._blocked: list[Request] = []  # not ready: a grammar is compiled, a session has no input
        self._gone: list[str] = []  # freed by vLLM since the mirror was last told
        self._ending: set[str] = set()  # had their last token by the mirror's count, not yet by vLLM's
        self._hits: dict[str, int] = {}  # prompt tokens taken to be in the prefix cache
        self._lost: list[tuple[str, int]] = []  # preempted by vLLM itself, and their tokens
        self._special: set[str] = set()  # requests that need vLLM's whole `schedule`
        against = obstacles(self)
        self._lean = None if against else Lean(self)
        logger.info("tileq: %s", starting.describe(self, self.settings))
        if against:
            logger.info("tileq: decisions are carried out by vLLM's whole scheduler: %s", "; ".join(against))

    def now_ps(self) -> int:
        """Picoseconds since the scheduler began."""
        return 1000 * int(self.clock() - self._began_ns)

    # ------------------------------------------------------------------ requests come and go

    def _enqueue_waiting_request(self, request: Request) -> None:
        super()._enqueue_waiting_request(request)
        if request.request_id in self._gone:  # a new one by the name of one that has just gone
            self._forget_gone()
        if request.mm_features or request.resumable:
            self._special.add(request.request_id)
        if self._is_blocked_waiting_status(request.status):
            self._blocked.append(request)
        else:
            self._announce(request)

    def _announce(self, request: Request) -> None:
        """Tell the mirror of a request that may run."""
        params = request.sampling_params
        try:
            asked = asked_of(params.extra_args if params is not None else None, self.settings)
        except InputError as error:
            if self.settings.unknown_tier == "reject":
                self.report.rejected += 1
                logger.error("tileq: request %s is answered with an error: %.500s", request.request_id, error)
                # the set of requests that vLLM ends with an error when it next looks at an output
                self.grammar_compile_error_reqs.add(request.request_id)
                return
            line = (
                f"requests are served as {self.settings.default_tier!r} where they ask for what is not there: {error}"
            )
            self.report.warn_once(logger, line, kind="served as default")
            asked = asked_of(None, self.settings)
        self.report.saw_limit(logger, asked)
        computed = request.num_computed_tokens
        hit = 0 if computed else self._prefix_hit(request)
        if hit:
            self._hits[request.request_id] = hit
        self.mirror.add(
            request.request_id,
            asked,
            prompt_tokens=request.num_tokens - computed - hit,
            output_tokens=min(request.max_tokens, self.max_model_len - request.num_prompt_tokens),
            arrival_ps=self.now_ps(),
            priority=request.priority,
            front=request in self.kv_holding_waiting,  # vLLM lets these in before all others
        )

    def _prefix_hit(self, request: Request) -> int:
        if not self.kv_cache_manager.enable_caching or request.skip_reading_prefix_cache:
            return 0
        return int(self._get_local_prefix_cache_hit(request)[1])

    def _handle_stopped_request(self, request: Request) -> bool:
        if request.resumable:  # it may come back at once, with more input
            self.mirror.leave([request.request_id])
        return bool(super()._handle_stopped_request(request))

    def _free_request(self, request: Request, delay_free_blocks: bool = False) -> Any:
        self._gone.append(request.request_id)
        self._special.discard(request.request_id)
        return super()._free_request(request, delay_free_blocks=delay_free_blocks)

    def _forget_gone(self) -> None:
        if self._gone:
            self.mirror.leave(self._gone)
            for name in self._gone:
                self._ending.discard(name)
                self._hits.pop(name, None)
            self._gone.clear()

    def _look_at_blocked(self) -> None:
        still = []
        for request in self._blocked:
            if request.is_finished():
                continue
            if self._is_blocked_waiting_status(request.status) and not self._handle_blocked_waiting_request(request):
                still.append(request)
                continue
            self.deferred_waiting.discard(request)
            self._announce(request)
        self._blocked = still

    def _preempt_request(self, request: Request, timestamp: float, drop_stale_output: bool = False) -> None:
        tokens = request.num_tokens + request.num_output_placeholders
        self._hits.pop(request.request_id, None)
        super()._preempt_request(request, timestamp, drop_stale_output)
        if self._own_preemption:
            self.mirror.owes(request.request_id, tokens)
        else:
            self._lost.append((request.request_id, tokens))

    # ------------------------------------------------------------------ an iteration

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Decide by the rules, let vLLM carry it out, and follow what it did."""
        began = time.perf_counter_ns()
        decision = self._decide()
        planned: dict[str, int] = {} if decision is None else decision.tokens
        let_in = [] if decision is None else self._let_in(decision)
        if let_in and self.lora_config:
            let_in = with_adapters(let_in, self.running, self.lora_config.max_loras)
        decided = time.perf_counter_ns()
        output = None
        if decision is not None and self._lean is not None and not (throttle_prefills or self._special):
            output = self._lean.schedule(planned, let_in)
        if output is None:
            output = self._by_vllm(planned if decision is not None else None, let_in, throttle_prefills)
        carried = time.perf_counter_ns()
        self._settle(planned, output)
        if output.total_num_scheduled_tokens > 0:
            self._flights.append(_Flight(self._now_ps, self.mirror.shape()))
        elif not self._flights:
            self.report.idles()
        settled = time.perf_counter_ns()
        self.report.decided(decided - began + settled - carried, carried - decided, decision is None)
        return output

    def _let_in(self, decision: Decision) -> list[Request]:
        """Return the requests that the decision admits, in its order; whoever is let in begins with a prefill."""
        requests = self.requests
        prefills = [requests[name] for name in decision.prefills]
        return [request for request in prefills if request.status != RequestStatus.RUNNING]

    def _by_vllm(self, planned: dict[str, int] | None, let_in: list[Request], throttle: bool) -> SchedulerOutput:
        """Let vLLM's `schedule` carry out what is planned; with None, decide too."""
        if planned is not None:
            self._caps = self._caps_of(planned)
            holding = set(self.kv_holding_waiting)
            self.waiting.admit(r for r in let_in if r not in holding)
            self.kv_holding_waiting.admit(r for r in let_in if r in holding)
        try:
            return super().schedule(throttle)
        finally:
            self._caps = None
            self.waiting.everybody()
            self.kv_holding_waiting.everybody()

    def _caps_of(self, planned: dict[str, int]) -> dict[str, int]:
        if not self.num_spec_tokens:
            return planned
        return {name: tokens if tokens > 1 else 1 + self.num_spec_tokens for name, tokens in planned.items()}

    def _reserve_prefill_lookahead(self, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        caps = self._caps
        if caps is not None:
            cap = caps.get(request.request_id, 0)
            if cap < num_new_tokens:
                num_new_tokens = cap
        if not self.num_prefill_lookahead or not num_new_tokens:
            return num_new_tokens
        return int(super()._reserve_prefill_lookahead(request, num_computed_tokens, num_new_tokens))

    def _decide(self) -> Decision | None:
        """Return the rules' decision, carried out as far as it preempts; None where vLLM is to decide by itself."""
        mirror = self.mirror
        now = self._now_ps = self.now_ps()
        if mirror.open and self._flights:  # its output is not here yet
            flight = self._flights[-1]
            usual = sorted(self._lasted)[len(self._lasted) // 2] if self._lasted else 0
            began = max(self._landed_ps, flight.decided_ps)
            flight.end_ps = max(now, began + min(usual, self._most_ahead_ps), mirror.now_ps + 1)
            self._ending.update(mirror.close(flight.end_ps))
        self._forget_gone()
        if self._blocked:
            self._look_at_blocked()
        if self._ending:
            self._look_at_ending()
        if self._lost:  # by a reset of the prefix cache
            self._unseat_lost()
        if self._pause_state != PauseState.UNPAUSED:
            mirror.blank(now)
            return None
        free = self.kv_cache_manager.block_pool.get_num_free_blocks() // self._groups
        decision = mirror.decide(now, free)
        for name in decision.preempted:
            self._take_back(self.requests[name])
        if not decision.tokens and not self._flights and len(mirror):
            self.report.warn_once(logger, "the rules let nobody run while requests wait; vLLM decides this iteration")
            mirror.blank(now)
            return None
        return decision

    def _take_back(self, request: Request) -> None:
        if request.status != RequestStatus.RUNNING:
            return
        self.running.remove(request)
        self._own_preemption = True
        try:
            self._preempt_request(request, time.monotonic())
        finally:
            self._own_preemption = False

    def _look_at_ending(self) -> None:
        """Take back in whoever has no token in flight and has not ended, though the mirror counted its last one."""
        for name in list(self._ending):
            request = self.requests.get(name)
            if request is None or request.is_finished() or name in self.mirror:
                self._ending.discard(name)
            elif request.num_in_flight_tokens == 0 and not self._is_blocked_waiting_status(request.status):
                self._ending.discard(name)
                self._announce(request)

    def _unseat_lost(self) -> None:
        for name, tokens in self._lost:
            self.mirror.unseat(name, tokens)
        self._lost.clear()

    def _settle(self, planned: dict[str, int], output: SchedulerOutput) -> None:
        """Tell the mirror where vLLM did otherwise."""
        ran = output.num_scheduled_tokens
        odd = self._odd_hits(output)
        if not odd and not self._lost and ran == planned:
            return
        differently = set(odd) | {name for name, tokens in ran.items() if planned.get(name) != tokens}
        if self.num_spec_tokens:  # decodes with their drafts are as planned
            differently -= {name for name in output.scheduled_spec_decode_tokens if planned.get(name) == 1}
        dropped = [name for name in planned if name not in ran]
        if not differently and not dropped and not self._lost:
            return
        self._unseat_lost()
        requests = self.requests
        self.mirror.settle(
            {name: (ran[name], self._left(requests[name])) for name in differently},
            {name: requests[name].status == RequestStatus.RUNNING for name in dropped},
        )
        for name in dropped:
            if requests[name].status != RequestStatus.RUNNING and self._hits.pop(name, 0):
                # cached blocks that nobody holds are free ones too, which the rules do not know: until it is let in
                # it counts in full, else it would be let in again and again, with tokens that others could have had
                self.mirror.owes(name, requests[name].num_tokens)

    def _odd_hits(self, output: SchedulerOutput) -> list[str]:
        """Return the newly admitted whose computed prefix is another than was thought."""
        odd = []
        for new in output.scheduled_new_reqs:
            if new.num_computed_tokens != self._hits.get(new.req_id, 0):
                self._hits[new.req_id] = new.num_computed_tokens
                odd.append(new.req_id)
        cached = output.scheduled_cached_reqs
        for name in cached.resumed_req_ids:
            computed = cached.num_computed_tokens[cached.req_ids.index(name)]
            if computed != self._hits.get(name, 0):
                self._hits[name] = computed
                odd.append(name)
        return odd

    @staticmethod
    def _left(request: Request) -> int:
        """Return the tokens left to prefill after the iteration that has just been formed."""
        return max(0, int(request.num_tokens) - int(request.num_computed_tokens))

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Let the mirror's iteration end now, then do as vLLM does."""
        if scheduler_output.total_num_scheduled_tokens > 0 and self._flights:
            self._land(self._flights.popleft())
        outputs: dict[int, EngineCoreOutputs] = super().update_from_output(scheduler_output, model_runner_output)
        for name in scheduler_output.scheduled_spec_decode_tokens:
            request = self.requests.get(name)
            if request is not None and name in self.mirror:
                computed = request.num_computed_tokens - self._hits.get(name, 0)
                self.mirror.progress(name, computed, request.num_output_tokens)
        self._forget_gone()
        self.report.tick(logger, self)
        return outputs

    def _update_request_with_output(
        self, request: Request, new_token_ids: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        if self._lean is not None:
            return self._lean.take_output(request, new_token_ids, is_stale)
        found: tuple[list[int], bool] = super()._update_request_with_output(request, new_token_ids, is_stale)
        return found

    def _land(self, flight: _Flight) -> None:
        now = self.now_ps()
        if flight.end_ps is None:
            self._ending.update(self.mirror.close(max(now, self.mirror.now_ps + 1)))
        else:
            self.mirror.shift(flight.end_ps, now - flight.end_ps)
        self._landed_ps = now
        self._lasted.append(self.report.ran(now, flight.decided_ps, flight.shape))
