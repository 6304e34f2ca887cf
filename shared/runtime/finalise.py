"""Executions that ended without the run's knowledge: stopped from outside, timed out, dead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from shared.errors import Conflict, InvalidRequest
from shared.ports import Execution
from shared.runtime.children import answer_parent
from shared.runtime.ending import request, start_unwinding
from shared.runtime.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ledger.records import Ending
    from shared.runtime.host import Host


def finalise(host: Host, detail: Mapping[str, Any], unwind_machine: str) -> str:
    """Compare an execution's end with its run's; unwind a run that does not know. Returns what was done.

    ``detail`` is that of a "Step Functions Execution Status Change" event; it may come twice, late, or not at all.
    Raises InvalidRequest for an execution that is not ours.
    """
    run = _run_of(detail)
    journal = Journal(host.store, host.clock, run["tenant"], run["id"])
    seen = journal.read(["RUN"])
    if seen.head.ended or seen.head.epoch != int(run["epoch"]):
        answer_parent(host, run["tenant"], run["id"])
        return "known"
    if detail.get("stateMachineArn") == unwind_machine:
        start_unwinding(host, seen, unwind_machine, dead=str(detail["name"]))
        return "unwound again"
    cause = detail.get("cause") or detail.get("error") or ""
    return give_up(host, journal, seen.head.epoch, Execution(detail["status"].lower(), cause), unwind_machine)


def give_up(host: Host, journal: Journal, epoch: int, execution: Execution, unwind_machine: str) -> str:
    """Stop a run whose execution of ``epoch`` has ended without it. Returns what was done."""
    ending: Ending = "timed_out" if execution.status == "timed_out" else "stopped"
    reason = f"the execution ended as {execution.status.upper()}: {execution.cause or 'no cause given'}"
    try:
        request(host, journal, ending, reason, unwind_machine, epoch=epoch)
    except Conflict:
        return "known"
    return ending


def _run_of(detail: Mapping[str, Any]) -> dict[str, Any]:
    try:
        run = json.loads(detail["input"])["run"]
        return {name: run[name] for name in ("id", "tenant", "epoch")}
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(f"Execution {detail.get('executionArn')} has no run in its input.") from error
