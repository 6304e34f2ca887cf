"""`runs resume`: a word on a paused step, or another epoch of a run that has ended early."""

import time
from typing import Annotated, Any
from uuid import uuid4

import typer

from scripts.commands.advice import stuck
from scripts.commands.client import Api, segment
from scripts.commands.driving import carry_on, drive
from scripts.commands.follow import FAST, TERMINAL
from scripts.commands.inputs import read_value
from scripts.commands.local_runs import InProcessOption, LocalRuns
from scripts.commands.output import JsonOption, Refused
from scripts.commands.raises import milliseconds
from scripts.commands.target import RunArgument, TokenOption, UrlOption, run_id, target
from scripts.commands.versions import newest

ENDING_PATIENCE = 30.0
"""Seconds for which a run that is being ended is waited for before it is resumed."""
_ACTIONS = ("retry", "skip", "accept", "did_not_happen", "fail")
_ACTIONS_SHOWN = "retry, skip, accept (a given result), did_not_happen (a call in doubt) or fail"


def resume(  # noqa: PLR0913 - options
    *,
    run: RunArgument,
    step: Annotated[str | None, typer.Option(help="The paused step; needed only where several are.")] = None,
    action: Annotated[
        str | None, typer.Option(help=f"Of a paused step: {_ACTIONS_SHOWN}. Without it: retry, or accept a --result.")
    ] = None,
    result: Annotated[str | None, typer.Option(metavar="JSON|@FILE", help="The step's result, for accept.")] = None,
    usd: Annotated[str | None, typer.Option("--raise-usd", help="Raise the run's limit by this many USD.")] = None,
    tokens: Annotated[int | None, typer.Option("--raise-tokens", min=1, help="Raise its limit of tokens.")] = None,
    steps: Annotated[int | None, typer.Option("--raise-steps", min=1, help="Raise its limit of steps.")] = None,
    active_time: Annotated[
        str | None, typer.Option("--raise-active-time", help="Raise its limit of active time, such as by 10m.")
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(
            metavar="N|latest",
            help="Of an ended run: go on with this version of its workflow; latest is, of a file's run, the file as it "
            "stands.",
        ),
    ] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say how a paused step goes on, or let a run go on that ended early: completed steps are not paid again.

    An in-process run that no process drives goes on in this one; its calls go where they went before.

    signalbox runs resume latest --action retry

    signalbox runs resume RUN --action accept --result '{"document": "DOC-17"}'

    signalbox runs resume RUN --step post --action did_not_happen

    signalbox runs resume RUN --raise-usd 0.25

    signalbox runs resume RUN --version latest
    """
    if action not in {None, *_ACTIONS}:
        raise typer.BadParameter(f"use {_ACTIONS_SHOWN}", param_hint="--action")
    action = action or ("accept" if result is not None else None)
    if (action == "accept") != (result is not None):
        raise typer.BadParameter("goes with --action accept, and accept needs it", param_hint="--result")
    api = target(url, token, in_process=in_process, about=run)
    run = run_id(api, run)
    more = {name: value for name, value in _more(usd, tokens, steps, active_time).items() if value is not None}
    body: dict[str, Any] = {"raise": more} if more else {}
    if step is None and (version or _is_over(api, run)):
        if action:
            raise _no_paused_step(run, action)
        resume_ended(api, run, _version(version) | body, as_json=as_json)
        return
    if step is None and not _paused(api, run):
        drive(api, run, as_json=as_json)
    body |= {"step": step or _only_paused(api, run), "action": action or "retry"}
    if result is not None:
        body["result"] = read_value(result, "--result")
    _, answer = api.post(f"/v1/runs/{segment(run)}/resume", body, key=uuid4().hex)
    carry_on(api, answer, f"Step {body['step']}: {body['action']}.", as_json=as_json)


def _more(usd: str | None, tokens: int | None, steps: int | None, active_time: str | None) -> dict[str, Any]:
    active = active_time and _milliseconds(active_time)
    return {"usd": usd, "tokens": tokens, "steps": steps, "active_time": active}


def _version(given: str | None) -> dict[str, Any]:
    return {} if given is None else {"version": int(given) if given.isdecimal() else given}


def _no_paused_step(run: str, action: str) -> Refused:
    what = f"Run {run} has no paused step of which you could say {action}: it has ended, or a --version is named."
    return Refused(what, f"Without --action it is resumed: signalbox runs resume {run}", code="no_paused_step")


def _is_over(api: Api, run: str) -> bool:
    """Tell whether a run has ended; one that is just ending is waited for, unless it waits for a word itself."""
    end = time.monotonic() + ENDING_PATIENCE
    while (found := api.get(f"/v1/runs/{segment(run)}")).get("unwinding") and time.monotonic() < end:
        if found["state"] == "paused" and stuck(found):
            break
        time.sleep(FAST)
    return found["state"] in TERMINAL


def resume_ended(api: Api, run: str, wanted: dict[str, Any], *, as_json: bool) -> None:
    """Let a run go on that has ended early: as it is, or with the ``version`` and ``raise`` that are wanted.

    ``latest`` is, of an in-process run, its file as it stands. Raises Refused where that is none that can run.
    """
    if isinstance(api, LocalRuns) and wanted.get("version") == "latest" and api.workspace.has_ended(run):
        wanted = wanted | {"version": newest(api.workspace, run)}
    _, answer = api.post(f"/v1/runs/{segment(run)}/resume", wanted, key=uuid4().hex)
    goes_on = f"Run {run} goes on"
    if isinstance(api, LocalRuns):
        answer["version"] = api.workspace.facts(run).version
        goes_on += f" as version {answer['version']}"
    carry_on(api, answer, f"{goes_on}; what was completed stays.", as_json=as_json)


def _milliseconds(text: str) -> int:
    try:
        return milliseconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--raise-active-time") from None


def _paused(api: Api, run: str) -> list[str]:
    return [str(step["path"]) for step in stuck(api.get(f"/v1/runs/{segment(run)}"))]


def _only_paused(api: Api, run: str) -> str:
    found = _paused(api, run)
    if len(found) != 1:
        what = f"Run {run} has {'no paused step' if not found else 'several paused steps: ' + ', '.join(found)}."
        raise Refused(what, "Name one with --step." if found else f"`signalbox runs show {run}` shows its state.")
    return found[0]
