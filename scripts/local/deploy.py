"""Deploys the real CDK app to the local cloud: synthesise once, bootstrap once, deploy the result.

The same steps that a deploy to AWS takes, with the CDK's own command line. Everything runs in the
clean environment of `cloud.endpoint_env`, so no account of the user's can be reached.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.local import environment
from scripts.local.cloud import ROOT, LocalCloud, Progress, endpoint_env

CDK = ROOT / "node_modules" / ".bin" / "cdk"
_QUIET = ("--no-notices", "--no-version-reporting", "--no-color")
_CDK_ENV = {
    "CDK_DISABLE_CLI_TELEMETRY": "true",
    "CI": "true",  # progress as lines, on standard output
    "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
    "NODE_NO_WARNINGS": "1",
}
_SOURCES = ("app.py", "cdk.json", "requirements-lambda.lock", "infra", "shared", "functions", "workflows")
"""What the app is made from."""
_TAIL = 25
"""Lines of output that an error shows."""


class DeployError(RuntimeError):
    """A phase failed; the message has its last lines, the log's path and what to do."""


@dataclass(frozen=True)
class App:
    """What is deployed: `command` prints no template, it writes to CDK_OUTDIR; `context` are its `-c` values."""

    command: Sequence[str] = (sys.executable, "app.py")
    folder: Path = ROOT
    context: Mapping[str, str] = field(default_factory=dict[str, str])


def deploy(cloud: LocalCloud, app: App, progress: Progress = print) -> dict[str, dict[str, str]]:
    """Synthesise, bootstrap if this life of the emulator was not yet, deploy; returns the outputs by stack.

    Raises:
        DeployError: When a phase fails.
    """
    marker, wanted = cloud.folder / "deployed", f"{cloud.generation} {fingerprint(app)}"
    if _holds(marker, wanted):
        progress("deployed already, nothing has changed")
        return _outputs(cloud)
    out = cdk_synth(cloud, app, progress)
    cdk_bootstrap(cloud, progress)
    outputs = cdk_deploy(cloud, out, progress)
    marker.write_text(wanted)
    return outputs


def fingerprint(app: App) -> str:
    """A digest of everything that the app's templates and assets are made from."""
    digest = hashlib.sha256(json.dumps([list(app.command), _context(app)], sort_keys=True).encode())
    for file in _sources(app.folder):
        digest.update(f"\0{file.relative_to(app.folder)}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    for name in _SOURCES:
        top = folder / name
        files = sorted(top.rglob("*")) if top.is_dir() else [top]
        yield from (file for file in files if file.is_file() and "__pycache__" not in file.parts)


def _holds(marker: Path, wanted: str) -> bool:
    return marker.exists() and marker.read_text() == wanted


def _outputs(cloud: LocalCloud) -> dict[str, dict[str, str]]:
    file = cloud.folder / "outputs.json"
    return json.loads(file.read_text()) if file.exists() else {}


def cdk_synth(cloud: LocalCloud, app: App, progress: Progress = print) -> Path:
    """Write the cloud assembly to `cdk.out` beside the cloud's state; returns its folder.

    Raises:
        DeployError: When the app fails.
    """
    out = cloud.folder / "cdk.out"
    inputs = fingerprint(app)
    if _holds(out / "inputs", inputs):
        progress("synthesis: nothing has changed")
        return out
    shutil.rmtree(out, ignore_errors=True)
    variables = {"CDK_OUTDIR": str(out), "CDK_CONTEXT_JSON": json.dumps(_context(app))}
    phase = _Phase("synthesis", "Correct what it names; scripts/setup brings packages that are missing.")
    _run(cloud, phase, app.command, app.folder, progress, variables)
    out.mkdir(exist_ok=True)
    (out / "inputs").write_text(inputs)
    return out


def _context(app: App) -> dict[str, Any]:
    """The context the CDK's command line would pass: that of cdk.json, and the app's own."""
    file = app.folder / "cdk.json"
    stored: dict[str, Any] = json.loads(file.read_text()).get("context", {}) if file.exists() else {}
    return {**stored, **app.context}


def cdk_bootstrap(cloud: LocalCloud, progress: Progress = print) -> None:
    """Bootstrap the account and region, once in each life of the emulator.

    Raises:
        DeployError: When it fails.
    """
    marker = cloud.folder / "bootstrapped"
    if _holds(marker, cloud.generation):
        return
    # From an empty folder: in the clone's, the CDK would run the app again only to find the environments.
    target = f"aws://{environment.ACCOUNT}/{environment.REGION}"
    phase = _Phase("bootstrap", "Restart the local cloud: `signalbox down`, then `signalbox up`.")
    _run(cloud, phase, [*_cdk(), "bootstrap", target, *_QUIET], _empty(cloud), progress)
    marker.write_text(cloud.generation)


def cdk_deploy(
    cloud: LocalCloud, out: Path, progress: Progress = print, *, concurrency: int = 4
) -> dict[str, dict[str, str]]:
    """Deploy every stack of the assembly in `out`; returns the outputs by stack.

    Raises:
        DeployError: When it fails.
    """
    command = [*_cdk(), "deploy", "--app", str(out), "--all", "--require-approval", "never", "--progress", "events"]
    command += ["--concurrency", str(concurrency), "--outputs-file", str(cloud.folder / "outputs.json"), *_QUIET]
    phase = _Phase("deploy", "Read the first FAILED line above; then `signalbox down` and `signalbox up` start afresh.")
    _run(cloud, phase, command, _empty(cloud), progress)
    return _outputs(cloud)


def _empty(cloud: LocalCloud) -> Path:
    folder = cloud.folder / "empty"
    folder.mkdir(exist_ok=True)
    return folder


def _cdk() -> list[str]:
    if not CDK.exists():
        raise DeployError(f"The CDK's command line is not installed ({CDK} is missing): run scripts/setup.")
    node = Path(sys.executable).parent / "node"
    return [str(node), str(CDK)] if node.exists() else [str(CDK)]


@dataclass(frozen=True)
class _Phase:
    name: str
    remedy: str


def _run(
    cloud: LocalCloud,
    phase: _Phase,
    command: Sequence[str],
    folder: Path,
    progress: Progress,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run a phase: every line goes to its log, and to `progress`; a failure raises DeployError."""
    log = cloud.folder / f"{phase.name}.log"
    begun = time.monotonic()
    environ = {**endpoint_env(cloud), **_CDK_ENV, **(variables or {})}
    last: deque[str] = deque(maxlen=_TAIL)
    process = subprocess.Popen(  # noqa: S603 - our own commands, no shell
        list(command),
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    with log.open("w") as file, process:
        _follow(process, file.write, last, progress)
    if process.returncode != os.EX_OK:
        said = "\n".join(f"  {line}" for line in last)
        raise DeployError(f"{phase.name} failed (exit {process.returncode}). Log: {log}\n{said}\n{phase.remedy}")
    progress(f"{phase.name} done in {time.monotonic() - begun:.1f} s")


def _follow(process: subprocess.Popen[str], write: Any, last: deque[str], progress: Progress) -> None:
    for line in process.stdout or ():
        write(line)
        last.append(line.rstrip())
        progress(line.rstrip())
