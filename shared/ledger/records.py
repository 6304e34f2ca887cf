"""A run's records: frozen data and their form as items.

One partition a run: ``HEAD`` (what every transaction touches, <= 1 KB, in no index), ``RUN`` (facts and the list view),
``STEP#<path>``, ``GATE#<path>``, ``PARK#<path>``, ``DEAD#<path>`` and the append-only ``EVENT#<seq>``. Times are
milliseconds since the epoch, UTC; money is nano-USD.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Literal

from shared.frozen import frozen_record
from shared.ledger.gate import Gate
from shared.ledger.nested import NOTHING, Amount, Call, Failure
from shared.ledger.record import Record
from shared.values import Value

RunState = Literal[
    "pending",
    "running",
    "waiting_for_human",
    "paused",
    "stopped",
    "completed",
    "failed",
    "cancelled",
    "timed_out",
]
StepStatus = Literal[
    "ready",
    "running",
    "retrying",
    "waiting",
    "paused",
    "completed",
    "failed",
    "skipped",
    "timed_out",
    "cancelled",
    "unknown",
    "compensated",
]
Ending = Literal["completed", "failed", "cancelled", "stopped", "timed_out"]
BudgetMode = Literal["enforce", "audit"]


UNDOING = "/compensate"
"""What the path of the step that undoes a call ends with."""


@frozen_record
class Head(Record):
    """The run's counters. ``left`` = limit - spent - reserved; None = no limit in that dimension.

    ``active_left`` (ms) counts while no step is open; while one is, ``active_deadline`` says when it is used up.
    ``began`` is the number of the event with which the present epoch began.
    ``last_close`` (ms) is when an attempt last closed. ``slots`` were given to steps that have not opened since.
    """

    epoch: int = 1
    began: int = 1
    seq: int = 0
    open: int = 0
    paused: int = 0
    waiting: int = 0
    slots: int = 0
    left_usd: int | None = None
    left_tokens: int | None = None
    left_steps: int | None = None
    active_left: int | None = None
    active_deadline: int | None = None
    last_close: int = 0
    unwinding: Ending | None = None
    reason: str | None = None
    ended: Ending | None = None
    ended_at: int | None = None

    @property
    def sk(self) -> str:
        """The sort key inside the run's partition."""
        return "HEAD"

    @property
    def state(self) -> RunState:
        """The run's state, derived from the counters."""
        if self.ended:
            return self.ended
        if self.open:
            return "running"
        if self.paused:
            return "paused"
        if self.waiting:
            return "waiting_for_human"
        return "running" if self.seq > 1 else "pending"


@frozen_record
class Run(Record):
    """Facts about the run, and its state for lists (a projection that follows the head).

    ``parent`` is ``<run>|<path>`` of the step that a child run answers. ``part`` is the path of the range that a child
    execution of a map or loop stands for, and ``context`` what it sees of its surroundings. ``charged`` is what the
    parent of a child that was resumed has been charged before. ``budget_mode`` "audit" = what does not fit a limit is
    recorded and goes on. ``drawn`` are the dimensions in which the limits were taken out of the tenant's budget and
    have not been given back. ``counted`` is the last event that the history of the workflow knows of.
    ``trigger_id`` and ``occurrence``: the trigger of the file that has started it, and the id of what happened.
    """

    NESTED: ClassVar[dict[str, type]] = {"input": Value, "context": Value, "charged": Amount}

    id: str
    tenant: str
    workflow: str
    version: int
    hash: str
    machine: str
    initiator: str
    trigger: str
    created: int
    input: Value
    limit_usd: int | None = None
    limit_tokens: int | None = None
    limit_steps: int | None = None
    limit_active: int | None = None
    state: RunState = "pending"
    projected: int = 0
    ended: int | None = None
    parent: str | None = None
    part: str | None = None
    context: Value | None = None
    charged: Amount | None = None
    budget_mode: BudgetMode = "enforce"
    drawn: tuple[str, ...] = ()
    counted: int = 0
    trigger_id: str = ""
    occurrence: str = ""
    tenant_workflow: str = ""
    tenant_state: str = ""

    @property
    def sk(self) -> str:
        """The sort key inside the run's partition."""
        return "RUN"


@frozen_record
class Step(Record):
    """One step instance with its ledger entry and its hold.

    ``holder`` is the attempt that may close it while ``open``; its time-out ends at ``until`` (ms), and its process is
    surely dead at ``lease`` (ms).
    ``iteration`` is a loop's current one, ``due`` (ms) when a wait is over, ``child`` the run that a sub-workflow or a
    part is. ``parts`` is how many of them a map is split into, ``first`` the first number of a part's range.
    ``tool`` is what a call of an agent calls, known before it opens.
    ``proposed`` are the arguments that it would call with, where its approval is of others.
    ``probes`` were asked about its call, the last one at ``probed`` (ms).
    ``forged`` = its output was not written by us (``shared.ledger.seal``).
    ``undone`` is the child whose effects have been undone, if it had any.
    ``held`` (ms) is since when circuit breakers have kept it from its call.
    ``slot`` = it was given one of the run's slots, and has not been written since.
    ``active`` (ms) is what its attempts have taken; ``raised`` and ``raised_active`` (ms) are what a person has added
    to its own budget.
    ``given_up`` is who has given up finding out what became of its call: settled as unknown, and asked again when the
    run is resumed.
    ``cascade`` names the last visit of the cascade and ``action`` what it answered, so a repeated visit repeats it.
    """

    NESTED: ClassVar[dict[str, type]] = {
        "hold": Amount,
        "spent": Amount,
        "raised": Amount,
        "failure": Failure,
        "call": Call,
        "arguments": Value,
        "proposed": Value,
        "output": Value,
    }

    path: str
    step: str
    type: str
    status: StepStatus
    epoch: int = 1
    settled: bool = False
    attempt: int = 0
    retries: int = 0
    fence: int = 0
    holder: str | None = None
    closed_by: str | None = None
    lease: int = 0
    until: int = 0
    open: bool = False
    hold: Amount = NOTHING
    spent: Amount = NOTHING
    active: int = 0
    raised: Amount | None = None
    raised_active: int = 0
    failure: Failure | None = None
    reason: str | None = None
    call: Call | None = None
    arguments: Value | None = None
    proposed: Value | None = None
    output: Value | None = None
    route: str | None = None
    model: str | None = None
    by: str | None = None
    started: int | None = None
    opened: int | None = None
    ended: int | None = None
    settled_seq: int | None = None
    iteration: int = 0
    due: int | None = None
    child: str | None = None
    undone: str | None = None
    slot: bool = False
    held: int | None = None
    parts: int = 0
    first: int = 0
    tool: str | None = None
    probes: int = 0
    probed: int | None = None
    given_up: str | None = None
    cascade: str | None = None
    action: dict[str, Any] | None = None
    forged: bool = False

    @property
    def sk(self) -> str:
        """The sort key inside the run's partition."""
        return f"STEP#{self.path}"

    def to_item(self) -> dict[str, Any]:
        """Return plain data without what is at its default: a step is in no index, and nobody looks at its item."""
        return self.brief()

    @property
    def uncertain(self) -> bool:
        """Whether its last call may have had its effect although it failed."""
        return self.called is not None and self.failure is not None and self.failure.uncertain

    @property
    def changes_something(self) -> bool:
        """Whether its call may change something outside."""
        return self.call is not None and self.call.risk != "read"

    @property
    def called(self) -> Call | None:
        """The ledger entry of the call that this epoch has made; one of an earlier epoch has no arguments any more."""
        return self.call if self.arguments is not None else None


@frozen_record
class Park(Record):
    """A registered task token: an await, a paused step, or a run's unwinding.

    ``answer`` is what was sent, once somebody settled it.
    """

    path: str
    kind: Literal["await", "pause", "event", "child", "slot", "unwinding"]
    token: str = ""
    entry: str = ""
    answer: str | None = None

    @property
    def sk(self) -> str:
        """The sort key inside the run's partition."""
        return f"PARK#{self.path}"

    @property
    def epoch(self) -> int:
        """The epoch of the execution that has registered it."""
        return int(self.entry[:6] or 0)


@frozen_record
class Kept(Record):
    """An event from outside (``data`` as canonical JSON), kept until the wait at ``used_by`` uses it."""

    id: str
    name: str
    data: str
    at: int
    used_by: str | None = None

    @property
    def sk(self) -> str:
        """The sort key inside the run's partition."""
        return f"KEPT#{self.id}"


@frozen_record
class Dead(Record):
    """A dead letter: a step that has finally failed, kept until it is redriven, or ``dismissed`` (ms) ``by`` somebody.

    ``attempts`` were made, ``key`` is the idempotency key of its call, ``opened`` (ms) when it failed.
    ``tenant_pending`` puts it among the tenant's dead letters.
    """

    path: str
    workflow: str
    error_class: str
    message: str
    attempts: int
    on_error: str
    opened: int
    key: str | None = None
    tenant_pending: str | None = None
    dismissed: int | None = None
    by: str | None = None

    @property
    def sk(self) -> str:
        """The sort key inside the run's partition."""
        return f"DEAD#{self.path}"


@frozen_record
class Event(Record):
    """One entry of the run's append-only log; ``seq`` counts from 1 without gaps."""

    seq: int
    at: int
    type: str
    path: str | None = None
    attempt: int | None = None
    data: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def sk(self) -> str:
        """The sort key inside the run's partition."""
        return f"EVENT#{self.seq:010d}"


@frozen_record
class Request(Record):
    """An idempotent start request: which run it made, and the digest of what was asked."""

    key: str
    run: str
    digest: str

    @property
    def sk(self) -> str:
        """The sort key inside the tenant's request partition."""
        return "REQUEST"


KINDS: dict[str, type[Record]] = {
    "HEAD": Head,
    "RUN": Run,
    "STEP": Step,
    "GATE": Gate,
    "PARK": Park,
    "KEPT": Kept,
    "DEAD": Dead,
    "EVENT": Event,
    "REQUEST": Request,
}


def revive(item: dict[str, Any]) -> Record:
    """Rebuild whichever record ``item`` is, from its sort key."""
    return KINDS[item["sk"].split("#", 1)[0]].from_item(item)


def run_partition(tenant: str, run: str) -> str:
    """Return the partition key of a run."""
    return f"TENANT#{tenant}#RUN#{run}"


def dead_letters(tenant: str) -> str:
    """Return under what the index ``pending`` holds a tenant's dead letters, beside its approvals."""
    return f"TENANT#{tenant}#DEAD"


def request_partition(tenant: str, key: str) -> str:
    """Return the partition key of an idempotent start request."""
    return f"TENANT#{tenant}#REQUEST#{key}"
