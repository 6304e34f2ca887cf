"""`up`, `down` and `status`: the local cloud of this clone."""

from typing import Annotated, Any

import typer

from scripts.commands.output import COMMAND, ROOT, JsonOption, Progress, console, pairs, print_json, relative
from scripts.commands.target import CREDENTIALS, credentials


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command()(up)
    app.command()(down)
    app.command()(status)


def up(
    *,
    force: Annotated[bool, typer.Option("--force", help="Deploy even when nothing has changed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Start the local cloud and deploy Signalbox into it. Run again, it only does what is missing.

    Needs no account and no key: models are rehearsed. With ANTHROPIC_API_KEY set, real ones are called.
    """
    from scripts.commands import lifecycle  # noqa: PLC0415 - keeps `--help` fast

    try:
        found = lifecycle.up(Progress(), force=force)
    except KeyboardInterrupt:
        remedy = f"{COMMAND} up goes on from here, {COMMAND} down stops what runs."
        console(stderr=True).print(f"\nInterrupted. {remedy}", soft_wrap=True)
        raise typer.Exit(130) from None
    if as_json:
        print_json(addresses(vars_of(found)) | {"token": found.token})
        return
    console().print("\n[bold]The local cloud is up.[/]")
    describe(vars_of(found))
    sample = relative(ROOT / "workflows" / "samples" / "contoso-en.txt")
    console().print(f"\nNext: {COMMAND} run invoice --set document=@{sample} --watch", soft_wrap=True)


def vars_of(found: object) -> dict[str, Any]:
    """Return a dataclass as a dictionary."""
    from dataclasses import asdict  # noqa: PLC0415 - one use

    return asdict(found)  # pyright: ignore[reportArgumentType]


def addresses(found: dict[str, Any]) -> dict[str, Any]:
    """Return where everything of the local cloud can be reached."""
    names = ("api_url", "mailbox_url", "rehearsal_url", "erp_url", "aws_url", "models")
    return {name: found.get(name) for name in names}


def describe(found: dict[str, Any]) -> None:
    """Print where everything is and how to reach it."""
    live = found["models"] == "live"
    pairs(
        {
            "API": f"{found['api_url']}   [dim]token in {relative(CREDENTIALS)}[/]",
            "Mailbox": f"{found['mailbox_url']}   [dim]every mail that was sent, as JSON[/]",
            "ERP": f"{found['erp_url']}/documents   [dim]what was posted[/]",
            "Models": "real ones, with your ANTHROPIC_API_KEY"
            if live
            else f"{found['rehearsal_url']}   [dim]rehearsed[/]",
            "AWS": f"{found['aws_url']}   [dim]as AWS_ENDPOINT_URL, for any AWS tool[/]",
        }
    )


def down(*, as_json: JsonOption = False) -> None:
    """Stop the local cloud. Its runs are gone: it keeps them in memory."""
    from scripts.commands import lifecycle  # noqa: PLC0415 - keeps `--help` fast

    ended = lifecycle.down(Progress())
    if as_json:
        print_json({"stopped": ended})
    else:
        console().print("The local cloud is stopped." if ended else "The local cloud was not running.")


def status(
    *,
    env: Annotated[bool, typer.Option("--env", help="Print SIGNALBOX_URL and SIGNALBOX_TOKEN for a shell.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show whether the local cloud runs, and where. Exit code 1 when it does not.

    eval "$(signalbox status --env)"
    """
    from scripts.commands import lifecycle  # noqa: PLC0415 - keeps `--help` fast

    running, found = lifecycle.running_services(), credentials()
    complete = lifecycle.is_up() and found is not None
    known = found if complete and found else {}
    if as_json:
        print_json({"up": complete, "services": running, **(addresses(known) if known else {})})
    elif known and env:
        print(f"export SIGNALBOX_URL={known['api_url']} SIGNALBOX_TOKEN={known['token']}")
    elif known:
        console().print("[bold]The local cloud is up.[/]")
        describe(known)
    else:
        part = f" This runs, without a finished deployment: {', '.join(running)}." if running else ""
        # Where a shell evaluates what is printed, words belong to stderr.
        console(stderr=env).print(f"The local cloud is not up.{part} Start it: {COMMAND} up", soft_wrap=True)
    raise typer.Exit(0 if complete else 1)
