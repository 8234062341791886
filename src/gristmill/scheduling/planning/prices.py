"""Prices of nodes of different kinds, for steps that are not equally fast everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WHOLE = 1 << 30
"""The value of all nodes together."""
_ROUNDS = 30

Needs = Sequence[Mapping[int, int]]
"""For each step and kind of node: how long all that these nodes have of a resource would be busy with it."""


def costs(needs: Needs) -> list[dict[int, int]]:
    """Return the cost of each step on each kind of node, at the prices at which the cheapest choice of all costs most.

    A step goes where it costs least; the kind of node that is then used most gets a higher price, and so on. Whatever
    the prices, no division of the work takes less time than the sum of the least costs, in parts of `WHOLE`.
    """
    if not any(x for need in needs for x in need.values()):
        return [dict.fromkeys(need, 0) for need in needs]  # no step needs this resource
    kinds = sorted({kind for need in needs for kind in need})
    rows = [[(i, need[kind]) for i, kind in enumerate(kinds) if kind in need] for need in needs]
    price = [WHOLE // len(kinds)] * len(kinds)
    best = price
    most = -1
    for n in range(_ROUNDS):
        used = [0] * len(kinds)
        total = 0
        for row in rows:
            if not row:
                continue
            cheapest, busy = row[0]
            cost = price[cheapest] * busy
            for i, x in row:
                if price[i] * x < cost:
                    cheapest, busy, cost = i, x, price[i] * x
            total += cost
            used[cheapest] += busy
        if total > most:
            best, most = price, total
        top = max(used) or 1
        price = [p + p * u // (top * (1 + n)) + 1 for p, u in zip(price, used, strict=True)]
        scale = sum(price)
        price = [p * WHOLE // scale for p in price]
    by_kind = dict(zip(kinds, best, strict=True))
    return [{kind: by_kind[kind] * x for kind, x in need.items()} for need in needs]


def total(by_kind: Sequence[Mapping[int, int]]) -> int:
    """The sum of the least costs."""
    return sum(min(cost.values(), default=0) for cost in by_kind)
