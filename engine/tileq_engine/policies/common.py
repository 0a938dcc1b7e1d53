"""Checks and choices that several policies share."""

from __future__ import annotations

__all__ = [
    "ORDERS",
    "both",
    "checked_common",
    "order_named",
    "predicting",
    "predictor_params",
    "prepared_order",
    "require_budget",
    "whole_numbers",
]

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy, Prepare, Prepared
from tileq_engine.predictors import PREDICTORS, predict
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError, finite, near_matches, nonnegative, nonnegative_int, positive_int
from tileq_theory.iteration_time import IterationTime

ORDERS: Mapping[str, str] = {
    "fcfs": "order_fcfs",
    "spf": "order_spf",
    "sjf": "order_sjf_output",
    "sjf_total": "order_sjf_total",
    "priority": "order_priority",
    "paying_spf": "order_paying_spf",
    "svf": "order_volume",
    "aging": "order_aging",
    "longest_prefix": "order_longest_prefix",
}
# orders that a policy of their own prepares
_PREPARED = {"vtc": "order_vtc", "aged": "order_aged", "deadline": "order_deadline"}


def prepared_order(name: str) -> str:
    """Return the order kernel called `name`, one that needs what its policy prepares."""
    return _PREPARED[name]


def order_named(name: str, allowed: tuple[str, ...] = tuple(ORDERS)) -> str:
    """Return the order kernel called `name`."""
    if name not in allowed:
        raise InputError(f"order {name!r} is unknown; {near_matches('orders', str(name), allowed)}")
    return ORDERS[name]


def checked_common(token_budget: int | None, max_num_seqs: int | None) -> dict[str, Any]:
    """Return the two settings every policy may fix, validated."""
    return {
        "token_budget": None if token_budget is None else positive_int("token_budget", token_budget),
        "max_num_seqs": None if max_num_seqs is None else positive_int("max_num_seqs", max_num_seqs),
    }


def require_budget(policy: Policy, requests: Requests, time: IterationTime, config: EngineConfig) -> Prepared:
    """Refuse a token budget below the residents, which vLLM refuses too: some would get no token."""
    if config.token_budget < config.max_num_seqs:
        raise InputError(
            f"token_budget is {config.token_budget} and max_num_seqs {config.max_num_seqs}; {policy.name} needs a "
            "budget of at least one token a resident: raise token_budget or lower max_num_seqs"
        )
    return Prepared(requests)


def predictor_params(predictor: str, sigma: float, quantile: float, seed: int) -> dict[str, Any]:
    """Return the predictor's settings that matter, for tables and provenance."""
    own = {"noise": {"sigma": sigma, "seed": seed}, "quantile": {"quantile": quantile}}
    return {"predictor": predictor, **own.get(predictor, {})}


def whole_numbers(name: str, values: Any) -> list[int] | None:
    """Return the whole numbers of 1 or more in `values` (one number stands for a list of one), or None for None."""
    if values is None:
        return None
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        values = [values]
    return [positive_int(name, value) for value in values]


def predicting(predictor: str, sigma: float, quantile: float, seed: int) -> Prepare:
    """Return a `prepare` that gives the requests the predictions of `predictor`."""
    if predictor not in PREDICTORS:
        raise InputError(f"predictor {predictor!r} is unknown; {near_matches('predictors', predictor, PREDICTORS)}")
    if not 0 <= finite("quantile", quantile) <= 1:
        raise InputError(f"quantile is {quantile!r}; expected a probability in [0, 1]")
    chosen = (nonnegative("sigma", sigma), float(quantile), nonnegative_int("seed", seed))

    return functools.partial(_predicted, predictor, *chosen)


def _predicted(
    predictor: str,
    sigma: float,
    quantile: float,
    seed: int,
    policy: Policy,
    requests: Requests,
    time: IterationTime,
    config: EngineConfig,
) -> Prepared:
    guess = predict(requests, predictor, sigma=sigma, quantile=quantile, seed=(seed, config.policy_seed))
    return Prepared(requests.with_(predicted_output_tokens=guess))


def both(first: Prepare | None, second: Prepare) -> Prepare:
    """Return the `prepare` that runs `first` (a check or a prediction), then `second` on its requests."""
    return second if first is None else functools.partial(_chained, first, second)


def _chained(
    first: Prepare, second: Prepare, policy: Policy, requests: Requests, time: IterationTime, config: EngineConfig
) -> Prepared:
    before = first(policy, requests, time, config)
    after = second(policy, before.requests, time, config)
    return replace(after, scalars={**before.scalars, **after.scalars})
