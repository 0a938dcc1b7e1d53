"""Give every parameter of the public constructors values of other types; print what is not one line of `InputError`.

Run by itself, because the tests check annotations, and a wrong type would not get as far as the function.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tileq_engine import EngineConfig, Requests
from tileq_engine.backpressure import Backpressure, TbtControl
from tileq_engine.cluster import Cluster, Failure, Node, placement_weights, router, simulate_cluster
from tileq_engine.conversations import Conversations as Drawn
from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.prefix_hit_rate import hit_rate
from tileq_engine.tenants import Tenants
from tileq_theory.capacity import Limits
from tileq_theory.cluster import NodeGroup, cluster_capacity
from tileq_theory.disaggregation import KvLink
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import Pairs
from tileq_theory.prefix_cache import CachedLengths, Conversations, Reuse, che, king, share_cached

TIME = IterationTime.constant(0.01)
LAW = Pairs(np.array([10, 20]), np.array([5, 6]), np.array([0.5, 0.5]))
DEMAND = LAW.demand(chunk_tokens=512, counting="least")
ASKED = Requests.from_arrays(arrival_s=[0.0, 1.0], prompt_tokens=10, output_tokens=2)
TWO = Cluster([Node("a", TIME), Node("b", TIME)])
GROUP = NodeGroup("a", TIME, Limits(kv_tokens=10_000, max_num_seqs=8))
RIGHT: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (Node, {"name": "a", "time": TIME}),
    (Failure, {"node": "a", "at_s": 1.0}),
    (Cluster, {"nodes": [Node("a", TIME)]}),
    (router, {"name": "power_of_two"}),
    (simulate_cluster, {"requests": ASKED, "cluster": TWO, "mode": "python"}),
    (placement_weights, {"cluster": TWO, "demand": DEMAND}),
    (Tenants, {"names": ("a", "b"), "weights": (1.0, 2.0), "quotas": (1, 2), "priorities": (1, 2)}),
    (Backpressure, {"action": "reject", "waiting": 3}),
    (TbtControl, {"tbt_s": 0.1}),
    (Drawn, {}),
    (BlockPaths.of, {"ids": np.array([1, 2]), "offsets": np.array([0, 1, 2]), "block_tokens": 16}),
    (BlockPaths.from_lists, {"lists": [["a"], ["b"]], "block_tokens": 16}),
    (hit_rate, {"trace": ASKED.with_(blocks=BlockPaths.from_lists([[], []], 16))}),
    (EngineConfig, {}),
    (KvLink, {"bytes_per_token": 100.0}),
    (Conversations, {"turns": 3, "system_tokens": 10, "user_tokens": 10, "answer_tokens": 10, "think_s": 3.0}),
    (che, {"rates": [1.0, 2.0, 3.0], "cache": 2.0}),
    (king, {"popularity": [0.5, 0.3, 0.2], "cache": 2}),
    (share_cached, {"base": LAW, "share": 0.4}),
    (CachedLengths, {"base": LAW, "prompt_tokens": [10, 20], "cached_tokens": [1, 2], "weights": [0.5, 0.5]}),
    (
        Reuse.of_blocks,
        {"ids": np.array([1, 2, 1]), "offsets": np.array([0, 2, 3]), "block_tokens": 16,
         "prompt_tokens": np.array([32, 16])},
    ),
    (NodeGroup, {"name": "a", "time": TIME, "limits": Limits(kv_tokens=10_000)}),
    (cluster_capacity, {"groups": [GROUP], "demands": [DEMAND], "shares": [1.0]}),
]  # fmt: skip
WRONG: list[Any] = [
    None, "abc", 3, -1, 0.5, True, float("nan"), [1], ["a"], [None], {"a": 1}, object(), np.array([[1, 2], [3, 4]]), (),
]  # fmt: skip


def main() -> None:
    tried = refused = 0
    for function, right in RIGHT:
        for name in inspect.signature(function).parameters:
            for value in WRONG if name != "progress" else ():
                tried += 1
                try:
                    function(**{**right, name: value})
                except InputError as error:
                    refused += 1
                    fault = "more than a line" if "\n" in str(error) else ""
                except Exception as error:
                    fault = f"{type(error).__name__}: {error}"
                else:
                    fault = ""
                if fault:
                    sys.stdout.write(f"{function.__qualname__} {name} {type(value).__name__} {fault}\n")
    sys.stdout.write(f"{tried} tried, {refused} refused\n")


if __name__ == "__main__":
    main()
