"""Turns a run's events into lines that people read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from scripts.commands.output import COMMAND, REASONS, money, seconds, state
from scripts.commands.tally import Item, Tally

Event = Mapping[str, Any]
Teller = Callable[[str, Event, float | None], str | None]
"""Makes the line of an event from its path, itself, and how long (ms) its step took, where that is known."""
WIDEST = 30
"""Signs of a path that the column of paths grows to, as longer ones come."""
SHOWN = 4
"""Steps under way that are named; more are counted."""


@dataclass
class Story:
    """What has been told of a run, and what is under way.

    ``run`` is its id; ``seq`` is the last event told; ``children`` are the stories of its sub-workflows' runs that
    have not ended, by their steps' paths; ``asks`` is the one among them, however deep, that waits for a person;
    ``ending`` = nothing opens any more, so gates are no person's business.
    ``begun`` holds when steps began, ``open`` those under way, ``turns`` the iteration of each loop, ``tally`` the
    items of each map, ``width`` the signs of the column of paths.
    """

    run: str = ""
    seq: int = 0
    asks: str = ""
    ending: bool = False
    children: "dict[str, Story]" = field(default_factory=dict[str, "Story"])
    begun: dict[str, str] = field(default_factory=dict[str, str])
    open: list[str] = field(default_factory=list[str])
    turns: dict[str, int] = field(default_factory=dict[str, int])
    tally: Tally = field(default_factory=Tally)
    width: int = 12

    def line(self, event: Event) -> str | None:
        """Return the line for an event, None for one that nobody needs to see."""
        path, kind = str(event["path"] or ""), str(event["type"])
        self._note(kind, path, event)
        item = self.tally.item(path, str(event["at"]))
        told = None if item and kind in _QUIET else _TOLD.get(kind)
        self.width = max(self.width, min(len(path), WIDEST))
        line = told(path.ljust(self.width), event, self._took(path, event)) if told else None
        return self._with_item(line, item, kind, event) if item else line

    def _with_item(self, line: str | None, item: Item, kind: str, event: Event) -> str | None:
        """Return the line with what it means for the item of a map that the event stands in."""
        progress = item.path.rpartition("[")[0]
        if kind == "item_failed" and event["path"] == item.path:
            self.tally.end(item)
            return f"{line}  [dim]{self.tally.progress(progress)}[/]"
        used: Mapping[str, Any] = event["data"].get("used") or {}
        if not _settles(event) or not self.tally.settle(item, str(event["path"]), used):
            return line
        what = f"[dim]{self.tally.progress(progress)}[/]"
        row = _row(
            "[green]✓[/]",
            item.path.ljust(self.width),
            what,
            _between(item.begun, str(event["at"])),
            {"used": item.used},
        )
        return f"{line}\n  {row}" if line else row

    def under_way(self) -> str:
        """Return in a few words what goes on right now; empty when nothing does."""
        loops = [f"{path} iteration {turn}" for path, turn in self.turns.items() if path in self.open]
        maps = [f"{path} {found}" for path in self.open if (found := self.tally.progress(path))]
        inside = [path for path in dict.fromkeys(self.open) if path not in self.turns and not self._counted(path)]
        more = [f"{len(inside) - SHOWN} more"] if len(inside) > SHOWN else []
        return " · ".join([*maps, *loops, ", ".join([*inside[:SHOWN], *more])]).strip(" ·")

    def _counted(self, path: str) -> bool:
        return bool(self.tally.progress(path) or self.tally.item(path, ""))

    def _note(self, kind: str, path: str, event: Event) -> None:
        if kind in _OPENING:
            self.begun.setdefault(path, str(event["at"]))
            self.open = [*(each for each in self.open if each != path), path]
        elif kind in _CLOSING:
            self.open = [each for each in self.open if each != path]
            self.children.pop(path, None)
            self.tally.part(path)
        if kind == "map_entered":
            self.tally.enter(path, int(event["data"]["items"]))
        elif kind == "loop_iteration":
            self.turns[path] = int(event["data"]["iteration"])
        elif kind == "agent_entered":
            self.begun.setdefault(path, str(event["at"]))  # what is under way of it are its turns and calls
        elif kind == "run_unwinding":
            self.ending = True
        elif kind == "child_started":
            self.children[path] = Story(str(event["data"]["child"]))

    def _took(self, path: str, event: Event) -> float | None:
        given = event["data"].get("duration_ms")
        return given if given or path not in self.begun else _between(self.begun[path], str(event["at"]))


def _settles(event: Event) -> bool:
    """Tell whether nothing more becomes of the event's step."""
    return event["type"] in _SETTLING or (
        event["type"] == "step_gave_up" and event["data"].get("on_error") == "continue"
    )


def _between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() * 1000


def plain(value: object) -> str:
    """Return text that came from outside, with nothing in it that rich or a terminal would obey."""
    from rich.markup import escape  # noqa: PLC0415 - keeps `--help` fast

    return escape("".join(sign if sign.isprintable() else " " for sign in str(value if value is not None else "")))


def _row(mark: str, path: str, what: str, took: float | None, data: Mapping[str, Any]) -> str:
    used: Mapping[str, Any] = data.get("used") or {}
    tokens = f"{used['tokens']:,} tokens" if used.get("tokens") else ""
    columns = f"{seconds(took):>9}  {tokens:>12}  {money(used.get('usd')):>12}"
    return f"{_head(mark, path)} {columns}  {what}".rstrip()


def _head(mark: str, path: str) -> str:
    return f"{mark} {plain(path):<12}"


def _completed(path: str, event: Event, took: float | None) -> str:
    route = event["data"].get("route")
    return _row("[green]✓[/]", path, f"[dim]→[/] {route}" if route else "", took, event["data"])


def _failed(path: str, event: Event, took: float | None) -> str:
    error: Mapping[str, Any] = event["data"].get("error") or {}
    return f"{_head('[red]✗[/]', path)} {seconds(took):>9}  {_fault(error)}"


def _fault(error: Mapping[str, Any]) -> str:
    return f"[red]{plain(error.get('class'))}[/]: {plain(error.get('message'))}"


def _item_failed(path: str, event: Event, _took: float | None) -> str:
    return f"{_head('[red]✗[/]', path)} {_fault(event['data'])}"


def _gave_up(path: str, event: Event, _took: float | None) -> str | None:
    """Tell that the run goes on; where it does not, the end of the item or of the run is told."""
    goes_on = event["data"].get("on_error") == "continue"
    return f"{_head('[yellow]![/]', path)} the run goes on without it" if goes_on else None


def _skipped(path: str, event: Event, _took: float | None) -> str:
    return f"[dim]{_head('-', path)} skipped{_because(event)}[/]"


def _retrying(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    return f"{_head(_TURN, path)} once more in {seconds(data.get('delay_ms', 0))} ({plain(data.get('class'))})"


def _paused(path: str, event: Event, _took: float | None) -> str:
    return f"{_head('[yellow]‖[/]', path)} paused{_because(event)}"


def _refused(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    return f"{_head('[yellow]‖[/]', path)} does not fit the {data.get('level')}'s budget of {data.get('dimension')}"


def _would_refuse(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    what = f"the {data.get('level')}'s budget of {data.get('dimension')}"
    return f"{_head('[yellow]![/]', path)} goes on, but {what} would have refused it"


def _gate(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    who = ", ".join(data.get("roles", ()))
    return f"{_head('[yellow]●[/]', path)} waits for {who or 'a person'} to approve {data.get('approves') or 'it'}"


def _mailed(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    why = f" ({plain(data['why'])})" if data.get("why") else ""
    return f"{_head(' ', path)} [dim]mail to {plain(data.get('to'))}{why}[/]"


def _unmailed(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    return f"{_head('[red]![/]', path)} no mail to {plain(data.get('to'))}: {plain(data.get('error'))}"


def _reminded(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    return f"{_head('[yellow]●[/]', path)} reminded: {plain(', '.join(data['roles']))} may decide"


def _escalated(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    who = f"{plain(', '.join(data['roles']))} may decide now"
    return f"{_head('[yellow]▲[/]', path)} escalated to {plain(', '.join(data['added']))} (tier {data['tier']}): {who}"


def _decided(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    note = f": {plain(data['note'])}" if data.get("note") else ""
    return f"{_head('[cyan]◆[/]', path)} {state(data['decision'])} by {plain(data.get('by'))}{_changed(data)}{note}"


def _voted(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    note = f": {plain(data['note'])}" if data.get("note") else ""
    count = f"{len(data['approved_by'])} of {data['quorum']}"
    return f"{_head('[cyan]◆[/]', path)} approved by {plain(data['by'])}{_changed(data)}, {count}{note}"


def _changed(data: Mapping[str, Any]) -> str:
    return f" with changes of {plain(', '.join(data['changes']))}" if data.get("changes") else ""


def _map(path: str, event: Event, _took: float | None) -> str:
    count = event["data"]["items"]
    return f"{_head('[cyan]▸[/]', path)} {count} {'item' if count == 1 else 'items'}"


def _turn(path: str, event: Event, _took: float | None) -> str:
    return f"{_head('[cyan]▸[/]', path)} iteration {event['data']['iteration']}"


def _agent(path: str, event: Event, _took: float | None) -> str:
    return f"{_head('[cyan]▸[/]', path)} may call {', '.join(event['data']['tools'])}"


def _proposed(path: str, event: Event, _took: float | None) -> str:
    return f"{_head('[cyan]▸[/]', path)} calls {plain(event['data']['tool'])}"


def _not_called(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    what = f"{plain(data['tool'])} is not called" if "tool" in data else "not called"
    return f"{_head('[yellow]![/]', path)} {what}: {plain(data['reason'])}"


def _child(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    what = f" of {plain(data['workflow'])}" if "workflow" in data else ""
    return f"{_head('[cyan]▸[/]', path)} run {plain(data['child'])}{what}"


def _waits(path: str, event: Event, _took: float | None) -> str:
    due = event["data"].get("due")
    until = f" until {datetime.fromtimestamp(due / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC at the latest" if due else ""
    return f"{_head('[yellow]●[/]', path)} waits{until}"


def _event(_path: str, event: Event, _took: float | None) -> str:
    return f"{_head('[cyan]◆[/]', plain(event['data'].get('name')))} event received"


def _ending(_path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    return f"[yellow]![/] the run ends as {state(str(data.get('towards')))}: {plain(data.get('reason'))}"


def _probed(path: str, event: Event, _took: float | None) -> str:
    found = "it was found" if event["data"].get("found") else plain(event["data"].get("answer"))
    return f"{_head('[yellow]?[/]', path)} the far side was asked about its call: {found}"


def _left(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    undone = "; what it may have done is not undone" if data.get("not_undone") else ""
    return f"{_head('[red]![/]', path)} whether its call happened is not known, given up by {plain(data['by'])}{undone}"


def _again(_path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    return f"[cyan]{_ARROW}[/] resumed by {plain(data.get('by'))} (epoch {data.get('epoch')}); completed steps stay"


def _plainly(text: str) -> Teller:
    def tell(path: str, _event: Event, _took: float | None) -> str:
        return f"{_head('[yellow]![/]', path)} {text}"

    return tell


def _because(event: Event) -> str:
    reason = event["data"].get("reason")
    return f" ({plain(REASONS.get(str(reason), reason))})" if reason else ""


_TURN, _ARROW = "[yellow]↻[/]", "▶"
_TOLD: dict[str, Teller] = {
    "step_completed": _completed,
    "step_failed": _failed,
    "step_timed_out": _failed,
    "step_gave_up": _gave_up,
    "step_skipped": _skipped,
    "step_retrying": _retrying,
    "step_paused": _paused,
    "gate_opened": _gate,
    "gate_mailed": _mailed,
    "gate_mail_failed": _unmailed,
    "gate_reminded": _reminded,
    "gate_escalated": _escalated,
    "gate_decided": _decided,
    "gate_cancelled": _plainly("is not asked any more"),
    **dict.fromkeys(("gate_voted", "gate_edited"), _voted),
    "budget_refused": _refused,
    "budget_would_refuse": _would_refuse,
    "map_entered": _map,
    "item_failed": _item_failed,
    "loop_iteration": _turn,
    "agent_entered": _agent,
    "call_proposed": _proposed,
    "call_refused": _not_called,
    "child_started": _child,
    "child_resumed": _plainly("its child run goes on"),
    "child_undone": _plainly("what its child run had done is undone"),
    "wait_started": _waits,
    "event_awaited": _plainly(f"an event completes it: {COMMAND} runs send"),
    "event_received": _event,
    "attempt_lost": _plainly("an attempt was lost; it is charged in full and taken over"),
    "step_unknown": _plainly("nobody knows whether its call took effect"),
    "call_probed": _probed,
    "call_given_up": _left,
    "step_held": _plainly("waits: its service is degraded, and nothing is sent there for a while"),
    "step_compensated": _plainly("undone"),
    "step_cancelled": _plainly("cancelled"),
    "step_resumed": _plainly("goes on, by a person's word"),
    "step_fallback": _plainly("its fallback stands in"),
    "run_unwinding": _ending,
    "run_resumed": _again,
}
LEFT_OUT = frozenset(
    {
        "run_started",  # whoever follows a run has just been told its id
        "step_opened",  # the line of what is under way, and its end
        "child_raised",  # a part has taken more of the budget that it shares with the whole
        *("run_completed", "run_failed", "run_cancelled", "run_timed_out", "run_stopped"),  # the summary at the end
    }
)
"""Events that get no line, each for a reason."""
ASKING = frozenset({"gate_opened", "gate_reminded", "gate_escalated", "step_paused", "step_unknown"})
"""Events after which a person may have to act."""
_OPENING = frozenset({"step_opened", "gate_opened", "map_entered", "loop_iteration", "child_started", "wait_started"})
_SETTLING = frozenset({"step_completed", "step_skipped"})
_QUIET = _SETTLING | {"map_entered", "loop_iteration", "agent_entered", "call_proposed", "wait_started"}
"""Events inside a map that only its items' lines tell; what goes wrong is told step by step."""
_CLOSING = _SETTLING | {
    *("step_failed", "step_timed_out", "step_gave_up", "step_cancelled", "step_unknown", "step_paused"),
}
