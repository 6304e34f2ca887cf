"""How runs, events and approvals look to people."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.commands.follow import RESUMABLE, way_on
from scripts.commands.output import COMMAND, age, console, counted, money, pairs, seconds, standing, state, table

View = Mapping[str, Any]


def escaped(value: object) -> str:
    """Return text from outside, harmless to rich and to the terminal."""
    from rich.markup import escape  # noqa: PLC0415 - keeps `--help` fast

    return escape("".join(sign if sign.isprintable() or sign == "\n" else " " for sign in str(value)))


def run(found: View, *, outputs: bool = False) -> None:
    """Print a run, with what its steps returned where ``outputs``."""
    pairs(
        {
            "run": str(found["id"]),
            "workflow": f"{found['workflow']} version {found['version']}",
            "state": standing(found, escaped),
            "started": f"{found['created_at']} by {escaped(found['initiator'])} ({age(found['created_at'])})",
            "ended": str(found.get("ended_at") or "not yet"),
            "spent": _spent(found["spent"], found["limits"]),
            "reserved": f"$ {found['reserved']['usd']}",
        }
        | ({"budget": _audited(found["would_refuse"])} if found["budget_mode"] == "audit" else {})
    )
    console().print()
    columns = ("STEP", "TYPE", "STATUS", "TRY", "TIME", "TOKENS", "USD", "NOTE")
    table(columns, [_step(each) for each in found["steps"]], right=columns[3:7], empty="No steps.")
    if found["state"] == "paused":
        console().print(f"\n  {escaped(way_on(found))}", soft_wrap=True)
    for step in found["steps"] if outputs else ():
        if step["output"] is not None or "output_omitted" in step:
            console().print()
            _data(f"output of {step['path']}", step["output"], step.get("output_omitted"))
    for gate in found["gates"]:
        console().print()
        approval(gate)


def _spent(spent: View, limits: View) -> str:
    """Return what was used, of which limit; active time is counted only where it has one."""
    amounts = [f"$ {spent['usd']}" + (f" of {limits['usd']}" if limits["usd"] else "")]
    for noun in ("token", "step"):
        used, limit = spent[f"{noun}s"], limits[f"{noun}s"]
        amounts.append(f"{used:,} of {counted(limit, noun)}" if limit else counted(used, noun))
    if limits["active_time"]:
        amounts.append(f"{seconds(spent['active_time'])} of {seconds(limits['active_time'])} active")
    return ", ".join(amounts)


def _data(title: str, value: object, omitted: View | None) -> None:
    """Print a value under its title; one that is too large for the answer by its size."""
    console().print(f"  [dim]{escaped(title)}[/]")
    text = f"({omitted['size']:,} bytes)" if omitted else json.dumps(value, indent=2, ensure_ascii=False)
    console().print("\n".join(f"    {line}" for line in escaped(text).splitlines()), soft_wrap=True)


def _audited(refusals: Sequence[View]) -> str:
    """Return what an audited run would have been refused."""
    if not refusals:
        return "audited: nothing would have been refused"
    told = (
        f"{escaped(one['path'] or 'the start')} by the {one['level']}'s {one['dimension']} "
        f"({_amount(one, 'needed')} needed, {_amount(one, 'left')} left)"
        for one in refusals
    )
    return f"audited: would have been refused: {'; '.join(told)}"


def _amount(refusal: View, name: str) -> str:
    if refusal["dimension"] == "usd":
        return f"$ {refusal[name]}"
    return seconds(refusal[name]) if refusal["dimension"] == "active_time" else f"{refusal[name]:,}"


def _step(step: View) -> Sequence[str]:
    cost = step["cost"]
    return (
        escaped(step["path"]),
        str(step["type"]),
        state(step["status"]),
        str(step["attempt"] or ""),
        seconds(step["duration_ms"]),
        f"{cost['tokens']:,}" if cost["tokens"] else "",
        money(cost["usd"]).removeprefix("$ "),
        escaped(_note(step)),
    )


def _note(step: View) -> str:
    if step.get("given_up"):
        return str(step["reason"])
    if step["error"]:
        return f"{step['error']['class']}: {step['error']['message']}"
    if step["route"]:
        return f"→ {step['route']}"
    by = f"by {step['by']}" if step["by"] not in {None, "step"} else ""
    called = step.get("tool") if "/call[" in step["path"] else None
    return str(step["reason"] or step["model"] or by or called or "")


def ending(found: View) -> None:
    """Print in a line or two what a run came to."""
    spent, limit = found["spent"], found["limits"]["usd"]
    took = f", {seconds(spent['active_time'])} active" if spent["active_time"] is not None else ""
    console().print(
        f"  {standing(found, escaped)}: $ {spent['usd']} of {limit or 'any'}, {spent['tokens']:,} tokens,"
        f" {counted(spent['steps'], 'step')}{took}",
        soft_wrap=True,
    )
    if found["state"] == "paused":
        console().print(f"  {escaped(way_on(found))}", soft_wrap=True)
    if found["state"] in RESUMABLE:
        told = f"what was completed stays; go on with {COMMAND} runs resume {found['id']}"
        console().print(f"  [dim]{told}[/]", soft_wrap=True)
    for gate in found["gates"]:
        if gate["status"] == "open":
            console().print(
                f"  waits for {', '.join(gate['roles'])}: {COMMAND} approvals show {gate['id']}", soft_wrap=True
            )


def events(found: Sequence[View]) -> None:
    """Print a run's log, one event a line."""
    screen = console()
    if not found:
        screen.print("No events.")
    for event in found:
        data = escaped(", ".join(f"{name}={_compact(value)}" for name, value in event["data"].items()))
        head = f"{event['seq']:>4}  {event['at'][11:23]}  {event['type']:<16}"
        screen.print(f"{head} [bold]{escaped(event['path'] or ''):<12}[/] [dim]{data}[/]", soft_wrap=True)


def _compact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def count(found: View) -> str:
    """Return how many of the needed approvals a request has."""
    return f"{len(found['approved_by'])} of {found['quorum']}"


def _timers(found: View) -> dict[str, str]:
    """Return what time has made of a request, and makes of it next."""
    later, rows = found["next_tier"], dict[str, str]()
    if found["tier"] > 1:
        rows["tier"] = f"{found['tier']}: it was escalated"
    if found["reminded_at"]:
        rows["reminded"] = str(found["reminded_at"])
    if later:
        rows["escalates"] = f"to {', '.join(later['roles'])} at {later['at']}"
    return rows


def _voters(found: View) -> str:
    voters = [escaped(vote["by"]) for vote in found["approved_by"]]
    return f": {', '.join(voters)}" if voters else ""


def approval(found: View) -> None:
    """Print a request for a decision: exactly what it would let run."""
    rows = {
        "approval": str(found["id"]),
        "subject": escaped(" ".join(str(found["subject"]).split())),
        "status": state(found["status"]),
        "asked of": ", ".join(found["roles"]),
        "until": str(found["expires_at"]),
    } | _timers(found)
    if found["approves"]:
        rows["lets run"] = f"{escaped(found['approves'])}: {escaped(found['tool'])} ({found['risk']})"
        rows["digest"] = str(found["digest"])
    if found["quorum"] > 1:
        rows["has"] = f"{count(found)} approvals" + _voters(found)
    if found["status"] == "open" and found["edit"]:
        rows["may change"] = escaped(", ".join(found["edit"]["properties"]))
    if found["edited"]:
        rows["changed"] = escaped(json.dumps(found["changes"], ensure_ascii=False))
    if found["by"]:
        rows["decided"] = f"{found['decided_at']} by {escaped(found['by'])}" + (
            f": {escaped(found['note'])}" if found["note"] else ""
        )
    pairs(rows)
    for name, title in (("arguments", "arguments"), ("show", "shown with it")):
        if found.get(name) or f"{name}_omitted" in found:
            _data(title, found[name], found.get(f"{name}_omitted"))
