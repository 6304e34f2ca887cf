"""`tenants secrets`: the values that tools' arguments may name. Written by whoever may write to the deployment."""

import sys
from typing import Annotated, Any

import typer

from scripts.commands.budgets import EnvOption, TenantArgument, tenants
from scripts.commands.output import JsonOption, Refused, console, print_json, table
from scripts.commands.target import credentials

LOCAL = "local"

secrets = typer.Typer(help="Put, list and remove what `${ secrets.NAME }` stands for.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:  # noqa: ARG001 - the commands of tenants are added by that module
    """Add the commands of this group to those of `tenants`."""
    tenants.add_typer(secrets, name="secrets")


NameArgument = Annotated[
    str, typer.Argument(help="As workflows name it: letters, digits, underscores.", metavar="SECRET")
]


@secrets.command()
def put(*, tenant: TenantArgument, name: NameArgument, env: EnvOption = None, as_json: JsonOption = False) -> None:
    """Put a secret, or another version of it. The value is asked for, or read from standard input.

    signalbox tenants secrets put default erp_token < token.txt

    A call that was approved with the version before is another one now: it is paused, not made.
    """
    from shared.runtime.secrets import SHORTEST  # noqa: PLC0415 - half a second

    client, environment = _client(env)
    place, value = _place(tenant, environment, name), _value()
    if len(value) < SHORTEST:
        what = f"The value has fewer than {SHORTEST} characters: it could not be kept out of logs."
        raise Refused(what, "Give a longer one.", code="too_short")
    try:
        version = client.put_secret_value(SecretId=place, SecretString=value)["VersionId"]
    except client.exceptions.ResourceNotFoundException:
        version = client.create_secret(Name=place, SecretString=value)["VersionId"]
    if as_json:
        return print_json({"tenant": tenant, "secret": name, "version": version})
    console().print(f"Secret [bold]{name}[/] of tenant {tenant} has version {version} now.")
    return None


@secrets.command("list")
def list_(*, tenant: TenantArgument, env: EnvOption = None, as_json: JsonOption = False) -> None:
    """List a tenant's secrets by name; values are never shown.

    signalbox tenants secrets list default
    """
    client, environment = _client(env)
    start, found = _place(tenant, environment, ""), list[dict[str, Any]]()
    for page in client.get_paginator("list_secrets").paginate(Filters=[{"Key": "name", "Values": [start]}]):
        found += [
            {"secret": each["Name"].removeprefix(start), "changed": _told(each)}
            for each in page["SecretList"]
            if each["Name"].startswith(start)
        ]
    if as_json:
        return print_json({"tenant": tenant, "secrets": found})
    rows = [(each["secret"], each["changed"] or "") for each in found]
    return table(("SECRET", "CHANGED"), rows, empty=f"Tenant {tenant} has no secrets.")


@secrets.command()
def remove(*, tenant: TenantArgument, name: NameArgument, env: EnvOption = None, as_json: JsonOption = False) -> None:
    """Remove a secret with all its versions. Calls that still name it fail, and say so.

    signalbox tenants secrets remove default erp_token
    """
    client, environment = _client(env)
    place = _place(tenant, environment, name)
    try:
        client.describe_secret(SecretId=place)  # removing by force says nothing of one that is not there
        client.delete_secret(SecretId=place, ForceDeleteWithoutRecovery=True)
    except client.exceptions.ResourceNotFoundException:
        listed = f"signalbox tenants secrets list {tenant}"
        raise Refused(f"Tenant {tenant} has no secret {name}.", listed, code="no_secret") from None
    if as_json:
        return print_json({"tenant": tenant, "secret": name, "removed": True})
    console().print(f"Secret [bold]{name}[/] of tenant {tenant} is removed.")
    return None


def _client(env: str | None) -> tuple[Any, str]:
    """Return a client of Secrets Manager and the environment's name. Raises Refused."""
    if env and env != LOCAL:
        from scripts.commands.deploy import data_outputs  # noqa: PLC0415 - half a second

        return data_outputs(env)[0].client("secretsmanager"), env
    local = credentials()
    if local is None:
        remedy = "Run `signalbox up`, or name a deployment with --env. In-process runs read SIGNALBOX_SECRET_NAME."
        raise Refused("There is no local cloud.", remedy, code="no_target")
    from scripts.commands.lifecycle import client  # noqa: PLC0415 - half a second

    return client(str(local["aws_url"]), "secretsmanager"), LOCAL


def _place(tenant: str, environment: str, name: str) -> str:
    from shared.definition.expressions import SECRET  # noqa: PLC0415 - half a second
    from shared.secretstore.aws import secret_id  # noqa: PLC0415 - with it

    named = SECRET.fullmatch(f"secrets.{name}")
    if name and not (named and named[1] == name):
        raise typer.BadParameter(f"{name!r} is no name such as `erp_token`", param_hint="SECRET")
    return secret_id(tenant, environment, name)


def _value() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Value", hide_input=True, err=True))
    return sys.stdin.read().removesuffix("\n")


def _told(secret: dict[str, Any]) -> str | None:
    changed = secret.get("LastChangedDate") or secret.get("CreatedDate")
    return changed.isoformat(timespec="seconds") if changed else None
