"""A gate that reminds and escalates, in a world of its own; the sweeper and who writes letters around it."""

from __future__ import annotations

from dataclasses import replace

from bodies import manifest
from machine import FINANCE, LEADS, UNWIND, World

from shared.compiler import compile_manifest
from shared.events.rules import announcement
from shared.manifest import Edge, Limits, StepPlan
from shared.runtime.gates import Word, decide_gate
from shared.runtime.mailing import ask_again
from shared.runtime.mending import mend
from shared.testing import FakeModels, FakeTools

FATIMA, BEN = (person.email for person in FINANCE)
(LENA,) = (person.email for person in LEADS)
HOUR = 3600
TIERS = {"remind_after": 4.0 * HOUR, "escalate": [{"after": 8.0 * HOUR, "to": ["finance_lead"]}]}
EDIT = {"type": "object", "properties": {"sum": {"type": "integer"}}}


def asking(do=None, *, timeout=24.0 * HOUR, people=None, **gate):
    """Return a world whose gate approves a payment, waiting for people; and its execution."""
    spec = {"approves": "pay", "approvers": ["finance"], "on_expiry": "reject", "subject": "Pay?", **TIERS, **gate}
    asked = StepPlan("g", "human_gate", (), dependents=("pay",), timeout=timeout, on_error="fail", spec=spec)
    call = {"tool": "pay", "with": {"sum": 5}, "compensate": None, "reconcile": None}
    pay = StepPlan("pay", "tool", (Edge("g"),), risk="irreversible", approved_by="g", spec=call)
    made = replace(manifest(asked, pay), budget=Limits(usd=10**9, tokens=1000, steps=20, active_time=600.0))
    tools = FakeTools({"pay": do or (lambda given, _: given["sum"])})
    w = World(compile_manifest(made), FakeModels(lambda _: ""), tools)
    if people:
        object.__setattr__(w.gates, "approvers", people)
    return w, w.start({})


def sweep(w):
    """Visit the run as the sweeper does, and let the stream announce what it wrote. Returns what was found and done."""
    before = w.head.seq
    found = [(one.what, one.done) for one in mend(w.steps, w.tenant, w.run, UNWIND, w.bus) if one.what in WATCHED]
    hear(w, before)
    return found


WATCHED = {"gate_due", "letters_unsent"}


def hear(w, before):
    """Let the function that writes letters hear of the events after number ``before``, and of the bus."""
    fresh = [{**event.to_item(), "pk": w.journal.pk, "sk": event.sk} for event in w.journal.events(after=before)]
    for one in (*filter(None, map(announcement, fresh)), *w.bus.announced):
        if one.detail.get("again"):
            ask_again(w.gates, one.detail)
    w.bus.announced.clear()


def passes(w, hours):
    w.clock.sleep(hours * HOUR)
    return sweep(w)


def letters(w):
    return [(message.to, message.subject.partition(":")[0]) for message in w.mail.messages]


def says(w, by, decision="approved", **more):
    known = w.records.gate("g")
    return decide_gate(
        w.steps, w.journal, "g", Word(decision, by, **{"digest": known.digest, "request": known.id} | more)
    )


def told(w, *kinds):
    return [event for event in w.journal.events() if event.type in kinds]


ASKED = [(BEN, "asked"), (FATIMA, "asked")]
REMINDED = [(BEN, "reminder"), (FATIMA, "reminder")]
LEAD = [(LENA, "escalation")]
