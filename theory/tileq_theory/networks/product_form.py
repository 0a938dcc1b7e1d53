r"""Mean response times of networks, where they are exact.

* *Processor sharing* at every engine (continuous batching of equal shares), Poisson arrivals from outside and routing
  of one next step at most: the network is of product form for any law of work (Baskett, Chandy, Muntz, Palacios 1975;
  Kelly 1979), and a visit of step k takes s_k/(1 - rho) with s_k its service time and rho its engine's load.
* *First come first served* with exponential work of the same mean for all steps of an engine (Jackson 1957; several
  servers by Erlang C): a visit takes s + W(M/M/c).

A request's time in the network follows from Little's law. A fork-join of n equal exponential branches on n engines of
load rho of their own: R_2 = (12 - rho)/8 R exactly for n = 2, R = s/(1 - rho) (Flatto and Hahn 1984); beyond, Nelson
and Tantawi's approximation R_n = [H_n/H_2 + (4/11)(1 - H_n/H_2) rho] R_2 (1988, within 5 % for n <= 32).
"""

from __future__ import annotations

__all__ = ["NetworkLatency", "fork_join_response", "network_latency"]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, nonnegative, positive, positive_int
from tileq_theory.latency.multi_server import many_servers
from tileq_theory.networks.model import AgentNetwork


@dataclass(frozen=True, slots=True, eq=False)
class NetworkLatency:
    """Means in steady state.

    Parameters
    ----------
    visit_s
        Mean response of one visit of each step, seconds.
    in_engine
        Mean requests at each engine.
    response_s
        Mean time from arrival to departure of a request, over all arrivals, seconds.
    """

    visit_s: Float[np.ndarray, "step"]
    in_engine: dict[str, float]
    response_s: float


def network_latency(
    network: AgentNetwork,
    *,
    discipline: Literal["ps", "fcfs"] = "ps",
    servers: Mapping[str, int] | None = None,
) -> NetworkLatency:
    """Return exact means of a product-form network.

    Parameters
    ----------
    network
        Routing with at most one next step (row sums of N at most 1).
    discipline
        "ps": processor sharing, work of any law. "fcfs": exponential work, one mean for all steps of an engine.
    servers
        Number of servers of an engine ("fcfs" only; each at the engine's rate); 1 where absent.

    Raises
    ------
    InputError
        A fork, no arrivals, an engine at load 1 or more, or (fcfs) steps of different means at one engine.

    Examples
    --------
    >>> from tileq_theory.networks.workflows import chain
    >>> line = chain("r", [("A", 1.0), ("B", 1.0)], rate_per_s=0.5, engines={"A": 1.0, "B": 2.0})
    >>> round(network_latency(line).response_s, 6)  # 1/(1 - .5) + .5/(1 - .25)
    2.666667
    """
    if (network.next_matrix.sum(axis=1) > 1 + 1e-12).any():
        raise InputError("a step is followed by more than one step on average; expected routing without forks")
    arriving = float(network.arrivals_per_s.sum())
    if arriving == 0:
        raise InputError(
            "arrivals_per_s is 0 at every step; expected arrivals at one at least: nobody has a response time"
        )
    count = {e: positive_int(f"servers of {e!r}", (servers or {}).get(e, 1)) for e in network.engines}
    if discipline == "ps" and any(c > 1 for c in count.values()):
        raise InputError("servers is given for processor sharing; expected 'fcfs', or one server of a higher rate")
    rates, service, loads = network.rates_per_s, network.service_s, network.loads
    over = [e for e in network.engines if loads[e] >= count[e]]
    if over:
        raise InputError(
            f"load of engine {over[0]!r} is {loads[over[0]]:.6g} on {count[over[0]]} server(s); expected it below: "
            f"scale arrivals below {count[over[0]] / loads[over[0]]:.6g} times"
        )
    visit = np.empty(rates.size)
    for k, step in enumerate(network.steps):
        if discipline == "ps":
            visit[k] = service[k] / (1 - loads[step.engine])
            continue
        here = [i for i, s in enumerate(network.steps) if s.engine == step.engine]
        if not np.allclose(service[here], service[k], rtol=1e-12):
            raise InputError(
                f"steps of engine {step.engine!r} have different mean work; first come first served is of product form "
                "only with one mean: use 'ps'"
            )
        flow = float(rates[here].sum())
        visit[k] = many_servers(
            rate_per_s=flow, servers=count[step.engine], mean_service_s=float(service[k])
        ).response_s
    inside = rates * visit
    engines = dict.fromkeys(network.engines, 0.0)
    for step, number in zip(network.steps, inside, strict=True):
        engines[step.engine] += float(number)
    return NetworkLatency(visit, engines, float(inside.sum()) / arriving)


def fork_join_response(*, branches: int, rate_per_s: float, mean_service_s: float) -> float:
    """Return the mean time until the last of n equal branches ends, each on an M/M/1 engine of its own, seconds.

    Exact for 1 and 2 branches, Nelson and Tantawi's approximation (error below 5 %) up to 32.

    Raises
    ------
    InputError
        A load of 1 or more, or more than 32 branches.

    Examples
    --------
    >>> fork_join_response(branches=2, rate_per_s=0.5, mean_service_s=1.0)  # (12 - .5)/8 * 2
    2.875
    """
    n, mean = positive_int("branches", branches), positive("mean_service_s", mean_service_s)
    load = nonnegative("rate_per_s", rate_per_s) * mean
    if load >= 1:
        raise InputError(f"rate_per_s * mean_service_s is {load:.6g}; expected a load below 1")
    if n > 32:
        raise InputError(f"branches is {n}; expected at most 32, the range of the approximation")
    alone = mean / (1 - load)
    if n == 1:
        return alone
    two = (12 - load) / 8 * alone
    ratio = sum(1 / i for i in range(1, n + 1)) / 1.5
    return (ratio + 4 / 11 * (1 - ratio) * load) * two
