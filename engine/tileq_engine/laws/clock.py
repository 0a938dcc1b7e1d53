"""The clock: iterations follow one another, the server does not idle beside work, everyone ends."""

from __future__ import annotations

__all__ = ["clock_runs_forward", "every_request_ends", "never_idle_with_work"]

from tileq_engine.laws.base import Breach, Replay


def clock_runs_forward(r: Replay) -> Breach | None:
    """Return the first iteration that starts before the one before it ended, or the first request out of order."""
    end = 0
    for i, (start, took) in enumerate(zip(r.start_ps, r.duration_ps, strict=True)):
        if start < end or took < 0:
            return Breach(
                "clock", "the iteration", i, f"it starts at {start} ps and takes {took} ps; the last ended at {end} ps"
            )
        end = start + took
    run = r.run
    for i in range(len(run.requests)):
        times = [
            int(t[i]) for t in (run.arrival_ps, run.admit_ps, run.prefill_end_ps, run.first_token_ps, run.finish_ps)
        ]
        known = [t for t in times if t >= 0]
        if known != sorted(known):
            return Breach("clock", r.name_of(i), -1, f"arrival, admission, prefill end, first token, end at {times} ps")
    return None


def never_idle_with_work(r: Replay) -> Breach | None:
    """Return the first idle time while some accepted request had arrived and not ended (work conservation)."""
    run = r.run
    end = 0
    accepted = [i for i in range(len(run.requests)) if not run.reject_reason[i]]
    for i, (start, took) in enumerate(zip(r.start_ps, r.duration_ps, strict=True)):
        if start > end:
            for q in accepted:
                finish = int(run.finish_ps[q])
                if run.arrival_ps[q] < start and not 0 <= finish <= end:
                    since = max(end, int(run.arrival_ps[q]))
                    return Breach(
                        "work conservation",
                        r.name_of(q),
                        i,
                        f"it is in the system while the server idles from {since} to {start} ps",
                    )
        end = start + took
    return None


def every_request_ends(r: Replay) -> Breach | None:
    """Return the first accepted request that has not ended although the run went on until nothing could happen."""
    run = r.run
    for i in range(len(run.requests)):
        if run.finish_ps[i] < 0 and not run.reject_reason[i]:
            done, wanted = int(run.tokens_done[i]), int(run.requests.output_tokens[i])
            return Breach(
                "no starvation",
                r.name_of(i),
                -1,
                f"it has {done} of {wanted} tokens when the run stopped ('{run.stop_reason}')",
            )
    return None
