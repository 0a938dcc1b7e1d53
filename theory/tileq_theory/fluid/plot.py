"""Phase-plane plot of the fluid model."""

from __future__ import annotations

__all__ = ["plot_phase_plane"]

from collections.abc import Sequence
from typing import Any

import numpy as np

from tileq_theory.errors import positive
from tileq_theory.figure_style import INK, in_style
from tileq_theory.fluid.policies import FluidPolicy
from tileq_theory.fluid.rest import equilibrium
from tileq_theory.fluid.system import FluidState, FluidSystem
from tileq_theory.fluid.trajectory import field_at, fluid_path

_GRID = 16
_DASHES = ("-", "--", "-.", ":")


def plot_phase_plane(
    system: FluidSystem,
    policy: FluidPolicy,
    *,
    most_waiting_tokens: float,
    starts: Sequence[FluidState] = (),
    horizon_s: float = 60.0,
    ax: Any = None,
) -> Any:
    r"""Draw the field over (residents decoding, prefill tokens waiting), paths and the state at rest; return the axes.

    Arrows show the direction alone, each axis scaled to its range. KV is taken at rest: d G/D tokens, at most M.

    Parameters
    ----------
    system, policy
        Node and rule.
    most_waiting_tokens
        Upper end of the vertical axis, tokens, above 0.
    starts
        Where paths begin.
    horizon_s
        How long they are followed, seconds.
    ax
        matplotlib axes to draw into (None: a new figure).

    Examples
    --------
    >>> from tileq_theory import Demand, IterationTime
    >>> from tileq_theory.fluid import DecodeFirst
    >>> demand = Demand(100, 50, 50 * 150, 5050, 7500, 51)
    >>> node = FluidSystem(IterationTime.constant(0.1), demand, rate_per_s=10, token_budget=512, residents=256)
    >>> plot_phase_plane(node, DecodeFirst(), most_waiting_tokens=1e4).get_xlabel()
    'decoding (requests)'
    """
    from matplotlib.figure import Figure

    top = positive("most_waiting_tokens", most_waiting_tokens)
    with in_style():
        axes = Figure().subplots() if ax is None else ax
        _draw_field(axes, system, policy, top)
        for place, start in enumerate(starts):
            path = fluid_path(system, policy, start=start, horizon_s=horizon_s)
            axes.plot(path.decoding, path.waiting_tokens, color=INK[place % 5], ls=_DASHES[place % len(_DASHES)])
            axes.plot(start.decoding, start.waiting_tokens, "k.", markersize=6)
        rest = equilibrium(system, policy) if system.rate_per_s > 0 else None
        if rest is not None:
            axes.plot(rest.decoding, rest.waiting_tokens, "k*", markersize=11, ls="", label="at rest")
            axes.legend()
        axes.set(
            xlim=(0, system.residents * 1.02),
            ylim=(-0.02 * top, top),
            xlabel="decoding (requests)",
            ylabel="waiting for prefill (tokens)",
            title=f"{type(policy).__name__}, {system.rate_per_s:.4g} requests/s",
        )
    return axes


def _draw_field(axes: Any, system: FluidSystem, policy: FluidPolicy, top: float) -> None:
    """Draw an arrow of the direction at each point of a grid."""
    residents, waiting = np.meshgrid(np.linspace(0, system.residents, _GRID), np.linspace(0, top, _GRID))
    across, up = np.zeros_like(residents), np.zeros_like(residents)
    for at in np.ndindex(residents.shape):
        d = float(residents[at])
        state = FluidState(float(waiting[at]), d, min(d * system.context, system.kv_capacity_tokens))
        rise, run, _ = field_at(system, policy, state, policy.next_mode(system, state, 0))
        across[at], up[at] = run / system.residents, rise / top
    size = np.hypot(across, up)
    size[size == 0] = 1.0
    axes.quiver(residents, waiting, across / size, up / size, angles="uv", color="0.6", width=0.003)
