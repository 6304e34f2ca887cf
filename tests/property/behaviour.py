"""What the fake toolbox and the people do: pure functions of a seed, a path and an attempt, the same on every engine.

The seed of a tool stands in its arguments, so that a tool behaves alike wherever it runs.
"""

from __future__ import annotations

import json
import re
from random import Random
from typing import TYPE_CHECKING, Any

from shared.errors import failure_named
from shared.ports import ModelReply, Proposal, Usage

if TYPE_CHECKING:
    from shared.ports import ModelRequest

CLASSES = ("transient", "transient", "rate_limit", "timeout", "invalid_output", "permanent", "permanent", "policy")
ALWAYS = 99
SOONEST = 86_400.0
"""Seconds; who is given more time to decide, decides."""


def dice(*parts: Any) -> Random:
    """Return a source of randomness that is the same for the same parts."""
    return Random("|".join(map(str, parts)))  # noqa: S311 - reproducible, no secret


def troubles(seed: int, path: str, chance: float) -> tuple[str, int]:
    """Return the class of failure of the step at ``path``, and how many attempts fail with it."""
    rolled = dice(seed, path)
    if rolled.random() >= chance:
        return "", 0
    return rolled.choice(CLASSES), rolled.choice((1, 1, 2, ALWAYS))


def result(seed: int, path: str) -> dict[str, Any]:
    """Return an output that has every field which a condition may look at."""
    rolled = dice("result", seed, path)
    numbers = [rolled.randrange(10) for _ in range(rolled.randrange(4))]
    value = rolled.randrange(10)
    return {"v": value, "list": numbers, "completed": value % 3, "iterations": value % 4, "decision": "given"}


def behave(arguments: dict[str, Any], call: Any) -> dict[str, Any]:
    """Be the tool: fail as the seed says, else return its output with what it was given."""
    kind, times = troubles(arguments["seed"], call.path, arguments["chance"])
    if call.attempt <= times:
        failure = failure_named(kind, f"{kind} at {call.path}, attempt {call.attempt}")
        failure.uncertain = arguments.get("doubtful", False)
        raise failure
    return result(arguments["seed"], call.path) | {"from": arguments.get("from")}


def find(arguments: dict[str, Any], call: Any) -> dict[str, Any]:
    """Be the tool that looks up what became of a call: it has happened, it has not, or nobody can tell."""
    rolled = dice("found", arguments["seed"], call.path)
    if rolled.random() < 0.2:
        raise failure_named("permanent", f"nobody knows what became of {call.path}")
    return result(arguments["seed"], call.path) | {"count": rolled.randrange(2)}


TOOLS = {"behave": behave, "find": find}


def reply(request: ModelRequest) -> str | ModelReply:
    """Be the model: which one is asked, and what it is asked, decides whether it fails, errs, or answers well."""
    key, chance, *_ = request.prompt.split(maxsplit=2)
    rolled = dice("model", key, request.prompt, request.model, *(["turn"] if request.turns else []))
    if rolled.random() < float(chance):
        kind = rolled.choice((*CLASSES, "invalid_output", "no json", "no object"))
        if kind not in {"no json", "no object"}:
            raise failure_named(kind, f"{kind} of {request.model}")
        return "I would rather not." if kind == "no json" else "[1, 2]"
    if request.tools and rolled.random() < 0.6:
        return proposals(int(key), float(chance), rolled)
    routes = re.findall(r"^- (\w+):", request.prompt, re.MULTILINE)
    if routes:
        return rolled.choice([*routes, f" {routes[0]}\n", "somewhere else"])
    return json.dumps(result(rolled.randrange(10**6), key))


def proposals(seed: int, chance: float, rolled: Random) -> ModelReply:
    """Propose some calls of the tool, and perhaps one of a tool that there is not."""
    calls = [Proposal("behave", {"seed": seed, "chance": chance})] * rolled.randint(1, 3)
    return ModelReply("", Usage(), "tool_use", (*calls, *rolled.choice(((), (Proposal("nothing", {}),)))))


def comes(seed: int, path: str) -> str:
    """Return when the event for the wait at ``path`` comes: before it, once it waits, twice, too late, or after others.

    What comes early comes twice as well.
    """
    return dice("event", seed, path).choice(("early", "late", "twice", "never", "others"))


def undecided(seed: int, path: str, timeout: float, nth: int) -> bool:
    """Tell whether nobody decides the gate that opens for the ``nth`` time in time; only short ones are let pass."""
    return timeout <= SOONEST and nth == 1 and dice("expiry", seed, path).random() < 0.8


def word_of(seed: int, path: str, nth: int) -> str:
    """Return a person's decision on the gate that opens for the ``nth`` time (from 1)."""
    return "approved" if nth > 1 or dice("gate", seed, path).random() < 0.7 else "rejected"


def order_of(seed: int, path: str, nth: int, *, retryable: bool) -> str:
    """Return what a person says of the step that pauses for the ``nth`` time (from 1)."""
    choices = ["accept", "accept", "skip", *(["retry"] * 3 if retryable and nth == 1 else ())]
    rolled = dice("pause", seed, path, nth)
    return "fail" if rolled.random() < 0.04 else rolled.choice(choices)
