"""One run compared with what there is of it outside: its execution, its tokens, its children, the list of runs.

Whatever died, somebody else's repetition heals it, or this does. Two rules make it harmless beside live runs: what may
be repeated (starting, sending) is repeated, whoever else does it; what judges (stopping a run whose execution has
died, repairing a counter) waits until no lease of the run is live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from shared.errors import Conflict
from shared.events.rules import owed
from shared.ledger.record import replace
from shared.ledger.records import Amount
from shared.runtime.audit import at_rest, counted, differences
from shared.runtime.children import answer_parent, living
from shared.runtime.denials import is_over
from shared.runtime.ending import execution_name, following, request, start_unwinding, wake
from shared.runtime.finalise import give_up
from shared.runtime.gates import expire_again
from shared.runtime.host import plan_of
from shared.runtime.journal import Change, Journal, Snapshot
from shared.runtime.outbox import deliver
from shared.runtime.runs import bring_up, execute
from shared.runtime.scopes import AWAIT, closed
from shared.runtime.settle import over
from shared.runtime.task import run_task
from shared.runtime.tiers import advance, due, is_forgotten
from shared.runtime.unwinding import BATCH, UNDOING, needs_word

if TYPE_CHECKING:
    from shared.ledger.records import Ending, Park
    from shared.ports import Events
    from shared.runtime.host import Host

What = Literal[
    "execution_missing",
    "execution_ended",
    "unwinding_missing",
    "unwinding_ended",
    "decision_unsent",
    "gate_due",
    "letters_unsent",
    "wake_unsent",
    "child_unanswered",
    "parent_gone",
    "list_behind",
    "reservation_leaked",
    "version_unused",
    "machine_unused",
    "unreadable",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found wrong with a run (or with a version, named like ``invoice#3``), and what was done about it.

    ``about`` says where and why: a step's path, an execution's end, an error.
    """

    tenant: str
    run: str
    what: What
    done: str
    about: str = ""

    def to_json(self) -> dict[str, str]:
        """Return what logs and callers are told."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit to one run: all its records as they were read, and where what it needs is done.

    ``events`` None = nobody is there to be told of letters to write.
    """

    host: Host
    journal: Journal
    seen: Snapshot
    unwind_machine: str
    events: Events | None = None

    def found(self, what: What, done: str, about: str = "") -> Finding:
        """Return a finding about this run."""
        return Finding(self.seen.run.tenant, self.seen.run.id, what, done, about)

    @property
    def lease(self) -> int:
        """Until when (ms) a process that holds a step may be alive; 0 = none is."""
        now = self.host.clock.now()
        return max((step.lease for step in self.seen.steps() if step.open and step.lease > now), default=0)


def mend(host: Host, tenant: str, run: str, unwind_machine: str, events: Events | None = None) -> list[Finding]:
    """Compare one run with the outside and do what it needs. Returns what was found; nothing found = all is well."""
    journal = Journal(host.store, host.clock, tenant, run)
    visit = Visit(host, journal, journal.read_all(), unwind_machine, events)
    head = visit.seen.head
    checks = _ENDED if head.ended else _UNWINDING if head.unwinding else _OPEN
    return [finding for check in checks for finding in check(visit)]


def _execution(visit: Visit) -> Iterator[Finding]:
    """The run's execution: started, or still running, or the run does not know of its end."""
    seen, engine = visit.seen, visit.host.engine
    execution = engine.describe(seen.run.machine, execution_name(seen))
    if execution is None:
        execute(visit.host, seen)
        yield visit.found("execution_missing", "started", execution_name(seen))
    elif execution.status != "running" and visit.lease:
        yield visit.found("execution_ended", "left", f"a process may be alive until {visit.lease} ms")
    elif execution.status != "running":
        done = give_up(visit.host, visit.journal, seen.head.epoch, execution, visit.unwind_machine)
        yield visit.found("execution_ended", done, f"{execution.status}: {execution.cause}"[:300])


def _unwinding(visit: Visit) -> Iterator[Finding]:
    """The execution that unwinds the run: it is started where there is none, and again where it has died."""
    seen, machine, first = visit.seen, visit.unwind_machine, execution_name(visit.seen)
    name, dead = first, ""
    execution = visit.host.engine.describe(machine, name)
    if execution is None:  # a child that is undone with its parent ends once more
        again = following(first, f"{first}.{UNDOING}")
        execution = visit.host.engine.describe(machine, again)
        name = again if execution else first
    while execution and execution.status != "running":
        name, dead = following(first, name), name
        execution = visit.host.engine.describe(machine, name)
    if execution is None:
        start_unwinding(visit.host, seen, machine, dead)
        yield visit.found("unwinding_ended" if dead else "unwinding_missing", "started", name)


def _words(visit: Visit) -> Iterator[Finding]:
    """The unwinding that waits for a person who has said their word by now."""
    if not needs_word(visit.host, visit.seen) and wake(visit.host, visit.journal):
        yield visit.found("decision_unsent", "sent", "the unwinding")


def _decisions(visit: Visit) -> Iterator[Finding]:
    """Decided gates and answered parks whose tokens are still waited for."""
    for record in (*visit.seen.gates(), *visit.seen.parks()):
        if deliver(visit.host, record):
            yield visit.found("decision_unsent", "sent", record.path)


def _gates(visit: Visit) -> Iterator[Finding]:
    """Open gates whose next reminder or tier is due, or whose end no token brings; whose letters nobody writes.

    What is written down here the table's stream announces, and the function that writes letters hears of it. A later
    visit announces it once more where that was lost.
    """
    seen, now = visit.seen, visit.host.clock.now()
    for gate in seen.gates():
        if is_over(gate, now) and expire_again(visit.host, visit.journal, gate.path):
            yield visit.found("gate_due", "expired", gate.path)
            continue
        moment = due(gate)
        if moment is not None and moment <= now:
            done = visit.journal.transact(visit.journal.read([gate.sk]), partial(advance, path=gate.path, now=now))[0]
            if done:
                yield visit.found("gate_due", done, gate.path)
        elif visit.events and is_forgotten(gate, now) and now < gate.expires:
            visit.events.announce([owed(seen.run, gate, seen.head.seq, now)])
            yield visit.found("letters_unsent", "announced", gate.path)


def _wakes(visit: Visit) -> Iterator[Finding]:
    """Awaits that are over and were not woken."""
    for park in visit.seen.parks():
        if park.kind == "await" and park.token and _over(visit, park) and visit.host.engine.succeed(park.token, {}):
            yield visit.found("wake_unsent", "sent", park.path)


def _over(visit: Visit, park: Park) -> bool:
    seen = visit.seen
    task = run_task(seen.run, seen.head.epoch, park.path.removesuffix(AWAIT))
    plan = plan_of(visit.host.manifest(task), task.path)
    return closed(seen, task.scope) is not None or over(visit.host, task, plan, seen)


def _children(visit: Visit) -> Iterator[Finding]:
    """Children that have ended and whose end this run does not know, or has not told who waits for it."""
    host, run = visit.host, visit.seen.run
    for step in visit.seen.steps():
        if step.child is None or not (living(step) or visit.seen.park(step.path)):
            continue
        if not Journal(host.store, host.clock, run.tenant, step.child).read([]).head.ended:
            continue
        waited = answer_parent(host, run.tenant, step.child)
        if waited or living(step):
            yield visit.found("child_unanswered", "answered", f"{step.path}: run {step.child}")


def _parent(visit: Visit) -> Iterator[Finding]:
    """The run that this one is a child of: where it waits for it no more, this one ends as its parent has."""
    run = visit.seen.run
    if not run.parent or visit.lease:
        return
    parent, path = run.parent.split("|", 1)
    above = Journal(visit.host.store, visit.host.clock, run.tenant, parent).read([f"STEP#{path}"])
    step = above.step(path)
    if not above.head.ended and step and step.child == run.id and not step.settled:
        return
    ending = _apart(above.head.ended) if run.part else "cancelled"
    reason = f"its parent run {parent} does not wait for it any more"
    try:
        request(visit.host, visit.journal, ending, reason, visit.unwind_machine, epoch=visit.seen.head.epoch)
    except Conflict:
        return
    yield visit.found("parent_gone", ending, run.parent)


def _apart(ended: Ending | None) -> Ending:
    """Return how a part ends whose whole is over: like it; what a completed whole has left over is only stopped."""
    return "stopped" if ended is None or ended == "completed" else ended


def _listed(visit: Visit) -> Iterator[Finding]:
    """The list of runs, which follows the head."""
    seen = visit.seen
    behind = seen.run.state != seen.head.state
    if bring_up(visit.host.store, visit.journal.pk, seen.head) and behind:
        yield visit.found("list_behind", "marked", f"{seen.run.state} is {seen.head.state}")


def _counters(visit: Visit) -> Iterator[Finding]:
    """The head's counters against the steps' records. Only what a run that has ended still holds is given back."""
    seen = visit.seen
    wrong = differences(seen.head, counted(at_rest(seen)))
    if not wrong or visit.lease or visit.journal.read([]).head.rev != seen.head.rev:
        return
    if seen.head.ended:
        visit.journal.transact(seen, _freed)
    told = ", ".join(f"{name} is {has}, the steps say {said}" for name, (has, said) in wrong.items())
    yield visit.found("reservation_leaked", "repaired" if seen.head.ended else "reported", told)


def _freed(seen: Snapshot) -> Change[None]:
    """Give back what a run that has ended still holds, as many steps at once as one transaction takes."""
    held = [step for step in seen.steps() if step.open or step.hold != Amount()][:BATCH]
    freed = [replace(step, open=False, hold=Amount()) for step in held]
    head = counted(seen.with_({step.sk: step for step in freed}))
    return Change(None, (head, *freed)) if seen.head.ended else Change(None)


_Check = Callable[[Visit], Iterator[Finding]]
_ENDED: tuple[_Check, ...] = (_listed, _counters)
_UNWINDING: tuple[_Check, ...] = (_unwinding, _words, _listed)
_OPEN: tuple[_Check, ...] = (_execution, _decisions, _wakes, _children, _parent, _listed, _counters, _gates)
