"""`plan`, `schema` and `compile`: what a workflow file amounts to, becomes, and may hold."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scripts.commands.client import segment
from scripts.commands.local_runs import open_workspace, runs_file
from scripts.commands.output import JsonOption, Refused, console, pairs, print_json, seconds, table
from scripts.commands.target import TokenOption, UrlOption, target
from scripts.commands.toolsettings import servers_told, tool_settings
from scripts.commands.triggers import of_manifest, words

if TYPE_CHECKING:
    from shared.compiler import Compiled
    from shared.forecast import Forecast
    from shared.manifest import Manifest, StepPlan, Turns

NANO = 1_000_000_000
SHOWN = 8
"""Names of delayed steps to show."""

FileArgument = Annotated[Path, typer.Argument(help="A workflow file.", metavar="FILE")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command()(plan)
    app.command("compile")(compile_)
    app.command()(schema)


def compiled_or_refused(file: Path) -> "Compiled":
    """Compile a file. Raises Refused with all its faults."""
    from shared.compiler import compile_file  # noqa: PLC0415 - a second of imports
    from shared.errors import DefinitionError  # noqa: PLC0415 - with it

    try:
        return compile_file(file, servers=servers_told(tool_settings()))
    except DefinitionError as error:
        told = "\n".join(str(finding) for finding in error.findings)
        remedy = "`signalbox validate` shows the same, one by one."
        raise Refused(told, remedy, code="definition_refused") from error


def compile_(
    *,
    file: FileArgument,
    graph: Annotated[bool, typer.Option("--graph", help="Draw it as a Mermaid flowchart instead.")] = False,
    manifest: Annotated[bool, typer.Option("--manifest", help="Print what the runtime reads instead.")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Print what it amounts to instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the Step Functions machine (ASL) of a workflow file.

    It is JSON with and without --json.

    signalbox compile workflows/invoice.yaml > invoice.asl.json
    """
    if graph + manifest + summary > 1:
        raise typer.BadParameter("give one of --graph, --manifest and --summary")
    compiled = compiled_or_refused(file)
    if graph:
        from shared.asl.drawing import draw  # noqa: PLC0415 - with the compiler

        drawn = draw(compiled.layout, compiled.manifest)
        return print_json({"mermaid": drawn}) if as_json else typer.echo(drawn, nl=False)
    if summary and not as_json:
        return _summary(compiled)
    shown = {"hash": compiled.hash, **asdict(compiled.summary)} if summary else compiled.asl
    return print_json(json.loads(json.dumps(compiled.manifest.to_json() if manifest else shown)))


def _summary(compiled: "Compiled") -> None:
    facts, limits = compiled.summary, compiled.manifest.budget
    active = seconds(None if limits.active_time is None else limits.active_time * 1000)
    lines = {
        "steps": str(facts.steps),
        "longest chain": " → ".join(facts.critical_path),
        "transitions": f"{facts.transitions} at most when nothing goes wrong",
        "history events": f"{facts.events} when everything does, of 25,000",
        "machine": f"{facts.definition_size:,} bytes",
        "manifest": f"{facts.manifest_size:,} bytes",
        "active time": active or "no limit",
        "hash": compiled.hash,
    }
    for name, value in lines.items():
        console().print(f"  [dim]{name:<15}[/] {value}", soft_wrap=True)


def plan(
    *,
    name: Annotated[str, typer.Argument(help="A workflow file, or a published workflow's name.", metavar="FILE|NAME")],
    estimate: Annotated[
        list[str] | None, typer.Option(help="Seconds that a step takes, instead of its time-out.", metavar="PATH=S")
    ] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a workflow file amounts to before it runs: time, states, events, cost, limits, gates.

    Durations are ceilings (time-outs with all retries) unless given. Costs are those of models and tools: what
    attempts have used before, of a file in the runs of this machine; USD 0.10 for a model step without history. Of a
    published workflow it shows what its steps have cost.

    signalbox plan workflows/invoice.yaml --estimate extract=4 --estimate review=3600

    signalbox plan invoice
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        return _plan_file(Path(name), dict(map(_estimate, estimate or ())), as_json=as_json)
    if estimate:
        raise typer.BadParameter("is for a workflow file", param_hint="--estimate")
    found = target(url, token).get(f"/v1/workflows/{segment(name)}/estimates")
    return print_json(found) if as_json else _show_estimates(found["estimates"])


def _plan_file(file: Path, given: dict[str, float], *, as_json: bool) -> None:
    from shared.forecast import Forecast  # noqa: PLC0415 - a second of imports

    forecast = Forecast(compiled_or_refused(file), given)
    unknown = given.keys() - {path for path, _ in forecast.steps}
    if unknown:
        raise typer.BadParameter(f"the workflow has no step {', '.join(sorted(unknown))}")
    facts = facts_of(forecast) | {"estimates": _estimates(forecast.compiled.manifest)}
    if as_json:
        return print_json(facts)
    _show(facts)
    console().print()
    return _show_estimates(facts["estimates"])


def _estimate(text: str) -> tuple[str, float]:
    path, _, number = text.partition("=")
    try:
        return path, float(number)
    except ValueError:
        raise typer.BadParameter(f"{text}: expected PATH=SECONDS") from None


def facts_of(forecast: "Forecast") -> dict[str, Any]:
    """Return the whole plan as plain data; money in USD as text, durations in seconds."""
    from shared.asl.split import rounds  # noqa: PLC0415 - with the compiler

    compiled, cost, width = forecast.compiled, forecast.cost, forecast.width
    summary, nearest = compiled.summary, forecast.limits[0]
    return {
        "workflow": compiled.name,
        "hash": compiled.hash,
        "steps": [_step(path, plan.type, plan.timeout) for path, plan in forecast.steps],
        "critical_path": [{"path": path, "seconds": round(took, 3)} for path, took in forecast.critical_path],
        "critical_path_seconds": round(sum(took for _, took in forecast.critical_path), 3),
        "transitions": {"happy": summary.transitions, "worst": summary.worst},
        "events": summary.events,
        "definition_bytes": summary.definition_size,
        "manifest_bytes": summary.manifest_size,
        "cost_usd": {"floor": _usd(cost.floor), "ceiling": _usd(cost.ceiling), "not_bounded": list(cost.unbounded)},
        "split": [
            {"path": path, "type": plan.type, "most": rounds(plan), **asdict(plan.split)}
            for path, plan in forecast.steps
            if plan.split
        ],
        "agents": [_agent(path, plan.turns) for path, plan in forecast.steps if plan.turns],
        "apart": [_apart(path, plan) for path, plan in forecast.steps if plan.apart],
        "gates": [_gate(path, plan.spec, plan.timeout) for path, plan in forecast.steps if plan.type == "human_gate"],
        "irreversible": [
            {"path": path, "tool": plan.spec["tool"], "approved_by": plan.approved_by}
            for path, plan in forecast.steps
            if plan.risk == "irreversible"
        ],
        "triggers": of_manifest(compiled.manifest),
        "services": _services(forecast),
        "width": {
            "steps_at_once": width.width,
            "max_parallel": width.max_parallel,
            "seconds": round(width.seconds, 3),
            "delayed": list(width.delayed),
        },
        "limits": [
            {"name": n.name, "used": n.used, "limit": n.limit, "share": round(n.share, 4)} for n in forecast.limits
        ],
        "nearest_limit": nearest.name,
        "warnings": [str(finding) for finding in compiled.findings],
    }


def _step(path: str, kind: str, timeout: float) -> dict[str, Any]:
    return {"path": path, "type": kind, "timeout": timeout}


def _services(forecast: "Forecast") -> list[str]:
    """Return what the steps' tools depend on, as circuit breakers know it: tools, hosts, MCP servers."""
    from shared.tools.host import ToolBox  # noqa: PLC0415 - only where tools are looked at

    box, found = ToolBox({}, {}), set[str]()
    for _, plan in forecast.steps:
        for called in (plan, *(plan.turns.tools.values() if plan.turns else ())):
            for call in (called.spec, called.spec.get("compensate"), called.spec.get("reconcile")):
                if call and "tool" in call:
                    service = box.service(call["tool"], call.get("with") or {})
                    found.add(f"tool:{call['tool']}" if "${" in service else service)
    return sorted(found)


def _agent(path: str, turns: "Turns") -> dict[str, Any]:
    from shared.manifest import MOST_CALLS  # noqa: PLC0415 - with the compiler

    tools = [{"tool": name, "risk": tool.risk} for name, tool in turns.tools.items()]
    attempts = turns.most * (1 + MOST_CALLS)
    return {"path": path, "turns": turns.most, "calls_a_turn": MOST_CALLS, "steps": attempts, "tools": tools}


def _apart(path: str, plan: "StepPlan") -> dict[str, Any]:
    from shared.definition.models import LONGEST_PARKED  # noqa: PLC0415 - with the compiler

    limits = {**asdict(plan.budget), "usd": None if plan.budget.usd is None else _usd(plan.budget.usd)}
    timeout = plan.timeout if plan.timeout < LONGEST_PARKED else None
    return {"path": path, "type": plan.type, "timeout": timeout, "budget": limits}


def _gate(path: str, spec: Any, timeout: float) -> dict[str, Any]:
    kept = {name: spec.get(name) for name in ("approves", "approvers", "on_expiry")}
    later = {"remind_after": spec.get("remind_after"), "escalate": [dict(tier) for tier in spec.get("escalate", ())]}
    return {"path": path, **kept, "quorum": spec.get("quorum", 1), "timeout": timeout, **later}


def _usd(nano: int) -> str:
    from decimal import Decimal  # noqa: PLC0415 - one use

    return f"{Decimal(nano) / NANO:.6f}"


def _show(facts: dict[str, Any]) -> None:
    width, cost, limits = facts["width"], facts["cost_usd"], facts["limits"]
    path = " → ".join(f"{step['path']} ({_time(step['seconds'])})" for step in facts["critical_path"])
    pairs(
        {
            "workflow": f"{facts['workflow']} · {len(facts['steps'])} steps",
            "critical path": f"{_time(facts['critical_path_seconds'])} at most: {path}",
            "transitions": f"{facts['transitions']['happy']} when nothing goes wrong, {facts['transitions']['worst']} "
            "when everything does",
            "cost": f"$ {cost['floor']} to $ {cost['ceiling']}{_not_bounded(cost['not_bounded'])}",
            "width": _width(width),
            "split": "; ".join(map(_split_words, facts["split"])) or "nothing: one execution holds it all",
            "agents": "; ".join(map(_agent_words, facts["agents"])) or "none with tools",
            "own runs": "; ".join(map(_apart_words, facts["apart"])) or "none",
            "gates": "; ".join(map(_gate_words, facts["gates"])) or "none",
            "irreversible": "; ".join(f"{step['path']} ({step['tool']})" for step in facts["irreversible"]) or "none",
            "triggers": "; ".join(map(_trigger_words, facts["triggers"])) or "none: the API and the command line",
            "services": ", ".join(facts["services"]) or "none besides models",
            "nearest limit": f"{facts['nearest_limit']}, {limits[0]['share']:.1%} of it",
        }
    )
    console().print()
    rows = [(n["name"], f"{n['used']:,}", f"{n['limit']:,}", f"{n['share']:.1%}") for n in limits]
    table(("LIMIT", "NEEDED", "POSSIBLE", "SHARE"), rows, right=("NEEDED", "POSSIBLE", "SHARE"), empty="")


def _estimates(manifest: "Manifest") -> list[dict[str, Any]]:
    """Return what one attempt of each step is expected to use, by the history of this machine's runs."""
    from shared.budget.history import estimates  # noqa: PLC0415 - as above
    from shared.runtime.views import estimate_view  # noqa: PLC0415 - as above

    known = open_workspace().history(manifest.workflow) if runs_file().is_file() else ()
    return [estimate_view(one) for one in estimates(manifest, known)]


def _show_estimates(found: list[dict[str, Any]]) -> None:
    rows = [
        (one["path"], one["model"] or "", f"{one['attempts'] or 'none'}", one["usd"], one["usd_p90"], _tokens(one))
        for one in found
    ]
    columns = ("STEP", "MODEL", "HISTORY", "USD AN ATTEMPT", "NINE OF TEN BELOW", "TOKENS")
    table(columns, rows, right=columns[2:], empty="None of its own steps costs anything.")


def _tokens(one: dict[str, Any]) -> str:
    return "" if one["tokens"] is None else f"{one['tokens']:,}"


def _time(duration: float) -> str:
    return seconds(duration * 1000)


def _not_bounded(paths: list[str]) -> str:
    return f" (an estimate: no budget bounds {', '.join(paths)})" if paths else ""


def _gate_words(gate: dict[str, Any]) -> str:
    approves = f" approves {gate['approves']}" if gate["approves"] else ""
    people = f"{gate['quorum']} of " if gate["quorum"] > 1 else ""
    whom = f"{people}{', '.join(gate['approvers'])}"
    reminds = [f"reminded after {_time(gate['remind_after'])}"] if gate["remind_after"] else []
    tiers = [f"after {_time(tier['after'])} {', '.join(tier['to'])} too" for tier in gate["escalate"]]
    told = ", ".join([whom, *reminds, *tiers, _time(gate["timeout"])])
    return f"{gate['path']}{approves} ({told}, then {gate['on_expiry']})"


def _agent_words(agent: dict[str, Any]) -> str:
    tools = ", ".join(f"{one['tool']} ({one['risk']})" for one in agent["tools"])
    most = f"at most {agent['turns']} turns of at most {agent['calls_a_turn']} calls"
    return f"{agent['path']}: {most}, {agent['steps']} steps without retries: {tools}"


def _apart_words(apart: dict[str, Any]) -> str:
    budget = apart["budget"]
    active = budget["active_time"]
    known = {
        "time-out": None if apart["timeout"] is None else _time(apart["timeout"]),
        "$": budget["usd"],
        "tokens": budget["tokens"],
        "attempts": budget["steps"],
        "active time": None if active is None else _time(active),
    }
    return f"{apart['path']} ({', '.join(f'{name} {value}' for name, value in known.items() if value is not None)})"


def _trigger_words(trigger: dict[str, Any]) -> str:
    tenant = "" if trigger["tenant"] == "default" else f", tenant {trigger['tenant']}"
    return f"{trigger['kind']} {trigger['id']} ({words(trigger['kind'], trigger)}{tenant})"


def _split_words(split: dict[str, Any]) -> str:
    what = "items" if split["type"] == "map" else "iterations"
    here = f"up to {split['inline']} {what} in the run's own execution, more" if split["inline"] else "all"
    together = f", {split['at_once']} at once with {split['inside']} each" if split["type"] == "map" else ""
    children = f"child executions of at most {split['size']}{together}"
    return f"{split['path']} (at most {split['most']:,}): {here} in {children}"


def _width(width: dict[str, Any]) -> str:
    count = width["steps_at_once"]
    told = f"{count} step{'s' if count != 1 else ''} at once, max_parallel {width['max_parallel']}"
    late = width["delayed"]
    if not late:
        return f"{told}: nothing waits for a slot"
    more = f" and {len(late) - SHOWN} more" if len(late) > SHOWN else ""
    return f"{told}: {', '.join(late[:SHOWN])}{more} wait for a slot, the run takes {_time(width['seconds'])}"


def schema(*, as_json: JsonOption = False) -> None:
    """Print the JSON Schema of workflow files, for editors. It is JSON with and without --json.

    signalbox schema > workflow.schema.json
    """
    from shared.definition.schema import definition_schema  # noqa: PLC0415 - a second of imports

    del as_json
    print_json(definition_schema())
