"""`deploy`: into a real AWS account, with the credentials of whoever runs it."""

import ast
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from scripts.commands.output import ROOT, JsonOption, Progress, Refused, console, pairs, print_json, relative
from scripts.commands.tenants import TENANT, has_token, make_token

FOLDER = ROOT / ".signalbox" / "deploy"
QUIET = ("--no-notices", "--no-version-reporting")
TAIL = 25
"""Lines of a log that an error shows."""


@dataclass(frozen=True)
class Account:
    """Where a deployment goes, and with which session."""

    id: str
    region: str
    session: Any


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command()(deploy)


def deploy(
    *,
    env: Annotated[str, typer.Option("--env", help="An environment of infra/settings.py, such as dev or prod.")],
    bootstrap: Annotated[
        bool, typer.Option("--bootstrap", help="Prepare account and region for the CDK first; needed once.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before permissions are widened.")] = False,
    context: Annotated[
        list[str] | None, typer.Option("-c", "--context", metavar="KEY=VALUE", help="CDK context; repeatable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Deploy to AWS with your credentials and region.

    The first time, it makes tenant `default` and prints a token for it, once.

    AWS_PROFILE=work AWS_REGION=eu-central-1 signalbox deploy --env dev --bootstrap

    `--env local` does what `signalbox up` does.
    """
    if env == "local":
        from scripts.commands.local import up  # noqa: PLC0415 - rarely needed

        return up(as_json=as_json)
    if env not in environments():
        what = f"{env!r} is no environment of infra/settings.py; those are {', '.join(environments())}"
        raise typer.BadParameter(what, param_hint="--env")
    values = _context(env, context or [])
    # On a terminal, the CDK itself shows what widens and asks; it needs the terminal for that.
    asks = not yes and sys.stdin.isatty() and not as_json
    progress = Progress(quiet=as_json)
    with progress.phase("Looking at account and region"):
        account = _account()
        _check_bootstrap(account, wanted=bootstrap)
    if bootstrap:
        with progress.phase(f"Bootstrapping {account.id} in {account.region}"):
            _cdk(["bootstrap", f"aws://{account.id}/{account.region}"], "bootstrap", account.region)
    arguments = _arguments(values, yes=yes)
    if asks:
        progress.line(f"Deploying to {account.id} in {account.region}; the CDK asks before it widens permissions.")
        _cdk(arguments, "deploy", account.region, shown=True)
    else:
        with progress.phase(f"Deploying to {account.id} in {account.region}"):
            _cdk(arguments, "deploy", account.region)
    return _finish(env, account, as_json=as_json)


def environments() -> list[str]:
    """Return the names in infra/settings.py, sorted. They are read, not imported: an import would start the CDK."""
    tree = ast.parse((ROOT / "infra" / "settings.py").read_text("utf-8"))
    found = (node for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict))
    named = (node.value for node in found if ast.unparse(node.target) == "ENVIRONMENTS")
    return sorted(str(ast.literal_eval(key)) for one in named for key in cast("ast.Dict", one).keys if key)


def _context(env: str, given: list[str]) -> dict[str, str]:
    values = {"env": env}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise typer.BadParameter(f"{one!r}: give KEY=VALUE", param_hint="--context")
        values[name] = value
    return values


def _account() -> Account:
    """Return where the user's credentials lead. Raises Refused without credentials or region."""
    import boto3  # noqa: PLC0415 - half a second
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - with it

    try:
        # boto3 itself reads AWS_DEFAULT_REGION only.
        session: Any = boto3.Session(region_name=os.environ.get("AWS_REGION") or None)
        region = session.region_name
        if not region:
            raise Refused("No AWS region is set.", "Set AWS_REGION, such as eu-central-1.", code="no_region")
        if session.get_credentials() is None:
            remedy = "Log in (aws sso login) and set AWS_PROFILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            raise Refused("There are no AWS credentials.", remedy, code="no_credentials")
        return Account(session.client("sts").get_caller_identity()["Account"], region, session)
    except (BotoCoreError, ClientError) as error:
        remedy = "Log in again, or check AWS_PROFILE and the network."
        raise Refused(f"AWS does not take the credentials: {error}", remedy, code="bad_credentials") from None


def _check_bootstrap(account: Account, *, wanted: bool) -> None:
    from botocore.exceptions import ClientError  # noqa: PLC0415 - as above

    try:
        account.session.client("ssm").get_parameter(Name="/cdk-bootstrap/hnb659fds/version")
    except ClientError as error:
        if error.response["Error"]["Code"] != "ParameterNotFound" or wanted:  # pyright: ignore[reportTypedDictNotRequiredAccess]
            return
        what = f"Account {account.id} is not prepared for the CDK in {account.region}."
        raise Refused(what, "Run this once with --bootstrap.", code="not_bootstrapped") from None


def _arguments(values: dict[str, str], *, yes: bool) -> list[str]:
    arguments = ["deploy", "--all", "--app", f"{sys.executable} {ROOT / 'app.py'}", "--output", str(FOLDER / "cdk.out")]
    arguments += ["--outputs-file", str(FOLDER / "outputs.json"), "--progress", "events"]
    arguments += ["--require-approval", "never" if yes else "broadening"]
    return arguments + [part for name, value in values.items() for part in ("-c", f"{name}={value}")]


def _cdk(arguments: list[str], name: str, region: str, *, shown: bool = False) -> None:
    """Run the CDK's command line; unless `shown`, its words go to a log. Raises Refused."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / f"{name}.log"
    own = Path(sys.executable).parent
    command = [str(own / "node"), str(ROOT / "node_modules" / ".bin" / "cdk"), *arguments, *QUIET]
    variables = {
        **os.environ,
        "AWS_REGION": region,
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
        "PATH": os.pathsep.join([str(own), os.environ.get("PATH", os.defpath)]),  # the app starts `node`
        "PYTHONPATH": str(ROOT),
    }
    # In the clone's folder, `bootstrap` would synthesise the app only to find its environments.
    with tempfile.TemporaryDirectory() as empty, log.open("w") as file:
        folder = empty if name == "bootstrap" else str(ROOT)
        quiet = None if shown else subprocess.DEVNULL
        output = None if shown else file
        code = subprocess.run(  # noqa: S603 - our own command
            command, cwd=folder, env=variables, stdin=quiet, stdout=output, stderr=output, check=False
        ).returncode
    if code:
        said = "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-TAIL:])
        what = f"cdk {name} failed (exit code {code})." + (f" Log: {relative(log)}\n{said}" if not shown else "")
        raise Refused(what, "Mend what the first FAILED line names, then run this again.", code=f"{name}_failed")


def _finish(env: str, account: Account, *, as_json: bool) -> None:
    outputs = cast("dict[str, Any]", json.loads((FOLDER / "outputs.json").read_text("utf-8")))
    data = cast("dict[str, str]", outputs[f"signalbox-{env}-data"])
    dynamodb = account.session.client("dynamodb")
    fresh = not has_token(dynamodb, data["TenantsTable"])
    token = make_token(dynamodb, data["TenantsTable"], _approvers(account, env)) if fresh else None
    told = {
        "account": account.id,
        "region": account.region,
        "api_url": data["ApiUrl"],
        "tenant": TENANT,
        "token": token,
    }
    if as_json:
        print_json(told | {"outputs": outputs})
        return
    pairs({name: str(value) for name, value in told.items() if value})
    if token:
        console().print("  [bold]The token is shown this once.[/] Keep it: export SIGNALBOX_TOKEN=...")
    screen = console()
    screen.print(f"\nNext: export SIGNALBOX_URL={data['ApiUrl']}", soft_wrap=True)
    screen.print("Give it a model key, if it has none yet:", soft_wrap=True)
    command = f"aws secretsmanager put-secret-value --secret-id signalbox-{env}/models --secret-string"
    screen.print(f"""  {command} '{{"anthropic": "..."}}'""", soft_wrap=True, markup=False)


def data_outputs(env: str) -> tuple[Any, dict[str, str]]:
    """Return the user's AWS session, and what a deployment's data stack says of itself. Raises Refused."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - half a second

    session, stack = _account().session, f"signalbox-{env}-data"
    try:
        (found,) = session.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    except (BotoCoreError, ClientError) as error:
        raise Refused(f"{stack} cannot be read: {error}", "Check --env, account and region.", code="no_stack") from None
    return session, {one["OutputKey"]: one["OutputValue"] for one in found["Outputs"]}


def _approvers(account: Account, env: str) -> dict[str, Any]:
    """Return who may approve, as the deployed functions know them."""
    pages = account.session.client("lambda").get_paginator("list_functions").paginate()
    for function in (each for page in pages for each in page["Functions"]):
        variables = function.get("Environment", {}).get("Variables", {})
        if variables.get("SIGNALBOX_ENVIRONMENT") == env and "APPROVERS" in variables:
            return json.loads(variables["APPROVERS"])
    return {}
