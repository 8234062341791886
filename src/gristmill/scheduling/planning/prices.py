"""What nodes of different kinds are worth to steps that are not equally fast everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WHOLE = 1 << 30
"""The value of all nodes together."""
_ROUNDS = 30

Needs = Sequence[Mapping[int, int]]
"""For each step and kind of node: how long all that these nodes have of a resource would be busy with it."""


def costs(needs: Needs) -> list[dict[int, int]]:
    """What each step costs on each kind of node, at the prices at which the cheapest choice of all costs most.

    A step goes where it costs least; the kind of node that is then used most becomes dearer, and so on. Whatever
    the prices, no division of the work takes less time than the sum of the least costs, in parts of `WHOLE`.
    """
    if not any(x for need in needs for x in need.values()):
        return [dict.fromkeys(need, 0) for need in needs]  # no step needs this resource
    kinds = sorted({kind for need in needs for kind in need})
    price = {kind: WHOLE // len(kinds) for kind in kinds}
    best: list[dict[int, int]] = []
    most = -1
    for n in range(_ROUNDS):
        used = dict.fromkeys(kinds, 0)
        total = 0
        now = []
        for need in needs:
            cost = {kind: price[kind] * x for kind, x in need.items()}
            now.append(cost)
            if cost:
                cheapest = min(cost, key=lambda k: (cost[k], k))
                total += cost[cheapest]
                used[cheapest] += need[cheapest]
        if total > most:
            best, most = now, total
        top = max(used.values(), default=0) or 1
        price = {kind: p + p * used[kind] // (top * (1 + n)) + 1 for kind, p in price.items()}
        scale = sum(price.values())
        price = {kind: p * WHOLE // scale for kind, p in price.items()}
    return best


def total(by_kind: Sequence[Mapping[int, int]]) -> int:
    """The sum of the least costs."""
    return sum(min(cost.values(), default=0) for cost in by_kind)
