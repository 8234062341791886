"""A plan from scratch, for steps that cannot all have a worker otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.scheduling.placement import Capacity, Placement
from gristmill.scheduling.planning.context import AT_LAST, PlanContext
from gristmill.scheduling.planning.draft import Draft
from gristmill.scheduling.planning.packing import Group, fitting, less, put


@dataclass(slots=True)
class _Node:
    """A node that was emptied, and its workers that have no place yet."""

    group: Group
    id: int
    capacity: Capacity
    leaving: list[int]
    """The slot of each of these workers."""


def repacked(context: PlanContext, least: Sequence[int]) -> Draft | None:
    """Return a draft in which every step has its least. Workers stay where they are if they still fit."""
    for order in dict.fromkeys(order for order, _ in context.strategies):
        for prefer_kept in (True, False):
            draft = _repacked(context, least, order, prefer_kept)
            if draft is not None:
                return draft
    return None


def _repacked(context: PlanContext, least: Sequence[int], order: Sequence[int], prefer_kept: bool) -> Draft | None:
    nodes = [_emptied(context, g, node) for g in context.groups for node in g.nodes]
    starts: list[tuple[int, _Node, list[Placement]]] = []
    for i in order:
        spec = context.demands[i].spec
        n = _keep(context, nodes, i, least[i]) if prefer_kept else 0
        for node in nodes:
            more = min(least[i] - n, fitting(node.capacity, spec)) if not node.group.closed >> i & 1 else 0
            if more > 0:
                starts.append((i, node, put(node.capacity, spec, more)))
                n += more
        if n < least[i]:
            return None
    for i in order:
        _keep(context, nodes, i, context.have[i])
    draft = Draft(context, AT_LAST, least, True)
    for i, node, placements in starts:
        draft.starts.append((i, (node.id,), placements, node.group.kind, not node.leaving))
        draft.count[i] += len(placements)
    draft.groups = [_remaining(draft, node) for node in nodes]
    draft.cpu_left = sum(node.capacity.cpu for node in nodes)
    return draft


def _emptied(context: PlanContext, group: Group, node: int) -> _Node:
    slot_ids = [slot_id for slot_id, n in group.staff for _ in range(n)]
    capacity = group.capacity.copy()
    for slot_id in slot_ids:
        capacity.give(context.slots[slot_id].placement)
    return _Node(group, node, capacity, slot_ids)


def _keep(context: PlanContext, nodes: Sequence[_Node], i: int, most: int) -> int:
    """Leave up to ``most`` workers of a step where they are, and return how many fit."""
    n = 0
    for node in nodes:
        for slot_id in [x for x in node.leaving if context.slots[x].demand == i]:
            placement = context.slots[slot_id].placement
            if n < most and node.capacity.fits(placement):
                node.capacity.take(placement)
                node.leaving.remove(slot_id)
                n += 1
    return n


def _remaining(draft: Draft, node: _Node) -> Group:
    """Note the workers that leave a node, and return the node without them."""
    g, staff = node.group, node.group.staff
    for slot_id in node.leaving:
        staff = less(staff, slot_id)
        draft.leaves.append((slot_id, (node.id,)))
        draft.count[draft.context.slots[slot_id].demand] -= 1
    return Group(g.kind, (node.id,), node.capacity, staff, g.uses, bool(node.leaving), g.closed)
