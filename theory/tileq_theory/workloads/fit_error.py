"""How far a law is from the recorded pairs it was fitted to."""

from __future__ import annotations

__all__ = ["FIT_CHUNK_TOKENS", "FitError", "fit_error", "kolmogorov_smirnov"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from tileq_theory.lengths import JointLaw, LengthLaw, Pairs

FIT_CHUNK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class FitError:
    """Relative errors of the demand, and Kolmogorov-Smirnov distances of the marginals.

    Parameters
    ----------
    P, D, G, A, g, u
        Fitted over recorded, minus 1, with chunks of 512 tokens, engine convention.
    ks_prompt, ks_output
        Largest difference of the distribution functions.
    """

    P: float
    D: float
    G: float
    A: float
    g: float
    u: float
    ks_prompt: float
    ks_output: float

    @property
    def worst(self) -> float:
        """Largest absolute relative error of the six moments."""
        return max(abs(e) for e in (self.P, self.D, self.G, self.A, self.g, self.u))


def fit_error(law: JointLaw, pairs: Pairs) -> FitError:
    """Return the fit error of `law` against recorded `pairs`."""
    found = law.demand(chunk_tokens=FIT_CHUNK_TOKENS).vector()
    truth = pairs.demand(chunk_tokens=FIT_CHUNK_TOKENS).vector()
    P, D, G, A, g, u = (float(e) for e in found / truth - 1)
    return FitError(
        P,
        D,
        G,
        A,
        g,
        u,
        ks_prompt=kolmogorov_smirnov(law.prompt_law, pairs.prompts),
        ks_output=kolmogorov_smirnov(law.output_law, pairs.outputs),
    )


def kolmogorov_smirnov(law: LengthLaw, values: Int[np.ndarray, "row"]) -> float:
    """Return the largest |F_law - F_data|; between recorded values both ends of each gap are looked at."""
    ordered = np.sort(values)
    seen = np.unique(ordered)
    upto = np.searchsorted(ordered, seen, side="right") / ordered.size
    before = np.searchsorted(ordered, seen, side="left") / ordered.size
    at, below = 1 - law.survival(seen.astype(float)), 1 - law.survival(seen - 1.0)
    return float(max(np.abs(at - upto).max(), np.abs(below - before).max()))
