"""`sweep`: compare open runs with what there is of them outside, and mend what nobody else would."""

from typing import Any

import typer

from scripts.commands import show
from scripts.commands.client import Api
from scripts.commands.output import COMMAND, JsonOption, console, print_json, table
from scripts.commands.target import TokenOption, UrlOption, target


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sweep)


def sweep(*, url: UrlOption = None, token: TokenOption = None, as_json: JsonOption = False) -> None:
    """Look through the tenant's open runs once, as the schedule does every few minutes, and mend what died.

    It starts executions that were never started, stops runs whose execution has ended without them, sends decisions
    that were recorded and not sent, goes on with cancels, answers parents of ended children, brings lists up to date,
    and gives back what ended runs still hold. Runs that a living process works on are left alone. Needs the role admin.
    """
    looked, findings = _all(target(url, token))
    if as_json:
        return print_json({"looked": looked, "findings": findings})
    rows = [
        (each["run"], each["what"].replace("_", " "), each["done"], show.escaped(each["about"])) for each in findings
    ]
    table(("RUN", "FOUND", "DONE", "ABOUT"), rows, empty="Nothing to mend.")
    console().print(f"{looked} runs looked at. What became of one: {COMMAND} runs show RUN", style="dim")
    return None


def _all(api: Api) -> tuple[int, list[dict[str, Any]]]:
    """Call until the tenant's runs are through; each call is bounded."""
    looked, findings, after = 0, list[dict[str, Any]](), ""
    while True:
        _, answer = api.post("/v1/sweep", {"after": after})
        looked += answer["looked"]
        findings += answer["findings"]
        after = answer["next"]
        if after is None:
            return looked, findings
