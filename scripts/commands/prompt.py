"""The questions that the terminal of `run FILE` asks: decisions of gates, and how paused steps go on."""

import json
from collections.abc import Mapping
from typing import Any

import typer

from scripts.commands import show
from scripts.commands.advice import stuck
from scripts.commands.client import ApiRefused
from scripts.commands.inputs import json_or_text
from scripts.commands.local_runs import LocalRuns, signature
from scripts.commands.output import console, report
from scripts.commands.raises import example, read


def ask(api: LocalRuns, run: str) -> None:
    """Ask the person at the terminal for one decision that the run waits for."""
    found = api.get(f"/v1/runs/{run}")
    gates = [gate for gate in found["gates"] if gate["status"] == "open"]
    waiting = stuck(found)
    if gates:
        _ask_gate(api, gates[0])
    elif waiting:
        _ask_paused(api, run, waiting[0], found["unwinding"])


def _ask_gate(api: LocalRuns, gate: Mapping[str, Any]) -> None:
    console().print()
    show.approval(gate)
    decision = _choice("Decide", ("approve", *(("edit",) if gate["edit"] else ()), "reject"))
    changes = {"changes": _changes(gate)} if decision == "edit" else {}
    api.by = signature(str(typer.prompt("Signed by", default=api.by)))
    note = typer.prompt("Note", default="", show_default=False)
    body = {"decision": decision, "note": note, "digest": gate["digest"] or "", **changes}
    _say(api, f"/v1/approvals/{gate['id']}", body)


def _changes(gate: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for each argument that may be changed. What is left as it is changes nothing."""
    made, arguments = dict[str, Any](), gate["arguments"] or dict[str, Any]()
    for name in gate["edit"]["properties"]:
        now = arguments.get(name)
        shown = now if isinstance(now, str) else json.dumps(now, ensure_ascii=False)
        given = str(typer.prompt(show.escaped(name), default=shown))
        if given != shown:
            made[name] = given if isinstance(now, str) and given != "null" else json_or_text(given)
    return made


def _ask_paused(api: LocalRuns, run: str, step: Mapping[str, Any], ending: str | None) -> None:
    error: Mapping[str, Any] = step["error"] or {}
    said = f"{error.get('class', step['reason'])}: {error.get('message', '')}"
    console().print(
        f"\n  [bold]{show.escaped(step['path'])}[/] is {step['status']}. {show.escaped(said)}", soft_wrap=True
    )
    if ending:
        console().print(f"  The run ends as {ending}, and waits for this.", soft_wrap=True)
    more = ("raise",) if step["reason"] == "budget_exceeded" and "retry" in step["actions"] else ()
    action = _choice("How does it go on", (*more, *step["actions"]))
    body: dict[str, Any] = {"step": step["path"], "action": action}
    if action == "accept":
        body["result"] = _json("Its result, as JSON")
    if action == "raise":
        body |= {"action": "retry", "raise": _raise(step["short"])}
    _say(api, f"/v1/runs/{run}/resume", body)


def _json(question: str) -> Any:
    while True:
        try:
            return json.loads(str(typer.prompt(question)))
        except ValueError as error:
            console().print(f"  That is no JSON: {show.escaped(error)}", soft_wrap=True)


def _raise(short: Mapping[str, Any] | None) -> dict[str, Any]:
    while True:
        given = str(typer.prompt(f"By how much, such as {example(short)}"))
        try:
            return read(given)
        except ValueError as error:
            console().print(f"  {show.escaped(error)}", soft_wrap=True)


def _say(api: LocalRuns, path: str, body: Mapping[str, Any]) -> None:
    """Pass a person's word on; where it is refused, say why: they are asked again."""
    try:
        api.post(path, body)
    except ApiRefused as refused:
        report(refused, as_json=False)


def _choice(question: str, choices: tuple[str, ...]) -> str:
    while True:
        given = str(typer.prompt(f"{question} ({' / '.join(choices)})")).strip().lower()
        found = [choice for choice in choices if given and choice.startswith(given)]
        if len(found) == 1:
            return found[0]
