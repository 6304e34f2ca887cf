"""`tenants budget`: what a tenant's runs may use together. Set by whoever may write to the deployment's own table."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scripts.commands.local_runs import open_workspace, runs_file
from scripts.commands.output import JsonOption, Refused, console, print_json, seconds, table
from scripts.commands.target import credentials

if TYPE_CHECKING:
    from shared.ports import Store

NO_LIMIT = "none"

TenantArgument = Annotated[
    str, typer.Argument(help="The tenant's name. In-process runs belong to `local`.", metavar="NAME")
]
EnvOption = Annotated[
    str | None, typer.Option("--env", help="A deployment in your AWS account; without it, the local cloud.")
]
InProcessOption = Annotated[bool, typer.Option("--in-process", help="For the runs of `signalbox run FILE`.")]

tenants = typer.Typer(help="Look after tenants.", no_args_is_help=True)
budget = typer.Typer(help="Show and set what a tenant's runs may use together.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    tenants.add_typer(budget, name="budget")
    app.add_typer(tenants, name="tenants")


@budget.command()
def show(
    *, name: TenantArgument, env: EnvOption = None, in_process: InProcessOption = False, as_json: JsonOption = False
) -> None:
    """Show a tenant's budget: its limits, what ended runs have used, what running ones hold, what is left.

    signalbox tenants budget show default
    """
    _tell(_store(name, env, in_process=in_process), name, as_json=as_json)


@budget.command("set")
def set_(  # noqa: PLR0913 - options
    *,
    name: TenantArgument,
    usd: Annotated[str | None, typer.Option("--usd", help="USD, such as 100; `none` = no limit.")] = None,
    tokens: Annotated[str | None, typer.Option("--tokens", help="Tokens of models.")] = None,
    steps: Annotated[str | None, typer.Option("--steps", help="Attempts of steps.")] = None,
    active_time: Annotated[str | None, typer.Option("--active-time", help="Time at work, such as 24h.")] = None,
    monthly: Annotated[
        bool | None, typer.Option("--monthly/--total", help="Forget at the start of a month (UTC) what was spent.")
    ] = None,
    env: EnvOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
) -> None:
    """Set limits of a tenant; those that are not named stay. What was spent and is held counts on.

    A run takes all that it may use when it starts, so its workflow needs a `budget` in every dimension that is limited
    here.

    signalbox tenants budget set default --usd 100 --monthly

    signalbox tenants budget set default --usd none
    """
    from shared.budget import tenant  # noqa: PLC0415 - keeps `--help` fast

    given = {"usd": usd, "tokens": tokens, "steps": steps, "active_time": active_time}
    fresh = {dimension: _amount(dimension, text) for dimension, text in given.items() if text is not None}
    if not fresh and monthly is None:
        raise typer.BadParameter("name at least one of --usd, --tokens, --steps, --active-time, --monthly, --total")
    store = _store(name, env, in_process=in_process)
    known = tenant.read(store, name).set
    limits = {key: limit for key, limit in {**known.limits, **fresh}.items() if limit is not None}
    tenant.set_limits(store, name, limits, monthly=known.monthly if monthly is None else monthly, now=_now())
    _tell(store, name, as_json=as_json)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _amount(dimension: str, text: str) -> int | None:
    """Return an option's value in whole units; None = no limit. Raises BadParameter."""
    from shared.definition import units  # noqa: PLC0415 - as above

    if text == NO_LIMIT:
        return None
    try:
        if dimension == "usd":
            return units.nano_usd(units.usd(text))
        return int(units.seconds(text) * 1000) if dimension == "active_time" else _whole(text)
    except ValueError as error:
        hint = f"--{dimension.replace('_', '-')}"
        raise typer.BadParameter(f"{text!r}: {error}; or `{NO_LIMIT}`", param_hint=hint) from None


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("expected a whole number")
    return int(text)


def _tell(store: "Store", name: str, *, as_json: bool) -> None:
    from shared.budget import tenant  # noqa: PLC0415 - as above
    from shared.runtime.views import tenant_budget_view  # noqa: PLC0415 - with it

    found = tenant_budget_view(tenant.look(store, name, _now()))
    if as_json:
        return print_json(found)
    if not found["limits"]:
        console().print(f"Tenant {name} has no budget: its runs are limited by their workflows only.")
        return None
    since = f"of {found['month']}" if found["monthly"] else "in total"
    console().print(f"Budget of tenant [bold]{name}[/], {since}")
    rows = [
        (dimension, *(_shown(dimension, found[column][dimension]) for column in ("limits", "spent", "held", "left")))
        for dimension in found["limits"]
    ]
    columns = ("LIMIT OF", "LIMIT", "SPENT", "HELD BY RUNS", "LEFT")
    return table(columns, rows, right=columns[1:], empty="")


def _shown(dimension: str, amount: Any) -> str:
    if dimension == "usd":
        return f"$ {amount}"
    return seconds(amount) if dimension == "active_time" else f"{amount:,}"


def _store(name: str, env: str | None, *, in_process: bool) -> "Store":
    """Return the store of a tenant's runs. Raises Refused where there is none, or no such tenant."""
    if in_process and env:
        raise typer.BadParameter("is for a deployment", param_hint="--env")
    if env:
        return _deployed(env, name)
    local = credentials()
    if in_process or (local is None and runs_file().is_file()):
        return _here(name)
    if local is None:
        remedy = "Run `signalbox up`, name a deployment with --env, or use --in-process."
        raise Refused("There is no local cloud.", remedy, code="no_target")
    return _local(local, name)


def _here(name: str) -> "Store":
    from shared.inprocess.workspace import TENANT  # noqa: PLC0415 - as above

    if name != TENANT:
        raise Refused(f"In-process runs belong to tenant {TENANT}.", f"Name that one: {TENANT}.", code="no_tenant")
    return open_workspace().store


def _local(local: dict[str, Any], name: str) -> "Store":
    from scripts.commands.lifecycle import client  # noqa: PLC0415 - as above

    return _table(client(str(local["aws_url"]), "dynamodb"), local["tables"], name)


def _deployed(env: str, name: str) -> "Store":
    from scripts.commands.deploy import data_outputs  # noqa: PLC0415 - as above

    session, outputs = data_outputs(env)
    return _table(session.client("dynamodb"), outputs, name)


def _table(client: Any, tables: dict[str, str], name: str) -> "Store":
    from scripts.commands.tenants import has_token  # noqa: PLC0415 - as above
    from shared.ledger.dynamodb import DynamoStore  # noqa: PLC0415 - half a second

    if not has_token(client, tables["TenantsTable"], name):
        raise Refused(f"There is no tenant {name}: nobody has a token for it.", "Check the name.", code="no_tenant")
    return DynamoStore(client, tables["RunsTable"])
