"""The tree of cached prefix blocks: reference counts, least recently used leaves, in integers of the run's array P.

A node is one block of a prompt's hashes, known by all that precedes it, so that a request's blocks are a path from
the root and its longest cached prefix is the longest run of cached nodes on it. A node takes `node_blocks` KV blocks.
`S[0].free` counts the blocks that nobody refers to, cached or not: what rules ask for before they admit or decode is
the same with and without a cache. A cached block that nobody refers to is *idle*, and given up only for want of
blocks, the one that was let go first; a path is let go from its end, so that a node's children are idle before it and
the first of the idle nodes is always a leaf.

Blocks are given up when it is next looked: before a search, before blocks are returned, before computed ones are
kept. In between the free blocks only get fewer, so that the order, and what is left, are those of giving up each
block at the instant at which it is needed.

P holds from `S[0].tree` on six integers a request (where its path begins in P, its length in nodes, nodes found by
the last search, nodes it refers to, of those found how many others refer to, tokens it was spared in all) and from
`S[0].nodes` on five a node (references or -1, next and previous idle node, turn at which it became idle, parent).
"""

from __future__ import annotations

__all__ = [
    "claim_prefix",
    "evict_idle",
    "find_prefix",
    "found_tokens",
    "give_back",
    "held_blocks",
    "idle_blocks",
    "keep_blocks",
    "lend_out",
    "matched_tokens",
    "rounds_to_node",
    "spared_blocks",
    "spoken_for",
    "verify_tree",
]

from typing import Any

from tileq_engine.records import Records

_ROW, _PATH, _LENGTH, _FOUND, _HELD, _SPARED, _SAVED = 6, 0, 1, 2, 3, 4, 5
_NODE, _REFS, _AFTER, _AHEAD, _TURN, _PARENT = 5, 0, 1, 2, 3, 4


def node_place(S: Records, P: Any, i: int, k: int) -> Any:
    """Return where in P the `k`-th node of request `i` stands."""
    s = S[0]
    return s.nodes + _NODE * P[P[s.tree + _ROW * i + _PATH] + k]


def let_go(S: Records, P: Any, node: int) -> None:
    """Put the node, which has lost its last reference, at the end of the idle ones."""
    s = S[0]
    at = s.nodes + _NODE * node
    P[at + _AFTER] = -1
    P[at + _AHEAD] = s.idle_last
    s.turn += 1
    P[at + _TURN] = s.turn
    if s.idle_last >= 0:
        P[s.nodes + _NODE * s.idle_last + _AFTER] = node
    else:
        s.idle_first = node
    s.idle_last = node
    s.idle_nodes += 1
    s.held_nodes -= 1


def take_up(S: Records, P: Any, node: int) -> None:
    """Take the node out of the idle ones."""
    s = S[0]
    at = s.nodes + _NODE * node
    after = P[at + _AFTER]
    ahead = P[at + _AHEAD]
    if ahead >= 0:
        P[s.nodes + _NODE * ahead + _AFTER] = after
    else:
        s.idle_first = after
    if after >= 0:
        P[s.nodes + _NODE * after + _AHEAD] = ahead
    else:
        s.idle_last = ahead
    s.idle_nodes -= 1


def evict_idle(S: Records, P: Any) -> None:
    """Give up idle nodes, those let go first, until no more are left than there are free blocks for."""
    s = S[0]
    while s.idle_nodes * s.node_blocks > s.free:
        node = s.idle_first
        take_up(S, P, node)
        P[s.nodes + _NODE * node + _REFS] = -1
        s.evicted_nodes += 1


def idle_blocks(S: Records, free: int) -> Any:
    """Return the blocks of idle nodes when `free` blocks are referred to by nobody."""
    s = S[0]
    return s.node_blocks * min(s.idle_nodes, free // s.node_blocks)


def search_limit(R: Records, S: Records, P: Any, i: int) -> Any:
    """Return the nodes that may be found for request `i`: its last prompt token is always computed."""
    s = S[0]
    r = R[i]
    if r.cached > 0:
        return 0  # its KV is in host memory, or has come with it
    return min(P[s.tree + _ROW * i + _LENGTH], (r.prompt + r.gen - r.replay - 1) // s.node_tokens)


def matched_tokens(R: Records, S: Records, P: Any, i: int) -> Any:
    """Return the tokens of request `i` whose KV is cached here, 0 without a cache. Nothing is changed by asking."""
    s = S[0]
    if s.tree == 0:
        return 0
    evict_idle(S, P)
    most = search_limit(R, S, P, i)
    k = 0
    while k < most and P[node_place(S, P, i, k) + _REFS] >= 0:
        k += 1
    return k * s.node_tokens


def find_prefix(R: Records, S: Records, P: Any, i: int) -> Any:
    """Search the longest cached prefix of request `i`, keep what was found in its row, and return its nodes."""
    s = S[0]
    evict_idle(S, P)
    most = search_limit(R, S, P, i)
    k = 0
    spared = 0
    while k < most:
        refs = P[node_place(S, P, i, k) + _REFS]
        if refs < 0:
            break
        if refs > 0:
            spared += 1
        k += 1
    row = s.tree + _ROW * i
    P[row + _FOUND] = k
    P[row + _SPARED] = spared
    return k


def found_tokens(S: Records, P: Any, i: int) -> Any:
    """Return the tokens that the last search for request `i` found cached."""
    s = S[0]
    return P[s.tree + _ROW * i + _FOUND] * s.node_tokens if s.tree > 0 else 0


def spared_blocks(S: Records, P: Any, i: int) -> Any:
    """Return the blocks of the found prefix that others refer to: they cost request `i` nothing."""
    s = S[0]
    return P[s.tree + _ROW * i + _SPARED] * s.node_blocks if s.tree > 0 else 0


def claim_prefix(R: Records, S: Records, P: Any, b: Any, i: int) -> Any:
    """Let the new resident `b` refer to its cached prefix; return the blocks of it that cost nothing."""
    s = S[0]
    if R[i].cached > 0:
        return 0
    found = find_prefix(R, S, P, i)
    for k in range(found):
        at = node_place(S, P, i, k)
        if P[at + _REFS] == 0:
            take_up(S, P, P[P[s.tree + _ROW * i + _PATH] + k])
            s.held_nodes += 1
        P[at + _REFS] += 1
    row = s.tree + _ROW * i
    P[row + _HELD] = found
    tokens = found * s.node_tokens
    P[row + _SAVED] += tokens
    b.cached = tokens
    if found * s.node_blocks > b.blocks:
        b.blocks = found * s.node_blocks
    s.searches += 1
    s.searched_tokens += b.target
    s.hit_tokens += tokens
    s.work -= tokens
    return P[row + _SPARED] * s.node_blocks


def keep_blocks(S: Records, P: Any, b: Any) -> Any:
    """Put the blocks that resident `b` has filled into the tree; return how many.

    A block that somebody else has computed meanwhile is given back, and his referred to.
    """
    s = S[0]
    i = b.id
    row = s.tree + _ROW * i
    k = P[row + _HELD]
    before = k
    full = min(P[row + _LENGTH], b.cached // s.node_tokens)
    while k < full:
        at = node_place(S, P, i, k)
        refs = P[at + _REFS]
        if refs > 0:
            s.free += s.node_blocks
            s.merged_nodes += 1
        else:
            if refs == 0:
                take_up(S, P, P[P[row + _PATH] + k])
                s.merged_nodes += 1
            else:
                P[at + _REFS] = 0
            s.held_nodes += 1
        P[at + _REFS] += 1
        k += 1
    P[row + _HELD] = k
    return k - before


def give_back(S: Records, P: Any, b: Any) -> Any:
    """End the references of resident `b`, from the end of its path on; return the blocks that nobody refers to now."""
    s = S[0]
    keep_blocks(S, P, b)
    row = s.tree + _ROW * b.id
    held = P[row + _HELD]
    freed = b.blocks - held * s.node_blocks
    for k in range(held - 1, -1, -1):
        at = node_place(S, P, b.id, k)
        P[at + _REFS] -= 1
        if P[at + _REFS] == 0:
            let_go(S, P, P[P[row + _PATH] + k])
            freed += s.node_blocks
    P[row + _HELD] = 0
    P[row + _FOUND] = 0
    P[row + _SPARED] = 0
    return freed


def lend_out(S: Records, P: Any, b: Any, step: int) -> Any:
    """Change the references of resident `b` by `step` (-1, later +1) as if it left; return the blocks this frees."""
    s = S[0]
    row = s.tree + _ROW * b.id
    held = P[row + _HELD]
    freed = b.blocks - held * s.node_blocks
    for k in range(held):
        at = node_place(S, P, b.id, k)
        P[at + _REFS] += step
        if P[at + _REFS] == 0:
            freed += s.node_blocks
    return freed


def spoken_for(S: Records) -> Any:
    """Return the free blocks that a macro-step must leave: those of idle nodes that a waiting request may have found.

    Where blocks are taken chunk by chunk it could enter once its own prefix has been given up.
    """
    s = S[0]
    if s.tree > 0 and s.alloc == 0 and s.nwait > 0 and s.deaf == 0:
        return s.idle_nodes * s.node_blocks
    return 0


def rounds_to_node(S: Records, P: Any, b: Any) -> Any:
    """Return in how many more iterations of its chunk resident `b` fills a block that the tree keeps."""
    s = S[0]
    row = s.tree + _ROW * b.id
    held = P[row + _HELD]
    if held >= P[row + _LENGTH]:
        return 1 << 62
    return ((held + 1) * s.node_tokens - b.cached + b.chunk - 1) // b.chunk


def held_blocks(S: Records, P: Any, b: Any) -> Any:
    """Return the blocks of resident `b` that are in the tree."""
    s = S[0]
    return P[s.tree + _ROW * b.id + _HELD] * s.node_blocks if s.tree > 0 else 0


def verify_tree(B: Records, S: Records, O: Any, P: Any) -> Any:  # noqa: E741
    """Return the error of the first invariant of the tree that does not hold, its value in S[0].error_value; 0: all do.

    15: a block is kept as long as it is referred to, by whom it is known to be; 16: with a block the one before it is
    kept, and referred to at least as often; 17: idle nodes are those without references, in order of their turns.
    """
    s = S[0]
    holding = 0
    for k in range(s.nres):
        b = B[O[k]]
        held = P[s.tree + _ROW * b.id + _HELD]
        holding += held
        for j in range(held):
            if P[node_place(S, P, b.id, j) + _REFS] < 1:
                s.error_value = 1
                return 15
    references = 0
    referred = 0
    idle = 0
    for node in range(s.node_count):
        at = s.nodes + _NODE * node
        refs = P[at + _REFS]
        if refs < 0:
            continue
        references += refs
        if refs > 0:
            referred += 1
        else:
            idle += 1
        parent = P[at + _PARENT]
        if parent >= 0 and P[s.nodes + _NODE * parent + _REFS] < refs:
            s.error_value = node
            return 16
    if references != holding or referred != s.held_nodes:
        s.error_value = holding - references
        return 15
    count = 0
    turn = 0
    node = s.idle_first
    while node >= 0 and count <= idle:
        at = s.nodes + _NODE * node
        if P[at + _REFS] != 0 or P[at + _TURN] <= turn:
            s.error_value = node
            return 17
        turn = P[at + _TURN]
        count += 1
        node = P[at + _AFTER]
    if count != idle or idle != s.idle_nodes:
        s.error_value = idle
        return 17
    return 0
