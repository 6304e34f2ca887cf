"""What a step calls: a model (agent, router that asks one) or a tool. Prepared before open, performed after it."""

from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shared import values
from shared.budget import rules
from shared.errors import (
    ApprovalMismatch,
    InvalidOutput,
    PolicyViolation,
    StepFailure,
    TransientFailure,
)
from shared.frozen import frozen
from shared.ledger.records import Amount, Call, Step
from shared.ports import ModelRequest
from shared.runtime import probing, secrets
from shared.runtime.conversation import arguments_of, exchanges, proposed
from shared.runtime.denials import call_key
from shared.runtime.host import plan_of
from shared.runtime.offering import called, described, offers, pinned
from shared.runtime.outputs import checked, cleaned, output_of, route_in
from shared.runtime.proposals import judge, notes, ready
from shared.runtime.protocol import Ask, Opened, Outcome, new_step
from shared.runtime.scopes import COMPENSATE, split_turn, turn_number
from shared.runtime.sharing import with_sharers
from shared.tools.mcp_tools import is_remote
from shared.tools.registry import Call as ToolContext

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from shared.ledger.records import Run
    from shared.manifest import StepPlan
    from shared.ports import ModelReply, Usage
    from shared.runtime.host import StepHost
    from shared.runtime.journal import Snapshot
    from shared.runtime.scope import Scope
    from shared.runtime.task import Task
    from shared.values import Value

MAX_TOKENS = 1024
"""Reply limit of an agent that sets none."""


@frozen
class Prepared:
    """An attempt ready to open: what it asks for, and what it does once it is open."""

    ask: Ask
    perform: Callable[[Opened], Outcome]


def agent_call(host: StepHost, task: Task, plan: StepPlan, path: str, seen: Snapshot) -> Prepared:
    """Prepare one model request. A retry sends what the first attempt rendered, to the next model of the chain."""
    known = seen.step(path)
    arguments = _first_arguments(host, known)
    if arguments is None:
        scope = host.names(task, seen, plan)
        arguments = {name: scope.render(plan.spec.get(name) or "") for name in ("system", "prompt")}
    request = model_request(plan, arguments, known.retries if known else 0)
    hold = _model_hold(host, plan, request, seen, known or new_step(plan, path, task.epoch))
    ask = Ask(task, plan, path, hold, _stored(host, task, arguments), host.clock.now(), model=request.model)
    return Prepared(ask, lambda _: _complete(host, task, plan, request))


def model_request(plan: StepPlan, arguments: Mapping[str, Any], retries: int) -> ModelRequest:
    """Return the request for the model whose turn it is: each retry moves one along the chain."""
    models = list(plan.spec["model"]) if plan.spec.get("portable", True) else list(plan.spec["model"])[:1]
    return ModelRequest(
        model=models[min(retries, len(models) - 1)],
        system=str(arguments["system"]),
        prompt=str(arguments["prompt"]),
        max_tokens=plan.spec.get("max_tokens") or MAX_TOKENS,
        timeout=plan.timeout,
        schema=plan.output,
        temperature=plan.spec.get("temperature"),
    )


def turn_call(host: StepHost, task: Task, plan: StepPlan, path: str, seen: Snapshot) -> Prepared:
    """Prepare one turn of an agent with tools: its model replies, or proposes calls that are then judged.

    Nothing is called here: what may be called is recorded with the turn, as steps that are ready.
    """
    known, agent = seen.step(path), split_turn(path)[0]
    turns = plan_of(host.manifest(task), agent).turns
    assert turns is not None, "the plan of a turn comes from those of its agent"  # noqa: S101 - for the type checker
    number = turn_number(path)
    arguments = _first_arguments(host, known)
    if arguments is None:
        arguments = arguments_of(plan, agent, number, seen, host.blobs)
        arguments |= _offers(host, task, turns.tools, path, pinned(agent, number, seen, host.blobs))
    tools = described(turns.tools, arguments.get("offers", {}))
    request = model_request(plan, arguments, known.retries if known else 0)
    request = request._replace(tools=offers(tools), turns=exchanges(arguments["turns"]))
    hold = _model_hold(host, plan, request, seen, known or new_step(plan, path, task.epoch))
    stored, now = _stored(host, task, arguments), host.clock.now()
    ask = Ask(task, plan, path, hold, stored, now, model=request.model)

    def perform(_: Opened) -> Outcome:
        reply = host.models.complete(request)
        if not reply.calls:
            said = cleaned(plan, _parsed(reply, plan.output), reply.usage)
            return Outcome(_amount(reply.usage), _turned(host, task, plan, {"reply": said, "calls": []}, reply))
        if reply.stop_reason == "max_tokens":
            raise InvalidOutput("The reply was cut at max_tokens, so its calls are not complete.", usage=reply.usage)
        judged = judge(called(reply.calls, tools), tools, last=number >= turns.most)
        dropped = len(reply.calls) - len(judged)
        output = {"text": reply.text, "calls": [call._asdict() for call in judged], "dropped": dropped}
        kept = _turned(host, task, plan, output, reply)
        made = ready(judged, path, task, host.blobs)
        return Outcome(_amount(reply.usage), kept, others=made, notes=tuple(notes(judged, path, dropped)))

    return Prepared(ask, perform)


def _offers(
    host: StepHost, task: Task, tools: Mapping[str, StepPlan], path: str, known: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return how servers describe their tools, kept with the turn; they are asked in an agent's first one."""
    theirs = [name for name in tools if is_remote(name)]
    if not theirs:
        return {}
    call = ToolContext("", task.tenant, task.run, path)
    return {"offers": known if known is not None else host.tools.offers(theirs, call)}


def _turned(host: StepHost, task: Task, plan: StepPlan, output: dict[str, Any], reply: ModelReply) -> values.Value:
    """Store what a turn came to; the schema of ``plan`` is that of the agent's own output."""
    return checked(host, task, replace(plan, output=None), output, reply.usage)


def _model_hold(host: StepHost, plan: StepPlan, request: ModelRequest, seen: Snapshot, step: Step) -> Amount:
    """Return the worst case. The bound that needs no request is used where it fits; else the provider counts."""
    bound = _amount(host.models.ceiling(request))
    own = with_sharers(step, seen)
    if any(rules.lacking(seen.head, bound)) or any(rules.step_refusals(plan.budget, own, bound, 0)):
        return _amount(host.models.ceiling(request, exact=True))
    return bound


def _complete(host: StepHost, task: Task, plan: StepPlan, request: ModelRequest) -> Outcome:
    reply = host.models.complete(request)
    output = _parsed(reply, plan.output)
    kept = checked(host, task, plan, output, reply.usage)
    return Outcome(used=_amount(reply.usage), output=kept, route=route_in(plan, output))


def _parsed(reply: ModelReply, schema: Mapping[str, Any] | None) -> Any:
    if not schema:
        return reply.text
    try:
        return json.loads(reply.text)
    except (ValueError, RecursionError) as error:
        cut = " (it was cut at max_tokens)" if reply.stop_reason == "max_tokens" else ""
        raise InvalidOutput(f"The reply is not JSON{cut}: {error}", usage=reply.usage) from error


def llm_router_call(host: StepHost, task: Task, plan: StepPlan, path: str, seen: Snapshot) -> Prepared:
    """Prepare the request that picks a route by its description; an unknown answer takes the default."""
    known, scope = seen.step(path), host.names(task, seen, plan)
    arguments = _first_arguments(host, known) or {"system": _ROUTER_SYSTEM, "prompt": _router_prompt(plan, scope)}
    request = model_request(plan, arguments, known.retries if known else 0)
    hold = _model_hold(host, plan, request, seen, known or new_step(plan, path, task.epoch))
    ask = Ask(task, plan, path, hold, _stored(host, task, arguments), host.clock.now(), model=request.model)

    def perform(_: Opened) -> Outcome:
        reply = host.models.complete(request)
        names = {route["to"] for route in plan.spec["routes"]}
        chosen = reply.text.strip() if reply.text.strip() in names else plan.spec["default"]
        decision = {"route": chosen, "answer": reply.text[:500], "strategy": "llm"}
        kept = checked(host, task, plan, decision, reply.usage)
        return Outcome(used=_amount(reply.usage), output=kept, route=chosen)

    return Prepared(ask, perform)


_ROUTER_SYSTEM = "You choose one route. Answer with the name of the route and nothing else."


def _router_prompt(plan: StepPlan, scope: Scope) -> str:
    routes = "\n".join(f"- {route['to']}: {route.get('description', '')}" for route in plan.spec["routes"])
    return f"{scope.render(plan.spec.get('prompt') or '')}\n\nRoutes:\n{routes}"


def tool_call(host: StepHost, task: Task, plan: StepPlan, path: str, seen: Snapshot) -> Prepared:
    """Prepare one tool call: exact arguments, ledger entry, idempotency key; checked against its approval."""
    known, now = seen.step(path), host.clock.now()
    tool = plan.spec["tool"]
    arguments = _first_arguments(host, known)
    if arguments is None and "with" not in plan.spec:
        arguments = proposed(path, tool, seen, host.blobs)
    if arguments is None:
        arguments = _edited(host, plan, task, seen)
    if arguments is None:
        names = host.names(task, seen, plan, **_undone_call(host, path, seen))
        arguments = secrets.rendered(plan.spec["with"] or {}, names.render, host.secrets, task.tenant)
    stored = _stored(host, task, arguments)
    entry = _intent(seen.run, plan, path, stored.digest, known, now)
    check_approval(plan, task, seen, entry, stored)
    hold = Amount(usd=host.tools.cost(tool), steps=0 if path.endswith(COMPENSATE) else 1)
    ask = Ask(task, plan, path, hold, stored, now, call=entry, service=host.tools.service(tool, arguments))
    call = ToolContext(entry.key, task.tenant, task.run, path, known.attempt + 1 if known else 1, plan.timeout)
    return Prepared(ask, lambda opened: _invoke(host, task, plan, opened, arguments, call))


def _edited(host: StepHost, plan: StepPlan, task: Task, seen: Snapshot) -> Any:
    """Return the arguments that a person has changed while approving them; None = they are as the definition says."""
    gate = seen.gate(f"{task.scope}{plan.approved_by}") if plan.approved_by else None
    return values.load(gate.arguments, host.blobs) if gate and gate.status == "approved" and gate.changes else None


def _undone_call(host: StepHost, path: str, seen: Snapshot) -> dict[str, Any]:
    """Return ``call`` and ``result`` for a compensation's expressions: those of the step which it undoes."""
    undone = seen.step(path.removesuffix(COMPENSATE))
    if undone is None or undone.call is None or undone.path == path:
        return {}
    call = {"idempotency_key": undone.call.key, "arguments": values.load(undone.arguments, host.blobs)}
    return {"call": call, "result": output_of(undone, host.blobs)}


def _intent(run: Run, plan: StepPlan, path: str, digest: str, known: Step | None, now: int) -> Call:
    """Return the ledger entry of a call: that of the attempt before, or in a later epoch that of the next dispatch."""
    if known and known.called:
        return known.called
    tool, dispatch = plan.spec["tool"], known.call.dispatch + 1 if known and known.call else 1
    return Call(tool, plan.risk, dispatch, digest, key=call_key(run, path, tool, digest, dispatch), at=now)


def check_approval(plan: StepPlan, task: Task, seen: Snapshot, call: Call, arguments: Value) -> None:
    """Refuse a call that a person was asked about and did not approve exactly so, or that needs a person and had none.

    Raises PolicyViolation; ApprovalMismatch when there is an approval, but of something else.
    """
    gate = seen.gate(f"{task.scope}{plan.approved_by}") if plan.approved_by else None
    irreversible = plan.risk == "irreversible"
    if gate is None:
        if irreversible:
            raise PolicyViolation(f"Step {plan.id} is irreversible and no approval of it is recorded. Ask for one.")
        return
    same = (gate.tool, gate.digest) == (call.tool, call.digest) and not (
        irreversible and gate.dispatch != call.dispatch
    )
    if gate.status != "approved" or not same:
        raise ApprovalMismatch(
            f"Step {plan.id} would call {call.tool} with arguments {call.digest[:12]}, dispatch {call.dispatch}, but "
            f"gate {gate.step} is {gate.status} for {gate.tool} with {gate.digest[:12]}, dispatch {gate.dispatch}. "
            "Resume it with retry to ask for a new approval.",
            arguments,
        )


def _invoke(
    host: StepHost, task: Task, plan: StepPlan, opened: Opened, arguments: Mapping[str, Any], call: ToolContext
) -> Outcome:
    used, found = opened.step.hold, None
    if opened.interrupted:
        with _doubting():
            found = probing.ask(host, plan, arguments, call, opened.step.ended or 0)
            if found:
                probing.check_conclusive(found, plan)
    # Only a probe that found nothing proves that the call before has not happened.
    with _doubting() if opened.interrupted and not found else nullcontext():
        there = found and found.found
        output = found.value if found and there else _call_tool(host, task, plan, arguments, call)
    kept, by = checked(host, task, plan, output), "reconcile" if there else "step"
    return Outcome(used=used, output=kept, route=route_in(plan, output), by=by)


def _call_tool(host: StepHost, task: Task, plan: StepPlan, arguments: Mapping[str, Any], call: ToolContext) -> Any:
    known = secrets.resolved(plan.spec.get("with"), arguments, host.secrets, task.tenant)
    return known.call(lambda given: host.tools.invoke(plan.spec["tool"], given, call))


@contextmanager
def _doubting() -> Generator[None]:
    """Let a failure in here leave open, as the one before it did, whether the call has happened."""
    try:
        yield
    except StepFailure as failure:
        failure.uncertain = True
        raise


def _first_arguments(host: StepHost, known: Step | None) -> Any:
    """Return what the first attempt rendered: every retry reuses it."""
    return values.load(known.arguments, host.blobs) if known and known.arguments else None


def _stored(host: StepHost, task: Task, value: Any) -> values.Value:
    return values.store(value, host.blobs, task.tenant)


def _amount(usage: Usage) -> Amount:
    return Amount(usd=usage.usd, tokens=usage.tokens, steps=1)


def check_time(ask: Ask) -> None:
    """Refuse to open when this process may be ended before the call's time-out. Raises TransientFailure."""
    needed = ask.now + int(ask.plan.timeout * 1000)
    if ask.task.deadline < needed:
        raise TransientFailure(f"This process ends {needed - ask.task.deadline} ms before the step's time-out would.")


def usage_of(failure: StepFailure) -> Amount | None:
    """Return what a failed attempt is charged; None = unknown, so its whole hold."""
    return None if failure.usage is None else _amount(failure.usage)
