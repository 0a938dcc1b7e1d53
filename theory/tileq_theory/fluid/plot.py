"""Phase-plane plot of the fluid model."""

from __future__ import annotations

__all__ = ["plot_phase_plane"]

from collections.abc import Sequence
from typing import Any

import numpy as np

from tileq_theory.errors import positive
from tileq_theory.fluid.policies import FluidPolicy
from tileq_theory.fluid.rest import equilibrium
from tileq_theory.fluid.system import FluidState, FluidSystem
from tileq_theory.fluid.trajectory import field_at, fluid_path

_GRID = 16


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
    'residents decoding'
    """
    from matplotlib.figure import Figure

    top = positive("most_waiting_tokens", most_waiting_tokens)
    axes = Figure(figsize=(5, 4), layout="constrained").subplots() if ax is None else ax
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
    for start in starts:
        path = fluid_path(system, policy, start=start, horizon_s=horizon_s)
        axes.plot(path.decoding, path.waiting_tokens, linewidth=1.5)
        axes.plot(start.decoding, start.waiting_tokens, "k.", markersize=5)
    rest = equilibrium(system, policy) if system.rate_per_s > 0 else None
    if rest is not None:
        axes.plot(rest.decoding, rest.waiting_tokens, "k*", markersize=10, label="at rest")
        axes.legend()
    axes.set(
        xlim=(0, system.residents * 1.02),
        ylim=(-0.02 * top, top),
        xlabel="residents decoding",
        ylabel="prefill tokens waiting",
        title=f"{type(policy).__name__}, {system.rate_per_s:g} requests/s",
    )
    return axes
