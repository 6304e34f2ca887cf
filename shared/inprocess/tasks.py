"""From what a walk asks for to the task that a handler takes: its time-out, its lease, its token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.inprocess.handlers import calls
from shared.runtime.task import Task, placed

if TYPE_CHECKING:
    from shared.inprocess.live import Live, Walk
    from shared.interpreter import Do

MARGIN = 5.0
"""Seconds beyond its step's time-out after which a call is given up, as in the compiled machines."""
COMPENSATE_TIMEOUT = 900.0
UNBOUNDED = 365 * 24 * 3600.0
"""Seconds that a task may take which makes no call: it has no time-out of its own."""


def make_task(live: Live, walk: Walk, do: Do, now: int, number: int) -> Task:
    """Return the task of one operation; ``now`` in ms, ``number`` is unique in this process.

    Tokens are the same for every delivery, since whoever drives the run answers them: a delivery that parks again
    need not be written down again. Other deliveries are told apart by their entry.
    """
    run, epoch = live.facts.run, live.facts.head.epoch
    stamp = "0" if do.token else f"{now:014d}.{number:09d}"
    # Where a step is named by its whole path (a compensation), its scope is part of that.
    inside, step = placed(do.step)
    return Task(
        op=do.op,
        step=step,
        scope=do.scope + inside,
        run=run.id,
        tenant=run.tenant,
        workflow=run.workflow,
        version=run.version,
        epoch=epoch,
        entry=f"{epoch:06d}|{stamp}|0000",
        attempt=f"{now}.{number}.{id(live):x}",
        deadline=now + int(((walk.limit or UNBOUNDED) + MARGIN) * 1000),
        token=f"{run.id}|{epoch}|{do.token}" if do.token else "",
        error=do.error,
        template=do.template,
    )


def begin(walk: Walk, do: Do) -> None:
    """Note what a walk does next, and that operation's time-out."""
    walk.do = do
    if do.op == "compensate":
        walk.limit = COMPENSATE_TIMEOUT
        return
    plan = walk.graph.plans[do.template] if do.template and walk.graph else walk.plan
    walk.limit = plan.timeout if plan and in_graph(walk, do) and calls(plan) else None


def in_graph(walk: Walk, do: Do) -> bool:
    """Tell whether the operation is an attempt of a step, or what stands in for it."""
    return walk.plan is not None and walk.graph is not None and do.op in {"run", "fallback"}


def takes_place(walk: Walk) -> bool:
    """Tell whether a walk's operation counts against ``max_parallel``: compensations, one at a time, do not."""
    return walk.limit is not None and walk.plan is not None
