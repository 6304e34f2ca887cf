"""Follows a run by its log: events by number, so that nothing is shown twice or missed, whatever the network does."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from scripts.commands.client import Api, ApiRefused, Unreachable, segment
from scripts.commands.output import COMMAND, REASONS, console, money, seconds, state

TERMINAL = frozenset({"completed", "failed", "cancelled", "timed_out", "stopped"})
HUMAN = frozenset({"waiting_for_human", "paused"})
"""States in which nothing happens until a person has acted."""
FAST, SLOW = 0.25, 3.0
"""Seconds between two looks: while something happens, and at most while nothing does."""
PATIENCE = 60.0
"""Seconds for which an API that does not answer is asked again."""
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Page:
    """What one look at the log found: new events, and the run's state as of the same moment or later."""

    events: list[Event]
    state: str
    last: int


def pages(api: Api, run: str, after: int = 0) -> Iterator[Page]:
    """Yield the log's news for ever, also empty ones; the caller stops. Raises Refused when the API stays away."""
    pause = FAST
    while True:
        page = _patiently(api, run, after)
        yield page
        pause = FAST if page.events else min(pause * 1.3, api.slowest)
        after = page.last
        if len(page.events) < _LIMIT:
            time.sleep(pause)


_LIMIT = 200


def _patiently(api: Api, run: str, after: int) -> Page:
    deadline = time.monotonic() + PATIENCE
    told = False
    while True:
        try:
            answer = api.get(f"/v1/runs/{segment(run)}/events", after=after, limit=_LIMIT)
            return Page(answer["events"], str(answer["state"]), int(answer["next"]))
        except (Unreachable, ApiRefused) as fault:
            lasting = isinstance(fault, ApiRefused) and fault.status < 500  # noqa: PLR2004 - the request's own fault
            if lasting or time.monotonic() > deadline:
                raise
            if not told:
                console(stderr=True).print(f"  [yellow]![/] {_plain(fault.what)} Asking again for {PATIENCE:.0f} s ...")
                told = True
            time.sleep(SLOW)


@dataclass
class Story:
    """Turns events into lines that people read.

    ``seq`` is the last event told; ``begun`` holds when steps began, ``open`` those under way.
    """

    seq: int = 0
    begun: dict[str, str] = field(default_factory=dict[str, str])
    open: list[str] = field(default_factory=list[str])

    def line(self, event: Event) -> str | None:
        """Return the line for an event, None for one that nobody needs to see."""
        path, kind = str(event["path"] or ""), str(event["type"])
        self._note(kind, path, str(event["at"]))
        told = _TOLD.get(kind)
        return told(path, event, self._took(path, event)) if told else None

    def _note(self, kind: str, path: str, at: str) -> None:
        if kind in {"step_opened", "gate_opened"}:
            self.begun.setdefault(path, at)
            self.open = [*self.open, path]
        elif kind in _CLOSING:
            self.open = [each for each in self.open if each != path]

    def _took(self, path: str, event: Event) -> float | None:
        given = event["data"].get("duration_ms")
        if given is not None or path not in self.begun:
            return given
        return _between(self.begun[path], str(event["at"]))


def _between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() * 1000


def _row(mark: str, path: str, what: str, took: float | None, data: Mapping[str, Any]) -> str:
    used: Mapping[str, Any] = data.get("used") or {}
    tokens = f"{used['tokens']:,} tokens" if used.get("tokens") else ""
    columns = f"{seconds(took):>9}  {tokens:>12}  {money(used.get('usd')):>12}"
    return f"{mark} {path:<12} {columns}  {what}".rstrip()


def _completed(path: str, event: Event, took: float | None) -> str:
    route = event["data"].get("route")
    return _row("[green]✓[/]", path, f"[dim]→[/] {route}" if route else "", took, event["data"])


def _failed(path: str, event: Event, took: float | None) -> str:
    error: Mapping[str, Any] = event["data"].get("error") or {}
    said = f"[red]{_plain(error.get('class'))}[/]: {_plain(error.get('message'))}"
    return f"[red]✗[/] {path:<12} {seconds(took):>9}  {said}"


def _skipped(path: str, event: Event, _took: float | None) -> str:
    return f"[dim]- {path:<12} skipped{_because(event)}[/]"


def _retrying(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    return f"[yellow]↻[/] {path:<12} once more in {seconds(data.get('delay_ms', 0))} ({_plain(data.get('class'))})"


def _paused(path: str, event: Event, _took: float | None) -> str:
    return f"[yellow]‖[/] {path:<12} paused{_because(event)}"


def _gate(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    who = ", ".join(data.get("roles", ()))
    return f"[yellow]●[/] {path:<12} waits for {who or 'a person'} to approve {data.get('approves') or 'it'}"


def _mailed(path: str, event: Event, _took: float | None) -> str:
    return f"  {path:<12} [dim]mail to {_plain(event['data'].get('to'))}[/]"


def _unmailed(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    return f"[red]![/] {path:<12} no mail to {_plain(data.get('to'))}: {_plain(data.get('error'))}"


def _decided(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    note = f": {_plain(data['note'])}" if data.get("note") else ""
    return f"[cyan]◆[/] {path:<12} {state(data['decision'])} by {_plain(data.get('by'))}{note}"


def _refused(path: str, event: Event, _took: float | None) -> str:
    data = event["data"]
    return f"[yellow]‖[/] {path:<12} does not fit the {data.get('level')}'s budget of {data.get('dimension')}"


def _plainly(text: str) -> "Teller":
    def tell(path: str, _event: Event, _took: float | None) -> str:
        return f"[yellow]![/] {path:<12} {text}"

    return tell


def _because(event: Event) -> str:
    reason = event["data"].get("reason")
    return f" ({_plain(REASONS.get(str(reason), reason))})" if reason else ""


def _plain(value: object) -> str:
    """Return text that came from outside, with nothing in it that rich or a terminal would obey."""
    from rich.markup import escape  # noqa: PLC0415 - keeps `--help` fast

    return escape("".join(sign if sign.isprintable() else " " for sign in str(value if value is not None else "")))


Teller = Callable[[str, Event, float | None], str]

_TOLD: dict[str, Teller] = {
    "step_completed": _completed,
    "step_failed": _failed,
    "step_timed_out": _failed,
    "step_skipped": _skipped,
    "step_retrying": _retrying,
    "step_paused": _paused,
    "gate_opened": _gate,
    "gate_mailed": _mailed,
    "gate_mail_failed": _unmailed,
    "gate_decided": _decided,
    "budget_refused": _refused,
    "attempt_lost": _plainly("an attempt was lost; it is charged in full and taken over"),
    "step_unknown": _plainly("nobody knows whether its call took effect"),
    "step_cancelled": _plainly("cancelled"),
    "step_resumed": _plainly("goes on, by a person's word"),
    "step_fallback": _plainly("its fallback stands in"),
}
_ASKING = frozenset({"gate_opened", "step_paused", "step_unknown"})
_CLOSING = frozenset(
    {"step_completed", "step_failed", "step_timed_out", "step_skipped", "step_cancelled", "step_unknown"}
)


def follow(api: Api, run: str, story: Story, *, until_human: bool = False) -> str:
    """Show the run's steps as they finish until it ends or, with `until_human`, until it waits for a person.

    Goes on where `story` stands. Returns the state the run is left in. Raises Refused.
    """
    screen = console()
    with screen.status("") as status:
        for page in pages(api, run, story.seq):
            story.seq = page.last
            for event in page.events:
                line = story.line(event)
                if line:
                    screen.print(f"  {line}", soft_wrap=True)
            status.update(f"[dim]{', '.join(dict.fromkeys(story.open)) or page.state} ...[/]")
            asks = any(event["type"] in _ASKING for event in page.events)
            if asks and page.state in HUMAN and not until_human:
                screen.print(f"    [dim]{way_on(run, page.state)}[/]", soft_wrap=True)
            if not page.events and over(page.state, until_human=until_human):
                return page.state
    raise AssertionError  # pages never ends


def way_on(run: str, found: str) -> str:
    """Return what a person can do about a run in a state of HUMAN."""
    if found == "paused":
        return f"say how it goes on: {COMMAND} runs resume {run} --action retry (or skip, accept, fail)"
    return f"decide it in another terminal: {COMMAND} approvals show {run} (or approve, reject); Ctrl-C lets it wait"


def over(found: str, *, until_human: bool) -> bool:
    """Tell whether there is nothing left to wait for."""
    return found in TERMINAL or (until_human and found in HUMAN)
