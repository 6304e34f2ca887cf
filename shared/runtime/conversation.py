"""What an agent's model is sent in a turn: rebuilt from the run's records every time, never remembered.

The instruction always, word for word. Of the turns before, the last ``keep_turns`` word for word; of older ones a
digest made by this code, without a model: which calls were proposed and how each ended.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from shared import values
from shared.errors import PolicyViolation
from shared.ledger.records import revive
from shared.manifest import Limits
from shared.ports import Exchange, Proposal, Result
from shared.runtime.offering import could_be, offered
from shared.runtime.outputs import output_of
from shared.runtime.proposals import call_path, too_many
from shared.runtime.scopes import COMPENSATE, is_call, split_turn, turn_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.ledger.records import Step
    from shared.manifest import StepPlan
    from shared.ports import Blobs, Store
    from shared.runtime.journal import Journal, Snapshot

LONGEST_RESULT = 20_000
"""Characters of a call's result that a model reads."""
LONGEST_ERROR = 500
_LONGEST_SHOWN = 200
"""Characters of a call's arguments in the digest."""
Said = dict[str, Any]
"""One turn as it is kept with its request: ``text``, ``calls``, ``results``, ``told``; see ``Exchange``."""


def with_turns(store: Store, journal: Journal, plan: StepPlan, path: str, seen: Snapshot) -> Snapshot:
    """Return the snapshot with what a turn or a call needs besides: the turns and calls before it, the turn it is of.

    Where they share a budget everything is read again, the head first: nothing that another one takes of it meanwhile
    passes unseen. Other steps need nothing besides.
    """
    agent, inside = split_turn(path)
    if not inside or path.endswith(COMPENSATE):
        return seen
    if plan.budget != Limits():
        return journal.read_all()
    if is_call(path):
        turn = path.rpartition("/call[")[0]
        known = seen.step(path)
        return seen if known and known.arguments else seen.with_(journal.read([f"STEP#{turn}"]).records)
    return seen.with_({one.sk: one for one in map(revive, store.query(journal.pk, f"STEP#{agent}/turn["))})


def arguments_of(plan: StepPlan, agent: str, number: int, seen: Snapshot, blobs: Blobs) -> dict[str, Any]:
    """Return what turn ``number`` of the agent at path ``agent`` asks its model, as plain data."""
    record = seen.step(agent)
    instruction: dict[str, Any] = values.load(record.arguments if record else None, blobs)
    before = list(range(1, number))
    keep = plan.spec.get("keep_turns") or len(before)
    older, recent = before[: len(before) - keep] if keep < len(before) else [], before[-keep:] if before else []
    turns = [_said(turn_path(agent, one), seen, blobs) for one in recent]
    lines = [line for one in older if (line := _digest(turn_path(agent, one), one, seen, blobs))]
    if lines:
        digest = "\n".join(["Earlier turns, shortened:", *lines])
        instruction = {**instruction, "prompt": f"{instruction['prompt']}\n\n{digest}"}
    return {**instruction, "turns": [said for said in turns if said]}


def exchanges(said: list[Said]) -> tuple[Exchange, ...]:
    """Return the turns of a request from the data that is kept with it."""
    return tuple(
        Exchange(
            one["text"],
            tuple(Proposal(**call) for call in one["calls"]),
            tuple(Result(**result) for result in one["results"]),
            one["told"],
        )
        for one in said
    )


def _said(turn: str, seen: Snapshot, blobs: Blobs) -> Said | None:
    """Return what one turn came to; None for one that had no reply."""
    reply = reply_of(seen.step(turn), blobs)
    if reply is None:
        return None
    results = [_result(call, seen.step(call_path(turn, n)), blobs) for n, call in enumerate(reply["calls"])]
    return {
        "text": reply["text"],
        "calls": [{"tool": _name(call["tool"]), "arguments": call["arguments"]} for call in reply["calls"]],
        "results": [result._asdict() for result in results],
        "told": too_many(reply["dropped"]) if reply["dropped"] else "",
    }


def reply_of(turn: Step | None, blobs: Blobs) -> dict[str, Any] | None:
    """Return a turn's reply: ``text``, ``calls``, ``dropped``, or ``reply`` for the last one. None = it had none."""
    return output_of(turn, blobs) if turn and turn.status == "completed" else None


def proposed(path: str, tool: str, seen: Snapshot, blobs: Blobs) -> dict[str, Any]:
    """Return the arguments with which a turn has proposed the call at ``path``: its record has none in a later epoch.

    Raises PolicyViolation when no turn has.
    """
    turn, _, number = path.rpartition("/call[")
    calls: list[Any] = (reply_of(seen.step(turn), blobs) or {}).get("calls", [])
    call: dict[str, Any] = dict(enumerate(calls)).get(int(number[:-1])) or {}
    if call.get("tool") != tool or call.get("refused"):
        raise PolicyViolation(f"No turn has proposed {path}, so it has no arguments.")
    return call["arguments"]


def _name(tool: str) -> str:
    """Return how a model knows a tool that it has called. What it has made up is given back if it could be a name."""
    return offered(tool) if could_be(tool) else "unknown_tool"


def _result(call: Mapping[str, Any], record: Step | None, blobs: Blobs) -> Result:
    """Return what a model reads about its call, from the call's own record."""
    if call["refused"]:
        return Result(f"Not called: {call['refused']}.", failed=True)
    if record is not None and record.status == "completed":
        return Result(_cut(json.dumps(output_of(record, blobs), ensure_ascii=False), LONGEST_RESULT))
    if record is None or record.status == "skipped" or record.failure is None:
        return Result("A person has decided that this call does not count.", failed=True)
    failure = record.failure
    return Result(_cut(f"Failed ({failure.error_class}): {failure.message}", LONGEST_ERROR), failed=True)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]} [{len(text) - longest:,} characters were cut off here]"


def _digest(turn: str, number: int, seen: Snapshot, blobs: Blobs) -> str:
    """Return one line about a turn: its calls and how they ended; empty for one that had no reply."""
    reply = reply_of(seen.step(turn), blobs)
    calls = "; ".join(_shown(turn, seen, reply["calls"])) if reply else ""
    return f"turn {number}: {calls or 'no call'}" if reply else ""


def _shown(turn: str, seen: Snapshot, calls: list[Mapping[str, Any]]) -> Iterator[str]:
    for number, call in enumerate(calls):
        record = seen.step(call_path(turn, number))
        arguments = json.dumps(call["arguments"], ensure_ascii=False)
        shown = arguments if len(arguments) <= _LONGEST_SHOWN else f"{arguments[:_LONGEST_SHOWN]}…"
        yield f"{_name(call['tool'])}({shown}) {record.status if record else 'refused'}"
