"""What `up` does: start the local cloud, deploy the CDK app into it, make a tenant; each only when it is needed."""

import fcntl
import hashlib
import json
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from scripts.commands.output import ROOT, Progress, Refused
from scripts.commands.target import CREDENTIALS, FOLDER, credentials, save_credentials
from scripts.commands.tenants import make_token

if TYPE_CHECKING:
    from scripts.local.cloud import LocalCloud

SOURCES = ("app.py", "cdk.json", "requirements.lock", "package-lock.json", "infra", "shared", "functions", "workflows")
"""What a deployment depends on: files, and folders with everything in them."""
STACK = "signalbox-local-data"


@dataclass(frozen=True)
class Local:
    """The local cloud after `up`: where everything is, and the token that may do everything in tenant `default`."""

    api_url: str
    mailbox_url: str
    rehearsal_url: str
    erp_url: str
    aws_url: str
    token: str
    models: str
    approvers: Mapping[str, Any]
    generation: str
    deployed: str
    tables: Mapping[str, str]


def up(progress: Progress, *, force: bool = False) -> Local:
    """Bring the local cloud up to what the sources say, doing only what is not done yet. Raises Refused."""
    from scripts.local import cloud, deploy  # noqa: PLC0415 - keeps `--help` fast

    try:
        with _alone(progress):
            return _up(progress, force=force)
    except (cloud.CloudError, deploy.DeployError) as error:
        raise Refused(str(error), code="up_failed") from None


def _up(progress: Progress, *, force: bool) -> Local:
    from scripts.local import cloud  # noqa: PLC0415 - as above

    with progress.phase("Starting the local cloud") as tell:
        running = cloud.start(tell, FOLDER)
    key = os.environ.get("ANTHROPIC_API_KEY", "")
    context = _context(running, live=bool(key))
    with progress.phase("Comparing what is deployed with the sources"):
        wanted = fingerprint(context, running.generation)
    known = _known(running.generation)
    if known is None or known.deployed != wanted or force:
        known = _deploy(running, context, wanted, known, progress)
    _set_model_key(running, known, key)
    return known


def _known(generation: str) -> Local | None:
    """Return what the last `up` left behind; None when it was in another life of the cloud, or there was none."""
    try:
        found = Local(**(credentials() or {}))
    except TypeError:  # left by another version of this file
        return None
    return found if found.generation == generation else None


def _context(running: "LocalCloud", *, live: bool) -> dict[str, str]:
    """Return the CDK context that ties the app to this local cloud."""
    context = {
        "env": "local",
        "public_url": running.api_url("{api}"),
        # The stand-in is a host like any other that a deployment allows: built-in tools may reach it too.
        "tool_settings": json.dumps(
            {"ERP_URL": running.erp.url, "HTTP_ALLOWED_HOSTS": urlsplit(running.erp.url).netloc}
        ),
    }
    return context if live else context | {"models_url": running.rehearsal.url}


def fingerprint(context: Mapping[str, str], generation: str, root: Path = ROOT) -> str:
    """Return a digest over all that a deployment comes from; equal digests mean that it need not be repeated."""
    total = hashlib.sha256(json.dumps([dict(context), generation], sort_keys=True).encode())
    for path in sorted(_files(root)):
        content = path.read_bytes()
        total.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for name in SOURCES:
        place = root / name
        found = place.rglob("*") if place.is_dir() else iter([place])
        yield from (
            path for path in found if path.is_file() and "__pycache__" not in path.parts and path.name != "README.md"
        )


def _deploy(
    running: "LocalCloud", context: Mapping[str, str], wanted: str, before: Local | None, progress: Progress
) -> Local:
    from scripts.local import deploy  # noqa: PLC0415 - as above

    if before is not None:
        # Until it has succeeded, nobody knows what is deployed.
        save_credentials(asdict(replace(before, deployed="")))
    app = deploy.App(context=context)
    with progress.phase("Synthesising the CDK app") as tell:
        assembly = deploy.cdk_synth(running, app, tell)
    with progress.phase("Bootstrapping the account") as tell:
        deploy.cdk_bootstrap(running, tell)
    with progress.phase("Deploying the CDK app") as tell:
        outputs = deploy.cdk_deploy(running, assembly, tell)
    with progress.phase("Making tenant `default` and its token"):
        found = _describe(running, outputs, context, before.token if before else "")
        found = replace(found, deployed=wanted)
        save_credentials(asdict(found))
    return found


def _describe(
    running: "LocalCloud", outputs: Mapping[str, Mapping[str, str]], context: Mapping[str, str], known: str
) -> Local:
    tables = dict(outputs[STACK])
    approvers = _approvers(running)
    token = known or make_token(client(running.url, "dynamodb"), tables["TenantsTable"], approvers)
    return Local(
        api_url=tables["ApiUrl"].rstrip("/"),
        mailbox_url=running.mail_url,
        rehearsal_url=running.rehearsal.url,
        erp_url=running.erp.url,
        aws_url=running.url,
        token=token,
        models="rehearsed" if "models_url" in context else "live",
        approvers=approvers,
        generation=running.generation,
        deployed="",
        tables=tables,
    )


def client(url: str, service: str) -> Any:
    """Return a client of a service of the local cloud at `url`."""
    import boto3  # noqa: PLC0415 - half a second
    from botocore.config import Config  # noqa: PLC0415 - likewise

    from scripts.local import environment  # noqa: PLC0415 - as above

    return cast("Any", boto3).client(
        service,
        endpoint_url=url,
        region_name=environment.REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - worth nothing
        config=Config(proxies={}, retries={"max_attempts": 3}),
    )


def _approvers(running: "LocalCloud") -> dict[str, Any]:
    """Return who may approve, as the deployed functions know them: reading infra's settings would start Node."""
    for function in client(running.url, "lambda").list_functions()["Functions"]:
        variables = function.get("Environment", {}).get("Variables", {})
        if "APPROVERS" in variables:
            return json.loads(variables["APPROVERS"])
    return {}


def _set_model_key(running: "LocalCloud", known: Local, key: str) -> None:
    """Put the model provider's key where the functions look for it; the rehearsal takes any."""
    secret = {"anthropic": key or "rehearsal"}
    wanted = json.dumps(secret)
    secrets = client(running.url, "secretsmanager")
    name = known.tables["ModelSecretArn"]
    if secrets.get_secret_value(SecretId=name)["SecretString"] != wanted:
        secrets.put_secret_value(SecretId=name, SecretString=wanted)


@contextmanager
def _alone(progress: Progress) -> Generator[None]:
    """Let one `up` of this clone run at a time; a second one waits, and then finds everything done."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.phase("Waiting for another `signalbox up`"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def down(progress: Progress) -> list[str]:
    """End the local cloud; its contents are gone. Returns the services that ran. Raises Refused."""
    from scripts.local import cloud  # noqa: PLC0415 - as above

    try:
        with progress.phase("Stopping the local cloud") as tell:
            ended = list(cloud.stop(tell, FOLDER))
    except cloud.CloudError as error:
        raise Refused(str(error), code="down_failed") from None
    CREDENTIALS.unlink(missing_ok=True)
    return ended


def running_services() -> dict[str, str]:
    """Return the addresses of the services that run, by name; empty when the local cloud is down."""
    from scripts.local import cloud  # noqa: PLC0415 - as above

    return {name: service.url for name, service in cloud.status(FOLDER).running.items()}


def is_up() -> bool:
    """Tell whether every service of the local cloud runs and something was deployed."""
    from scripts.local import cloud  # noqa: PLC0415 - as above

    return cloud.status(FOLDER).healthy and CREDENTIALS.exists()
