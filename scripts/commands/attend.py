"""Stays with a run to its end, for people or for programs, and leaves with the exit code that says how it ended."""

from collections.abc import Callable

import typer

from scripts.commands import show
from scripts.commands.client import Api, segment
from scripts.commands.follow import TERMINAL
from scripts.commands.output import console


def attend(api: Api, run: str, watch: Callable[[], str], *, interrupted: str, until_human: bool, as_json: bool) -> None:
    """Let `watch` follow the run and return the state it was left in; sum it up for people.

    Leaves by typer.Exit: 0 = completed (or, with `until_human`, a person is needed now), 1 = ended otherwise, 130 =
    Ctrl-C or, at a question, Ctrl-D, after saying what is `interrupted`. Raises Refused.
    """
    try:
        ended = watch()
    except (KeyboardInterrupt, typer.Abort):
        console(stderr=True).print(f"\n{interrupted}", soft_wrap=True, highlight=False)
        raise typer.Exit(130) from None
    if not as_json:
        show.ending(api.get(f"/v1/runs/{segment(run)}"))
    raise typer.Exit(0 if ended == "completed" or (until_human and ended not in TERMINAL) else 1)
