"""An agent with tools, over fakes: its file, its far side, and models that say what they are told to say."""

from __future__ import annotations

import json

from machine import World

from shared.compiler import compile_loaded
from shared.definition.loader import load_text
from shared.ports import ModelReply, Proposal, Usage
from shared.testing import FakeModels, FakeTools
from shared.tools.registry import Tool

FILE = """
workflow: desk
input: {type: object, required: [question], properties: {question: {type: string}}}
budget: {usd: 5, tokens: 400000, steps: 60, active_time: 1h}
on_error: ON_ERROR
steps:
  research:
    type: agent
    model: [claude-haiku-4-5, claude-sonnet-4-5]
    system: You are careful.
    prompt: "Answer: ${ input.question }"
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
    MORE
  after: {type: transform, needs: [research], set: {said: "${ steps.research.output.answer }"}}
"""


def look_up(customer: str, limit: int = 3) -> dict[str, str]:
    """Look a customer up."""
    return {customer: str(limit)}


def reserve(item: str) -> dict[str, str]:
    """Reserve an item."""
    return {"document": item}


def free(document: str, item: str, key: str) -> dict[str, str]:
    return {"document": document, "item": item, "key": key}


def find(key: str) -> dict[str, str]:
    return {"document": key}


def count(key: str) -> int:
    return len(key)


TOOLS = {one.__name__: Tool(one.__name__, one) for one in (look_up, reserve, free)}


def probe(key: str) -> dict[str, object]:
    return {"count": 1, "document": key}


TOOLS["find"] = Tool("find", probe)


def compiled(*, on_error="pause", more="", file=FILE):
    text = file.replace("ON_ERROR", on_error).replace("MORE", more)
    return compile_loaded(load_text(text, "desk.yaml", None), tools=TOOLS, models=frozenset(_MODELS))


_MODELS = {"claude-haiku-4-5", "claude-sonnet-4-5"}


def calls(*proposed, text=""):
    """Return a reply that proposes calls: pairs of a tool and its arguments."""
    return ModelReply(text, Usage(), "tool_use", tuple(Proposal(*one) for one in proposed))


def says(answer):
    return json.dumps({"answer": answer})
