"""What a policy may know of an output length before it is produced."""

from __future__ import annotations

__all__ = ["PREDICTORS", "predict"]

import numpy as np
from jaxtyping import Int

from tileq_engine.requests import Requests, purpose_rng
from tileq_theory.errors import InputError, near_matches, nonnegative

PREDICTORS = ("given", "oracle", "noise", "quantile", "none")
_LONGEST = 2**31 - 2


def predict(
    requests: Requests,
    predictor: str,
    *,
    sigma: float = 0.5,
    quantile: float = 0.9,
    seed: int | tuple[int, ...] = 0,
) -> Int[np.ndarray, "request"]:
    """Return predicted output lengths, tokens.

    Parameters
    ----------
    predictor
        "given": what the requests carry; "oracle": the true length; "noise": the true length times exp(sigma Z), Z
        standard normal, rounded, at least 1; "quantile": the `quantile` of the outputs of the request's class, all
        that a predictor by class can know; "none": 0.
    seed
        Of the noise, one number or several. The stream is the predictor's own: requests drawn from the same seed do
        not share it, so that errors are independent of arrivals and lengths.

    Examples
    --------
    >>> asked = Requests.from_arrays(arrival_s=[0, 1], prompt_tokens=5, output_tokens=[10, 30])
    >>> predict(asked, "quantile", quantile=1.0).tolist()
    [30, 30]
    """
    if predictor not in PREDICTORS:
        raise InputError(f"predictor {predictor!r} is unknown; {near_matches('predictors', predictor, PREDICTORS)}")
    output = requests.output_tokens
    if predictor == "given":
        given: np.ndarray = requests.predicted_output_tokens
        return given
    if predictor == "oracle":
        return output.copy()
    if predictor == "none":
        return np.zeros(len(requests), dtype=np.int64)
    if predictor == "noise":
        spread = nonnegative("sigma", sigma) * purpose_rng("predictor", seed).standard_normal(len(requests))
        factor = np.exp(np.clip(spread, -700.0, 700.0))  # beyond it a float overflows; the clip below has it anyway
        noisy: np.ndarray = np.clip(np.rint(output * factor), 1, _LONGEST).astype(np.int64)
        return noisy
    if not 0 <= quantile <= 1:
        raise InputError(f"quantile is {quantile!r}; expected a probability in [0, 1]")
    predicted = np.zeros(len(requests), dtype=np.int64)
    for kind in np.unique(requests.class_index):
        own = requests.class_index == kind
        predicted[own] = int(np.quantile(output[own], quantile, method="inverted_cdf"))
    return predicted
