r"""Conservation of tokens: none is lost, none is computed or generated twice without being counted.

For every request that ended, with V cached tokens thrown away by recompute, and context P + O - 1 (engine
convention: the last prefill chunk emits the first token) or P + O (paper) at its end:

    prefill tokens + decode tokens = P + O (- 1) + V                (a request that arrived prefilled: less P)
    output tokens emitted          = O
"""

from __future__ import annotations

__all__ = ["tokens_conserved"]

from tileq_engine.laws.base import Breach, Replay

RULE = "conservation of tokens"


def tokens_conserved(r: Replay) -> Breach | None:
    """Return the first request whose tokens do not add up."""
    run, requests = r.run, r.run.requests
    served = [0] * len(requests)
    decodes = [0] * len(requests)
    for batch in r.members:
        for m in batch:
            served[m.request] += m.prefill_tokens + m.decode
            decodes[m.request] += m.decode
    for i in range(len(requests)):
        wrong = _of_request(r, i, served[i], decodes[i])
        if wrong:
            return Breach(RULE, r.name_of(i), -1, wrong)
    ended = int((run.finish_ps >= 0).sum())
    if ended != run.counters["finished"]:
        return Breach(
            RULE, "the run", -1, f"{run.counters['finished']} requests counted as finished, {ended} have an end"
        )
    return None


def _of_request(r: Replay, i: int, served: int, decodes: int) -> str | None:
    run, requests = r.run, r.run.requests
    prompt, output = int(requests.prompt_tokens[i]), int(requests.output_tokens[i])
    emitted, lost = int(run.tokens_done[i]), int(run.recomputed_tokens[i])
    resident = int(requests.prefilled_tokens[i])
    if emitted > output:
        return f"{emitted} tokens emitted of {output}"
    if decodes > output:
        return f"{decodes} decode steps for {output} output tokens"
    if run.finish_ps[i] < 0:
        return None
    if emitted != output:
        return f"it ended with {emitted} of its {output} tokens"
    last = 1 if run.config.convention == "engine" and not resident else 0
    expected = prompt + output - last + lost - resident
    if served != expected:
        parts = f"prompt {prompt} + output {output} - {last} + thrown away {lost}"
        return f"{served} tokens computed; expected {expected} = {parts}"
    return None
