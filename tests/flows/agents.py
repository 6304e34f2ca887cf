"""An agent with tools, over fakes: its file, its far side, and models that say what they are told to say."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from machine import UNWIND, World

from shared.compiler import compile_loaded
from shared.definition.loader import load_text
from shared.errors import StepTimeout
from shared.ports import ModelReply, Proposal, Usage
from shared.runtime.parking import resume_step
from shared.runtime.task import run_task
from shared.testing import FakeModels, FakeTools
from shared.tools.registry import Tool

FILE = """
workflow: desk
input: {type: object, required: [document], properties: {document: {type: string}}}
budget: {usd: 5, tokens: 400000, steps: 60, active_time: 1h}
on_error: ON_ERROR
steps:
  research:
    type: agent
    model: [claude-haiku-4-5, claude-sonnet-4-5]
    system: You are careful.
    prompt: "Answer: ${ input.document }"
    max_turns: 4
    output: {type: object, required: [answer], properties: {answer: {type: string}}, additionalProperties: false}
    tools:
      - {tool: look_up, risk: read, description: Finds a customer., timeout: 10s}
      - tool: reserve
        risk: reversible
        timeout: 20s
        compensate:
          tool: free
          with: {document: "${ result.document }", item: "${ call.arguments.item }", key: "${ call.idempotency_key }"}
        reconcile: {tool: find, with: {key: "${ call.idempotency_key }"}, found: result.count > 0}
    # MORE
  after: {type: transform, needs: [research], set: {said: "${ steps.research.output.answer }"}}
"""


def look_up(customer: str, limit: int = 3) -> dict[str, Any]:
    """Look a customer up."""
    return {customer: limit}


def reserve(item: str) -> dict[str, Any]:
    """Reserve an item."""
    return {"document": item}


def free(document: str, item: str, key: str) -> dict[str, Any]:
    """Give an item back."""
    return {"document": document, "item": item, "key": key}


def find(key: str) -> dict[str, Any]:
    """Find a reservation."""
    return {"count": 0, "document": key}


TOOLS = {one.__name__: Tool(one.__name__, one) for one in (look_up, reserve, free, find)}
MODELS = frozenset({"claude-haiku-4-5", "claude-sonnet-4-5"})


@cache
def compiled(*, on_error="pause", more="", file=FILE):
    text = file.replace("ON_ERROR", on_error).replace("# MORE", more)
    return compile_loaded(load_text(text, "desk.yaml", None), tools=TOOLS, models=MODELS)


class Shop:
    """The far side: customers, and reservations by the key they were made with."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.freed: list[dict[str, Any]] = []
        self.late = 0

    def look_up(self, arguments: dict[str, Any], _: Any) -> Any:
        return {"found": arguments["customer"]}

    def reserve(self, arguments: dict[str, Any], call: Any) -> Any:
        self.kept.setdefault(call.idempotency_key, arguments["item"])
        self.answer()
        return {"document": f"D-{call.idempotency_key[:6]}"}

    def answer(self) -> None:
        """Answer in time, unless it is ``late`` so many times."""
        self.late -= 1
        if self.late >= 0:
            raise StepTimeout("late")

    def free(self, arguments: dict[str, Any], _: Any) -> Any:
        self.kept.pop(arguments["key"], None)
        self.freed.append(arguments)
        return {}

    def find(self, arguments: dict[str, Any], _: Any) -> Any:
        self.answer()
        there = arguments["key"] in self.kept
        return {"count": int(there), "document": f"D-{arguments['key'][:6]}"}

    def mine(self, step: Any) -> Any:
        """Say what a person finds who looks for a step's call."""
        key = step.call.key if step.call else ""
        return {"document": f"D-{key[:6]}"} if key in self.kept else None

    @property
    def live(self) -> int:
        return len(self.kept)

    def tools(self, **others: Any) -> FakeTools:
        return FakeTools({name: getattr(self, name) for name in TOOLS} | others)


def desk(*script, shop=None, unit=None, **others):
    """Return the world of a desk whose model says what the script says, one entry a turn; the last one again."""
    models = FakeModels(lambda request: _said(script[min(_before(request), len(script) - 1)], request))
    return World(unit or compiled(), models, (shop or Shop()).tools(**others))


def _before(request):
    """Return how many turns there were before, word for word or shortened."""
    return len(request.turns) + request.prompt.count("\nturn ")


def _said(entry, request):
    return entry(request) if callable(entry) else entry


def asked(world):
    """Start the world's run."""
    return world.start({"document": "who?"})


def calls(*proposed, text=""):
    """Return a reply that proposes calls: pairs of a tool and its arguments."""
    return ModelReply(text, Usage(), "tool_use", tuple(Proposal(*one) for one in proposed))


def look(customer="Ann", **more):
    return "look_up", {"customer": customer, **more}


def book(item="bike"):
    return "reserve", {"item": item}


def says(answer="done"):
    return json.dumps({"answer": answer})


def resume(world, execution, path, order):
    """Give a person's word on a step instance, and go on."""
    run = world.records.run
    resume_step(world.steps, run_task(run, world.head.epoch, path), order, UNWIND)
    return execution.go()


def events(world, kind):
    return [(event.path, event.data) for event in world.journal.events() if event.type == kind]


def status(world, path):
    step = world.records.step(path)
    return step.status if step else None


def value(world, path):
    output = world.records.step(path).output
    return json.loads(output.text if output.text is not None else world.blobs.get(output.blob))
