r"""What kernels timed alone do not show: launches and the host between them.

    c = iteration_s + layers * layer_s + 2 layers (all-reduce latency with tp > 1, where all-reduces were not timed)

A replayed CUDA graph leaves a few microseconds a layer, eager execution tens; the host's own share of an iteration
(scheduling, sampling, detokenising) is a few milliseconds on 2023 engines and below one on later ones. No kernel
profile tells them, so they are the caller's to give; without them the fit says that they are missing.
"""

from __future__ import annotations

__all__ = ["Launch", "launch_note"]

from dataclasses import dataclass

from tileq_theory.errors import nonnegative


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch and host time that is added to summed kernels.

    Parameters
    ----------
    iteration_s
        Seconds an iteration, whatever the model.
    layer_s
        Seconds a layer.
    source
        Where the figures came from.

    Examples
    --------
    >>> round(Launch(iteration_s=1e-3, layer_s=1e-5).seconds(32), 6)
    0.00132
    """

    iteration_s: float = 0.0
    layer_s: float = 0.0
    source: str = "given by the caller"

    def __post_init__(self) -> None:
        for name in ("iteration_s", "layer_s"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))

    def seconds(self, layers: int) -> float:
        """Return the launch constant of a model of `layers` layers, seconds."""
        return self.iteration_s + layers * self.layer_s


def launch_note(launch: Launch | None, layers: int) -> str:
    """Return the sentence that says whether launches are in the times."""
    if launch is None:
        return "kernels only: no launch or host time was added, so iterations are modelled too short by both"
    return f"launch and host time of {1e3 * launch.seconds(layers):.4g} ms an iteration added ({launch.source})"
