"""A gate: the task that opens it, approvers who disagree, its time-out, its next tier, and a cancel of the run.

``SoundGate`` keeps state and token in one item, changes it by one conditional write from ``open``, and looks again
after registering; its escalation, after which the lead may decide too, is such a write. ``NaiveGate`` reads, decides
and writes as separate operations, and parks without looking. With a quorum, approvals stand in the same item until they
are enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.model.explorer import Actor, Model, Move, State

if TYPE_CHECKING:
    from collections.abc import Iterator

APPROVER, SECOND, REJECTER, CANCEL = "approver", "second approver", "rejecter", "cancel"
LEAD, ESCALATION = "lead", "escalation"
WANTED = {APPROVER: "approved", SECOND: "approved", LEAD: "approved", REJECTER: "rejected"}
PROGRAMS = {CANCEL: "cancel", ESCALATION: "escalate"}


class World(NamedTuple):
    """The gate's item, the head's mark, and the engine's token task. ``outcome`` is what the engine follows."""

    todo: frozenset[str]
    again: frozenset[str] = frozenset()
    decision: str = ""
    by: str = ""
    token: int = 0
    decisions: int = 0
    unwinding: bool = False
    late: bool = False
    announced: bool = False
    attempt: int = 1
    status: str = "running"
    outcome: str = ""
    expired: bool = False
    votes: frozenset[str] = frozenset()
    tier: int = 1
    decided_in: int = 0


class Gate(Model):
    """Engine, people and invariants; subclasses say how opening and deciding are written."""

    def __init__(self, people: frozenset[str], quorum: int = 1) -> None:
        self.people, self.quorum = people, quorum
        self.programs = {
            "open": self.run_open,
            "decide": self.run_decide,
            "expire": self.run_expire,
            "cancel": self.run_cancel,
            "escalate": self.run_escalate,
        }

    def start(self):
        return World(self.people), (Actor("open", "gate", 1),)

    def run_open(self, actor: Actor):
        raise NotImplementedError

    def run_decide(self, actor: Actor):
        raise NotImplementedError

    def run_expire(self, actor: Actor):
        """The token has timed out and the cascade runs: it follows a recorded decision, else records the expiry."""
        yield ("decide", "expired")
        decision, _ = yield ("read",)
        return decision

    def run_cancel(self, actor: Actor):
        yield ("unwind",)
        yield ("decide", "cancelled")
        decision, token = yield ("read",)
        if decision not in {"", "open"}:
            yield ("send", token, decision)
        return ""

    def run_escalate(self, actor: Actor):
        """The time of the first tier is over; who died on the way comes again with the next sweep."""
        yield ("escalate",)
        return ""

    # Operations

    def open(self, world: World, actor: Actor):
        if world.token > actor.attempt:
            return world, "newer"
        if world.decision:
            return world._replace(token=actor.attempt), "registered"
        if world.unwinding:
            return world._replace(decision="cancelled", decisions=1, token=actor.attempt), "registered"
        return world._replace(decision="open", token=actor.attempt), "registered"

    def announce(self, world: World, actor: Actor):
        return world._replace(announced=True), None

    def decide(self, world: World, actor: Actor, decision: str):
        if world.decision != "open":
            won = (world.decision, world.by) == (decision, actor.task)
            return world, "won" if won else "lost"
        if world.unwinding and decision not in {"cancelled", "expired"}:
            return world, "lost"
        if decision == "approved":
            world = world._replace(votes=world.votes | {actor.task})
            if len(world.votes) < self.quorum:
                return world, "counted"
        return self.write(world, actor, decision)

    def escalate(self, world: World, actor: Actor):
        due = world.decision == "open" and not world.unwinding
        return (world._replace(tier=2) if due else world), None

    def put(self, world: World, actor: Actor, votes: frozenset[str]):
        return world._replace(tier=2, decision="open", votes=votes), None

    def count(self, world: World, actor: Actor, votes: frozenset[str]):
        return world._replace(votes=votes), None

    def write(self, world: World, actor: Actor, decision: str):
        late = world.late or (world.unwinding and decision == "approved")
        decided = world._replace(
            decision=decision, by=actor.task, decisions=world.decisions + 1, late=late, decided_in=world.tier
        )
        return decided, "won"

    def read(self, world: World, actor: Actor):
        return world, (world.decision, world.token)

    def read_votes(self, world: World, actor: Actor):
        return world, world.votes

    def unwind(self, world: World, actor: Actor):
        return world._replace(unwinding=True), None

    def send(self, world: World, actor: Actor, token: int, decision: str):
        valid = world.attempt == token and world.status in {"running", "parked"}
        return (world._replace(status="done", outcome=decision) if valid else world), None

    # Engine and people

    def returned(self, world: World, actor: Actor, value: str):
        if actor.program == "expire":
            return world._replace(status="done", outcome=value)
        valid = actor.program == "open" and actor.attempt == world.attempt and world.status == "running"
        return world._replace(status="parked") if valid else world

    def died(self, world: World, actor: Actor):
        if actor.program in {"decide", "cancel", "escalate"}:
            return world._replace(again=world.again | {actor.task})  # who saw an error tries again
        if actor.program == "expire":
            return world._replace(status="cascade")
        valid = actor.attempt == world.attempt and world.status == "running"
        return world._replace(status="again") if valid else world

    def environment(self, state: State) -> Iterator[Move]:
        world = state.world
        if world.status == "again" or (world.status == "running" and state.faults):
            yield self.delivered_again(state, given_up=world.status == "running")
        if world.status == "cascade" or (world.status == "parked" and not world.expired):
            begun = world._replace(status="expiring", expired=True)
            actors = (*state.actors, Actor("expire", "expiry", 1))
            yield Move(
                "the token times out", state._replace(world=begun, actors=actors), optional=world.status == "parked"
            )
        for who in sorted(world.todo | world.again):
            # The next tier's people may decide when it has begun, and only then.
            if who == CANCEL or (world.announced and (who != LEAD or world.tier > 1)):
                yield self.acts(state, who)

    def delivered_again(self, state: State, *, given_up: bool) -> Move:
        world = state.world._replace(attempt=state.world.attempt + 1, status="running")
        actors = (*state.actors, Actor("open", "gate", world.attempt))
        return Move("the gate is delivered again", State(world, actors, state.faults - given_up), optional=given_up)

    def acts(self, state: State, who: str) -> Move:
        world = state.world
        optional = who not in world.again  # nobody must decide, but who began to, goes on until there is an answer
        world = world._replace(todo=world.todo - {who}, again=world.again - {who})
        actor = Actor(PROGRAMS.get(who, "decide"), who, 1)
        return Move(f"{who} acts", state._replace(world=world, actors=(*state.actors, actor)), optional=optional)

    def always(self, world: World) -> Iterator[str]:
        if world.decisions > 1:
            yield "decision overwritten"
        if world.late:
            yield "approved after cancel"
        if world.decision == "approved" and len(world.votes) < self.quorum:
            yield "approved by too few"
        if world.decided_in and world.tier != world.decided_in:
            yield "escalated after the decision"

    def at_rest(self, world: World) -> Iterator[str]:
        decided = world.decision not in {"", "open"}
        if decided and world.status == "parked":
            yield "decided but asleep"
        if world.status != "done" and world.unwinding:
            yield "cancelled but asleep"
        if decided and world.status == "done" and world.outcome != world.decision:
            yield "the engine follows another outcome than the record"
        said = {who for who in self.people - world.todo if WANTED.get(who) == "approved"}
        if world.decision == "open" and len(said) >= self.quorum:
            yield "an approval is not counted"


class SoundGate(Gate):
    """One conditional write decides; whoever registers looks again; whoever decides sends again."""

    def run_open(self, actor: Actor):
        if (yield ("open",)) == "newer":
            return ""
        decision, _ = yield ("read",)
        if decision not in {"", "open"}:
            yield ("send", actor.attempt, decision)
        yield ("announce",)
        return ""

    def run_decide(self, actor: Actor):
        yield ("decide", WANTED[actor.task])
        decision, token = yield ("read",)
        if decision not in {"", "open"}:
            yield ("send", token, decision)
        return ""


class NaiveGate(Gate):
    """Look, then write; park without looking again."""

    def run_open(self, actor: Actor):
        if (yield ("open",)) != "newer":
            yield ("announce",)
        return ""

    def run_decide(self, actor: Actor):
        decision, token = yield ("read",)
        if decision == "open" and WANTED[actor.task] == "approved":
            votes = (yield ("read_votes",)) | {actor.task}
            yield ("count", votes)
            decision = "open" if len(votes) >= self.quorum else "counted"
        if decision == "open":
            yield ("write", WANTED[actor.task])
            yield ("send", token, WANTED[actor.task])
        return ""

    def run_escalate(self, actor: Actor):
        decision, _ = yield ("read",)
        votes = yield ("read_votes",)
        if decision == "open":
            yield ("put", votes)
        return ""
