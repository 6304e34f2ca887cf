"""The step protocol's model and the product, step by step: every trace of the one is a trace of the other.

Each operation of a model's actor is done by the product's own decisions (open, close, a person's word) on a store in
memory, and what is then known is compared. Where the model and the product's records are both as they were before,
all that follows has been compared already: it is counted, and not played again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shared.ledger.records import Amount, Call, Gate, Head, Run, Step
from shared.manifest import YEAR, StepPlan
from shared.ports import Key, Write
from shared.runtime.denials import call_key
from shared.runtime.gates import Word, decide_word
from shared.runtime.journal import Journal
from shared.runtime.parking import Order, decide_resume
from shared.runtime.protocol import Ask, Done, Held, Opened, Outcome, Refused, close_attempt, open_attempt
from shared.runtime.task import LEASE_MARGIN, Task
from shared.testing import FrozenClock, MemoryStore
from shared.values import Value
from tests.model.explorer import Exploration, State
from tests.model.steps import Sound
from tests.model.steps import Task as EngineTask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.ports import Item
    from shared.runtime.protocol import Opening
    from tests.model.explorer import Actor, Move
    from tests.model.steps import World

PATH, GATE = "a", "g"
NOTED = {"step_opened", "step_unknown", "step_completed"}
"""The events that the model counts too."""
VALUE = Value("0" * 64, 2, text="{}")


class Steps(Sound):
    """The protocol of one step, without an await."""

    def start(self):
        world, actors = super().start()
        return world._replace(tasks=(*world.tasks[:-1], EngineTask(status="done"))), actors[:-1]

    def wake(self):
        yield from ()


class Repeating(MemoryStore):
    """A store whose next answer is lost, once it is told so: the client library then meets its own write."""

    lost = False

    def commit(self, writes: Sequence[Write]) -> None:
        super().commit(writes)
        if self.lost:
            self.lost = False
            super().commit(writes)


@dataclass(frozen=True)
class Product:
    """What there is on our side: the run's records, what each attempt has opened, the keys that the far side saw."""

    items: Mapping[Key, Item]
    opened: Mapping[int, Step]
    keys: tuple[str, ...] = ()

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """Everything that can decide what follows."""
        return (repr(self.items), repr(self.opened), self.keys)


class Replay:
    """Plays a model's moves on the product."""

    def __init__(self, model: Steps) -> None:
        self.model, self.store, self.clock = model, Repeating(), FrozenClock()
        self.journal = Journal(self.store, self.clock, "acme", "r")
        self.heard = dict[Any, dict[str, Any]]()
        approved = GATE if model.risk == "irreversible" else None
        self.plan = StepPlan(PATH, "tool", (), risk=model.risk, timeout=1.0, approved_by=approved)

    def first(self) -> Product:
        """Return the records of a run of which nothing has happened yet but the approval."""
        facts = {"id": "r", "tenant": "acme", "workflow": "w", "version": 1, "hash": "", "machine": "m"}
        run = Run(**facts, initiator="alex", trigger="api", created=0, input=VALUE)
        gate = Gate(
            id="1", path=GATE, step=GATE, status="approved", approves=PATH, digest=VALUE.digest, timeout=YEAR * 1000
        )
        decided = Step(path=GATE, step=GATE, type="human_gate", status="completed", settled=True)
        records = (Head(left_steps=self.model.limit), run, gate, decided)
        self.store.items = {}
        self.store.commit([Write(Key(self.journal.pk, one.sk), one.to_item(), None) for one in records])
        return Product(dict(self.store.items), {})

    def play(self, product: Product, world: World, move: Move) -> Product:
        """Do what the move does, in the world as it was before it; the answer must be the model's."""
        kind, *about = move.act or ("",)
        if not hasattr(self, f"_{kind}"):
            return product
        self.store.items = dict(product.items)
        after = getattr(self, f"_{kind}")(product, world, *about)
        return replace(after, items=dict(self.store.items))

    def _applied(self, product: Product, world: World, actor: Actor, operation: Any, answer: Any) -> Product:
        return getattr(self, operation[0].replace(" ", "_"))(product, world, actor.attempt, answer)

    def _repeated(self, product: Product, world: World, actor: Actor, operation: Any, answer: Any) -> Product:
        self.store.lost = True
        after = self._applied(product, world, actor, operation, answer)
        assert not self.store.lost, "the product has nothing to write where the model has"
        return after

    def open_step(self, product: Product, world: World, attempt: int, answer: Any) -> Product:
        seen = self.journal.read_all()
        opening, _ = self.journal.transact(seen, lambda again: open_attempt(self._ask(again, world, attempt), again))
        assert told(opening) == answer, opening
        if isinstance(opening, Opened):
            return replace(product, opened={**product.opened, attempt: opening.step})
        return product

    def _ask(self, seen: Any, world: World, attempt: int) -> Ask:
        known = seen.step(PATH)
        now = known.lease + (1 if world.steps[0].over else -1) if known and known.open else 0
        task = Task("run", PATH, "", "r", "acme", "w", 1, 1, "", str(attempt), attempt * 10 * LEASE_MARGIN)
        key = call_key(seen.run, PATH, "do", VALUE.digest, 1)
        call = known.call if known and known.call else Call("do", self.plan.risk, 1, VALUE.digest, key=key, at=0)
        return Ask(task, self.plan, PATH, Amount(steps=1), VALUE, now, call=call)

    def call(self, product: Product, _world: World, attempt: int, answer: Any) -> Product:
        call = product.opened[attempt].call
        assert call
        return product if answer == "lease over" else replace(product, keys=(*product.keys, call.key))

    def close(self, product: Product, _world: World, attempt: int, answer: Any) -> Product:
        opened, outcome = product.opened[attempt], Outcome(used=Amount(steps=1), output=VALUE)
        decide = self.closing(opened, outcome)
        closed, _ = self.journal.transact(self.journal.read_all(), decide)
        assert ("refused" if closed is None else "closed") == answer
        return product

    def closing(self, opened: Step, outcome: Outcome) -> Any:
        """Return the decision that closes."""
        return lambda seen: close_attempt(opened, outcome, 0, seen)

    def _person(self, product: Product, world: World) -> Product:
        """Say what is true: that it happened, or that it did not and is approved once more."""
        order = Order("accept" if world.steps[0].effects else "did_not_happen", "ops")
        accepted = Outcome(output=VALUE, by="person")
        self.journal.transact(self.journal.read_all(), lambda seen: decide_resume(seen, PATH, order, accepted, 0))
        if order.action == "did_not_happen":
            word = Word("approved", "fatima")
            self.journal.transact(self.journal.read_all(), lambda seen: decide_word(seen, GATE, word, 1))
        return product

    def known(self, product: Product) -> dict[str, Any]:
        """Return what the product knows, in the model's words."""
        if product.identity not in self.heard:
            self.heard[product.identity] = self._known(product)
        return self.heard[product.identity]

    def _known(self, product: Product) -> dict[str, Any]:
        self.store.items = dict(product.items)
        seen, events = self.journal.read_all(), self.journal.events()
        head, step = seen.head, seen.step(PATH) or Step(path=PATH, step=PATH, type="tool", status="ready")
        assert [event.seq for event in events] == list(range(1, head.seq + 1))
        assert head.paused == (step.status == "unknown")
        status = "intent" if step.open else step.status if step.status in {"completed", "unknown"} else "new"
        seen_once = self.model.risk == "reversible"
        return {
            "status": status,
            "fence": step.fence,
            "holder": int(step.holder or 0),
            "closed by": int(step.closed_by or 0) if step.by == "step" else 0,
            "effects": len(set(product.keys)) if seen_once else len(product.keys),
            "reserved": step.hold.steps,
            "spent": step.spent.steps,
            "left": head.left_steps,
            "open": head.open,
            "events": sum(event.type in NOTED and event.data.get("by") != "person" for event in events),
        }


def told(opening: Opening) -> Any:
    """Return an opening as the model names it."""
    if isinstance(opening, Opened):
        return opening.step.fence
    kinds = {Done: "completed", Held: "later", Refused: "paused"}
    return kinds.get(type(opening), "unknown")


def expected(world: World) -> dict[str, Any]:
    """Return what the model knows."""
    step = world.steps[0]
    return {
        "status": step.status,
        "fence": step.fence,
        "holder": step.holder if step.status == "intent" else 0,
        "closed by": step.closed_by,
        "effects": step.effects,
        "reserved": world.reserved,
        "spent": world.spent,
        "left": world.limit - world.spent - world.reserved,
        "open": world.open,
        "events": world.seq,
    }


def traces(replay: Replay, faults: int) -> int:
    """Compare the product with every maximal trace of the model; return how many there are."""
    world, actors = replay.model.start()
    exploration, compared = Exploration(replay.model), dict[Any, int]()

    def follow(state: State, product: Product) -> int:
        key = (state, product.identity)
        if key not in compared:
            moves = list(exploration.moves(state))
            compared[key] = sum(follow(move.state, after(state, product, move)) for move in moves) or 1
        return compared[key]

    def after(state: State, product: Product, move: Move) -> Product:
        found = replay.play(product, state.world, move)
        assert replay.known(found) == expected(move.state.world), move.label
        return found

    return follow(State(world, actors, faults), replay.first())
