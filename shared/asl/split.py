"""Maps and loops that the history of one execution cannot hold: how they are split into child executions.

Every body must fit a history by itself; then, in each graph, the map or loop that would write the most events is split
first, until the rest fits. A split map still runs short lists inline. A list that nothing bounds may be long, so its
map is always split. One with a time-out or a budget has a run of its own; what that cannot hold is split there. What
waits for an event from outside is not: the event is sent to the run, and finds only what the run's own execution waits
for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.asl.limits import INLINE_ITEMS, MAX_EVENTS, apart_events, body_events, events_of, part_events
from shared.manifest import Body, Split, StepPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.asl.layout import Layout

ROOM = MAX_EVENTS * 4 // 5
"""Events that an execution is planned for; the rest is for repetitions that say nothing about the definition."""
MOST_ITEMS = 10_000
"""Items of a map whose list nothing bounds. More are refused when the run gets there."""
MOST_SIZE = 500
"""Items or iterations of one child at most, so that its records are read within seconds."""
AT_ONCE = 5
"""Children of one map at once, where its ``max_concurrency`` allows as many."""
INSIDE = 8
"""Items that a child runs at once, where fewer children at once would be enough."""
UNLIMITED = 40
"""Items at once of a map without a limit. Source: Step Functions Developer Guide, "Map state", inline mode."""


def split(layout: Layout, plans: Mapping[str, StepPlan], room: int, places: int) -> dict[str, StepPlan]:
    """Return the plans of a graph with what is split, in all bodies too, so that its events fit ``room``.

    Parts that run at once divide the run's ``places`` among themselves, so there are never more of them.
    """
    found = {name: _inside(layout, plan, room, places) for name, plan in plans.items()}
    for name in [name for name, plan in found.items() if plan.type == "map" and plan.spec.get("max_items") is None]:
        found[name] = _open_ended(layout, found[name], room, places)
    found |= {name: _in_its_own_run(layout, plan, room, places) for name, plan in found.items() if plan.apart}
    while events_of(layout, found) > room and _too_many(layout, found, room):
        whole = [
            name for name in layout.bodies if _splits(found[name]) and not (found[name].split or found[name].apart)
        ]
        if not whole:
            break
        heaviest = max(whole, key=lambda name: body_events(layout, found[name]) * rounds(found[name]))
        found[heaviest] = _split(layout, found[heaviest], room, places)
    return _shortened(layout, found, room)


def _too_many(layout: Layout, plans: Mapping[str, StepPlan], room: int) -> bool:
    """Tell whether something must be split: what just fits a history is left whole, what is split once has room."""
    return events_of(layout, plans) > room * 5 // 4 or any(plan.split for plan in plans.values())


def rounds(plan: StepPlan) -> int:
    """Return how often the body of a map or a loop runs at most."""
    return int(plan.spec["max_items" if plan.type == "map" else "max_iterations"])


def _inside(layout: Layout, plan: StepPlan, room: int, places: int) -> StepPlan:
    if plan.body is None or plan.id not in layout.bodies:
        return plan
    steps = split(layout.bodies[plan.id], plan.body.steps, room, places)
    return replace(plan, body=Body(steps, plan.body.order))


def _in_its_own_run(layout: Layout, plan: StepPlan, room: int, places: int) -> StepPlan:
    """Split what has a run of its own where one execution cannot hold that run either."""
    holds = plan.split or not _splits(plan) or apart_events(layout, plan) <= room
    return plan if holds else _split(layout, plan, room, places)


def _open_ended(layout: Layout, plan: StepPlan, room: int, places: int) -> StepPlan:
    """Bound a map whose list nothing bounds, and split it."""
    if not _splits(plan):
        return replace(plan, spec={**plan.spec, "max_items": INLINE_ITEMS})
    found = _split(layout, replace(plan, spec={**plan.spec, "max_items": MOST_ITEMS}), room, places)
    assert found.split is not None  # noqa: S101 - for the type checker
    most = found.split.size * max(1, room // 4 // part_events())
    return replace(found, spec={**plan.spec, "max_items": min(MOST_ITEMS, most)})


def _splits(plan: StepPlan) -> bool:
    return plan.body is not None and not _awaits_events(plan.body)


def _awaits_events(body: Body) -> bool:
    inner = [plan.body for plan in body.steps.values() if plan.body]
    return any("event" in plan.spec for plan in body.steps.values() if plan.type == "wait") or any(
        map(_awaits_events, inner)
    )


def _split(layout: Layout, plan: StepPlan, room: int, places: int) -> StepPlan:
    each = body_events(layout, plan)
    size = max(1, min(MOST_SIZE, rounds(plan), room * 9 // 10 // each))
    if plan.type == "loop":
        return replace(plan, split=Split(0, size))
    limit = int(plan.spec["max_concurrency"]) or UNLIMITED
    at_once = _at_once(limit, min(AT_ONCE, limit, places), several=size < rounds(plan))
    inline = min(INLINE_ITEMS, rounds(plan), room // 4 // each)
    return replace(plan, split=Split(inline, size, at_once, limit // at_once))


def _at_once(limit: int, most: int, *, several: bool) -> int:
    """Return how many children run at once, each with its share of the map's limit, so that little of it is lost.

    A child's items wait for each other when its share is used, though another child's is not. So there are as few as
    will do: one while it can hold all items, else at least two, since the next child waits for a whole one to end.
    """
    least = min(most, max(1 + several, -(-limit // INSIDE)))
    return max(range(least, most + 1), key=lambda count: limit // count * count)


def _shortened(layout: Layout, plans: dict[str, StepPlan], room: int) -> dict[str, StepPlan]:
    """Let fewer items run inline until all of it fits together."""
    while events_of(layout, plans) > room:
        inline = [name for name, plan in plans.items() if plan.split and plan.split.inline and not plan.apart]
        if not inline:
            break
        for name in inline:
            known = plans[name].split
            assert known is not None  # noqa: S101 - for the type checker
            plans[name] = replace(plans[name], split=replace(known, inline=known.inline // 2))
    return plans
