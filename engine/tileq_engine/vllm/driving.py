"""vLLM's offline engine driven by timed arrivals: what a request waited for, and what every iteration took."""

from __future__ import annotations

__all__ = ["Driven", "allow_numba_before_vllm", "drive", "drive_steadily", "make_engine", "profile_engine"]

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tileq_engine.requests import Requests
from tileq_engine.vllm.recording import Record

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True, slots=True)
class Driven:
    """A run: times in seconds from its start; a request that was cut off has NaN.

    `steps` are the iterations: when each ended, how long it took, and (with a scheduler of Tileq's) its tokens,
    query-key pairs, KV tokens read and sequences; zeros with vLLM's own. `record` is what its scheduler decided.
    """

    arrival_s: Float[np.ndarray, "request"]
    first_s: Float[np.ndarray, "request"]
    finish_s: Float[np.ndarray, "request"]
    gaps_s: list[Float[np.ndarray, "gap"]]
    steps: Float[np.ndarray, "step 6"]
    waiting: Int[np.ndarray, "step"]
    record: Record | None = None

    @property
    def ttft_s(self) -> Float[np.ndarray, "request"]:
        """Time to first token of each request, seconds."""
        return np.asarray(self.first_s - self.arrival_s)

    def tbt_s(self, chosen: Sequence[int] | None = None) -> Float[np.ndarray, "gap"]:
        """Every gap between tokens, of the requests `chosen` or of all."""
        places = range(len(self.gaps_s)) if chosen is None else chosen
        gaps = [self.gaps_s[i] for i in places if self.gaps_s[i].size]
        return np.concatenate(gaps) if gaps else np.zeros(0)

    def saturated_rate_per_s(self, tokens_per_request: float) -> float | None:
        """Return the rate at which requests are served while others wait, by tokens; None when hardly any wait."""
        from tileq_engine.vllm.measured import rate_while_waiting_per_s

        return rate_while_waiting_per_s(self.steps[:, 2], self.steps[:, 0], self.waiting > 0, tokens_per_request)


def make_engine(folder: str, scheduler: str | None, tileq: dict[str, Any] | None = None, **options: Any) -> Any:
    """Return an engine in this process, iterations one after another, with Tileq's `scheduler` or (None) vLLM's own."""
    import os

    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    allow_numba_before_vllm()
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    own: dict[str, Any] = {} if scheduler is None else {"scheduler_cls": f"tileq_engine.vllm.{scheduler}"}
    if tileq:
        own["additional_config"] = {"tileq": tileq}
    plain = {"skip_tokenizer_init": True, "enforce_eager": True, "async_scheduling": False, "seed": 0}
    return LLMEngine.from_engine_args(EngineArgs(model=folder, **{**plain, **own, **options}))


def allow_numba_before_vllm() -> None:
    """Let vLLM make a CPU engine in a process that has imported numba.

    It looks at ``vars()`` of whatever any module holds, and llvmlite's library answers to every name, ``__dict__`` too.
    """
    import importlib
    import sys

    if "llvmlite" not in sys.modules:
        return
    ffi = importlib.import_module("llvmlite.binding.ffi")
    kind = type(ffi.lib)
    if "vars" not in kind.__name__:
        quiet = type("vars_" + kind.__name__, (kind,), {"__slots__": (), "__dict__": property(lambda self: {})})
        ffi.lib.__class__ = quiet


def _submit(engine: Any, name: str, prompt: list[int], output_tokens: int, extra: dict[str, Any] | None) -> None:
    from vllm.sampling_params import SamplingParams

    params = SamplingParams(
        temperature=0.0, max_tokens=output_tokens, ignore_eos=True, detokenize=False, extra_args=extra
    )
    engine.add_request(name, {"prompt_token_ids": prompt}, params)


def _prompt(rng: np.random.Generator, tokens: int, vocabulary: int) -> list[int]:
    found: list[int] = rng.integers(3, vocabulary, tokens).tolist()
    return found


class _Pulse:
    """The clock of a run, nanoseconds: it stands where it was set.

    A decision is taken at the instant at which the iteration before had its output, and an arrival is told at its own:
    so time goes in iterations and idle times alone, and a simulator can follow it. What lies between two iterations
    (outputs are made, requests taken in) belongs to the second.
    """

    def __init__(self, tick: Callable[[], float]) -> None:
        self.tick = tick
        self.ns = 0
        self.idle_ns = 0
        self._began = tick()

    def __call__(self) -> int:
        return self.ns

    def real_ns(self) -> int:
        """Return what the machine's clock says since the run began, idle times that were leapt over included."""
        return round((self.tick() - self._began) * 1e9) + self.idle_ns

    def wait_until(self, instant_ns: int, leap: bool) -> None:
        """Set the clock to `instant_ns`; sleep until then, or leap over it."""
        left = instant_ns - self.real_ns()
        if left > 0:
            if leap:
                self.idle_ns += left
            else:
                time.sleep(left / 1e9)
        self.ns = max(self.ns, instant_ns)


@contextmanager
def _following(core: Any, pulse: _Pulse) -> Iterator[Record | None]:
    """Let a scheduler of Tileq's live by `pulse`, and record what it decides; None with vLLM's own."""
    if not hasattr(core, "mirror"):
        yield None
        return
    from tileq_engine.vllm.starting import begin_anew

    clock, update = core.clock, core.update_from_output
    began = core.now_ps() // 1000
    mirror = begin_anew(core)
    core.report.begin_anew()

    def landing(*args: Any, **kwargs: Any) -> Any:
        pulse.ns = max(pulse.ns + 1, pulse.real_ns())
        return update(*args, **kwargs)

    core.clock, core._began_ns, core.update_from_output = pulse, 0, landing
    try:
        yield mirror.record
    finally:
        core.clock, core.update_from_output = clock, update
        core._began_ns = clock() - max(began, pulse.ns)
        core.report.begin_anew()


def drive(
    engine: Any,
    asked: Requests,
    tiers: Sequence[str] | None = None,
    *,
    stop_s: float = 1e9,
    inside: int | None = None,
    seed: int = 0,
    clock: str = "wall",
) -> Driven:
    """Serve `asked` at their arrivals, prompts drawn anew, until all have ended or `stop_s`.

    With `inside` at most that many are in the system, and the next one comes when one has ended (a closed loop): then
    taking requests in costs its time while they are served, as it does where they come one by one.
    `clock` is "wall", or "cpu": the process's processor time, with idle times leapt over, which on a shared CPU does
    not count the neighbours (one thread: OMP_NUM_THREADS=1).
    """
    count = len(asked)
    arrival_ns = -(-asked.arrival_ps // 1000)
    core = engine.engine_core.engine_core.scheduler
    report = getattr(core, "report", None)
    vocabulary = int(engine.model_config.get_vocab_size())
    rng = np.random.default_rng(seed)
    prompts = [_prompt(rng, int(p), vocabulary) for p in asked.prompt_tokens]
    times: list[list[float]] = [[] for _ in range(count)]
    steps: list[tuple[float, ...]] = []
    waiting: list[int] = []
    came = ended = 0
    most = count if inside is None else inside
    pulse = _Pulse(CLOCKS[clock])
    with _following(core, pulse) as record:
        while came < count or engine.has_unfinished_requests():
            now = pulse.ns
            if now > stop_s * 1e9:
                engine.abort_request([str(i) for i in range(came) if len(times[i]) < int(asked.output_tokens[i])])
                break
            while came < count and arrival_ns[came] <= now and came - ended < most:
                extra = None if tiers is None else {"tileq_tier": tiers[came]}
                if inside is not None:
                    arrival_ns[came] = now
                pulse.ns = int(arrival_ns[came])
                _submit(engine, str(came), prompts[came], int(asked.output_tokens[came]), extra)
                pulse.ns = now
                came += 1
            if not engine.has_unfinished_requests():
                pulse.wait_until(int(arrival_ns[came]), leap=clock == "cpu")
                continue
            outputs = engine.step()
            if record is None:
                pulse.ns = pulse.real_ns()
            for out in outputs:
                seen = times[int(out.request_id)]
                if len(out.outputs[0].token_ids) > len(seen):
                    seen.append(pulse.ns / 1e9)
                ended += bool(out.finished)
            shape = report.recent[-1][:4] if report is not None and report.recent else (0, 0, 0, 0)
            steps.append((pulse.ns / 1e9, (pulse.ns - now) / 1e9, *map(float, shape)))
            waiting.append(len(core.waiting))
    whole = [len(seen) == int(o) for seen, o in zip(times, asked.output_tokens, strict=True)]
    return Driven(
        arrival_s=np.asarray(arrival_ns / 1e9, dtype=float),
        first_s=np.array([seen[0] if seen else np.nan for seen in times]),
        finish_s=np.array([seen[-1] if done else np.nan for seen, done in zip(times, whole, strict=True)]),
        gaps_s=[np.diff(np.asarray(seen, dtype=float)) for seen in times],
        steps=np.asarray(steps, dtype=float).reshape(-1, 6),
        waiting=np.asarray(waiting, dtype=np.int64),
        record=record,
    )


def drive_steadily(
    engine: Any, lengths: Requests, residents: int, steps: int, seed: int, clock: str = "wall"
) -> Float[np.ndarray, "step 5"]:
    """Keep `residents` requests in the engine for `steps` iterations; return shapes and seconds of each.

    The seconds have in them what it takes to submit whoever comes in between, as those of `drive` do.
    """
    core = engine.engine_core.engine_core.scheduler
    vocabulary = int(engine.model_config.get_vocab_size())
    rng = np.random.default_rng(seed)
    tick = CLOCKS[clock]
    rows, inside, sent = [], set[str](), 0
    for _ in range(steps):
        chosen = rng.integers(len(lengths), size=residents - len(inside))
        prompts = [_prompt(rng, int(lengths.prompt_tokens[k]), vocabulary) for k in chosen]
        before = tick()
        for k, prompt in zip(chosen, prompts, strict=True):
            _submit(engine, f"p{seed}-{sent}", prompt, int(lengths.output_tokens[k]), None)
            inside.add(f"p{seed}-{sent}")
            sent += 1
        outputs = engine.step()
        spent = tick() - before
        inside -= {out.request_id for out in outputs if out.finished}
        if core.report.recent:
            rows.append((*map(float, core.report.recent[-1][:4]), spent))
    engine.abort_request(list(inside))
    while engine.has_unfinished_requests():
        engine.step()
    return np.asarray(rows, dtype=float).reshape(-1, 5)


def profile_engine(
    engine: Any,
    lengths: Requests,
    budgets: Sequence[int],
    residents: Sequence[int],
    steps: int = 60,
    clock: str = "wall",
) -> Float[np.ndarray, "step 5"]:
    """Return shapes (n, A, K, m) and seconds of iterations over every budget and number of residents."""
    core = engine.engine_core.engine_core.scheduler
    kept = core.mirror.state.scalar("budget")
    rows = []
    for k, (budget, crowd) in enumerate((b, c) for b in budgets for c in residents):
        core.mirror.set_scalars({"budget": budget})
        rows.append(drive_steadily(engine, lengths, crowd, steps, seed=1000 + k, clock=clock)[5:])
    core.mirror.set_scalars({"budget": kept})
    return np.concatenate(rows)
