"""The local cloud's life: start, reuse, inspect and stop the emulator, the rehearsal and the ERP.

State is in `.signalbox/local/` of this clone: `state.json` (pids with their start times, ports), `lock`,
and a log for each service. Only processes recorded there, with the same start time, are ever touched.
"""

import fcntl
import json
import shutil
import socket
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.local import environment, processes
from scripts.local.processes import Identity

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".signalbox" / "local"
SENDER = "signalbox@example.com"
"""The address that mail comes from; verified at start."""
_READY = 60.0
"""Seconds that a service may take to answer."""
_PATIENCE = 300.0
"""Seconds to wait for another `start` or `stop` of the same clone."""
_POLL = 0.05
_TAIL = 15
"""Lines of a log that an error shows."""
Progress = Callable[[str], None]


class CloudError(RuntimeError):
    """The local cloud cannot be started or stopped; the message says why and what to do."""


@dataclass(frozen=True)
class Service:
    """One background process of the local cloud: what runs, and the path that answers 200 when it is ready."""

    name: str
    title: str
    module: str
    ready: str

    def command(self, port: int) -> Sequence[str]:
        """The command line."""
        return [sys.executable, "-m", self.module, "--port", str(port)]


SERVICES = (
    Service("aws", "embedded AWS", "scripts.local.launcher", "/_ministack/ready"),
    Service("rehearsal", "rehearsed models", "scripts.local.rehearsal", "/_rehearsal/health"),
    Service("erp", "ERP", "scripts.local.erp", "/_erp/health"),
)


@dataclass(frozen=True)
class Running:
    """A service that was started: its process and where it listens."""

    process: Identity
    port: int

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://{environment.HOST}:{self.port}"


@dataclass(frozen=True)
class LocalCloud:
    """A running local cloud.

    `generation` names this life of the emulator: its memory, with all that was deployed, is gone when it changes.
    """

    aws: Running
    rehearsal: Running
    erp: Running
    folder: Path

    @property
    def url(self) -> str:
        """The endpoint of every AWS service."""
        return self.aws.url

    @property
    def generation(self) -> str:
        """Differs between any two lives of the emulator."""
        return f"{self.aws.process.pid}-{self.aws.process.started}"

    def api_url(self, api_id: str) -> str:
        """The base URL of an HTTP API, for programs and browsers."""
        return f"{self.url}/_aws/execute-api/{api_id}"

    @property
    def mail_url(self) -> str:
        """Where sent mail can be read."""
        return f"{self.url}/_ministack/ses/messages"


@dataclass(frozen=True)
class Status:
    """What runs (by service name) and what is recorded but gone or silent."""

    running: Mapping[str, Running]
    stale: Sequence[str]

    @property
    def healthy(self) -> bool:
        """Whether every service runs and answers."""
        return len(self.running) == len(SERVICES)


def start(progress: Progress = print, folder: Path = FOLDER) -> LocalCloud:
    """Start what does not run yet, reuse what does, and verify the mail sender.

    Raises:
        CloudError: When a service does not become ready; the message shows the end of its log.
    """
    with _locked(folder, progress):
        running = {s.name: _ensure(s, folder, progress) for s in SERVICES}
        cloud = LocalCloud(folder=folder, **running)
        _verify_sender(cloud)
        return cloud


def stop(progress: Progress = print, folder: Path = FOLDER) -> Sequence[str]:
    """End every service that `start` began, with all their children; returns the names of those that ran."""
    with _locked(folder, progress):
        recorded = _read(folder)
        ended = [name for name, running in recorded.items() if processes.alive(running.process)]
        for name, running in recorded.items():
            processes.end(running.process)
            progress(f"stopped {name}" if name in ended else f"{name} was not running")
        _write(folder, {})
        return ended


def status(folder: Path = FOLDER) -> Status:
    """What runs now. Changes nothing."""
    recorded = _read(folder)
    running = {s.name: recorded[s.name] for s in SERVICES if s.name in recorded and _healthy(s, recorded[s.name])}
    return Status(running, [name for name in recorded if name not in running])


def attach(folder: Path = FOLDER) -> LocalCloud:
    """The cloud that runs.

    Raises:
        CloudError: When it does not run completely.
    """
    found = status(folder)
    if not found.healthy:
        missing = ", ".join(s.title for s in SERVICES if s.name not in found.running)
        raise CloudError(f"The local cloud is not running ({missing} missing): start it with `signalbox up`.")
    return LocalCloud(folder=folder, **found.running)


def endpoint_env(cloud: LocalCloud) -> dict[str, str]:
    """The complete environment for a program that is to see the local cloud as AWS, and nothing else.

    Use it instead of the user's environment, not on top of it: no credential of the user's is in it.
    """
    home = cloud.folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    return {**environment.clean(home), **environment.aws(cloud.url)}


def _ensure(service: Service, folder: Path, progress: Progress) -> Running:
    recorded = _read(folder)
    before = recorded.get(service.name)
    if before is not None and _healthy(service, before):
        progress(f"{service.title} runs on {before.url}")
        return before
    if before is not None:
        processes.end(before.process)
    running = _spawn(service, folder, before.port if before is not None else 0)
    _write(folder, {**recorded, service.name: running})
    _await(service, running, folder)
    progress(f"{service.title} started on {running.url}")
    return running


def _spawn(service: Service, folder: Path, preferred: int) -> Running:
    port = _free_port(preferred)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    log = _log(service, folder)
    log.write_bytes(b"")
    variables = environment.clean(home)
    if service.name == "aws":
        del variables["TMPDIR"]  # the launcher makes a folder of its own for what Lambda unpacks
    return Running(processes.spawn(service.command(port), variables=variables, folder=ROOT, log=log), port)


def _log(service: Service, folder: Path) -> Path:
    return folder / f"{service.name}.log"


def _await(service: Service, running: Running, folder: Path) -> None:
    deadline = time.monotonic() + _READY
    while not _answers(running.url + service.ready):
        gone = not processes.alive(running.process)
        if gone or time.monotonic() > deadline:
            processes.end(running.process)
            log = _log(service, folder)
            said = "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-_TAIL:])
            why = "ended while starting" if gone else f"did not answer within {_READY:.0f} s"
            raise CloudError(
                f"The {service.title} {why}. Log: {log}\n{said}\nRun scripts/setup, then `signalbox up` again."
            )
        time.sleep(_POLL)


def _healthy(service: Service, running: Running) -> bool:
    return processes.alive(running.process) and _answers(running.url + service.ready, timeout=10)


def _answers(url: str, timeout: float = 2) -> bool:
    try:
        with _opener().open(url, timeout=timeout) as answer:
            return answer.status == 200  # noqa: PLR2004 - OK
    except OSError:
        return False


def _opener() -> urllib.request.OpenerDirector:
    """Opens URLs on this machine, whatever proxy the user's environment names."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _free_port(preferred: int) -> int:
    """The preferred port if it is free (so that links stay valid over a restart), else any."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((environment.HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise CloudError(f"There is no free port on {environment.HOST}: end some programs and try again.")


def _verify_sender(cloud: LocalCloud) -> None:
    """Ask SES to verify the sender. Plain HTTP: an AWS client would read the user's own profile and credentials."""
    scope = f"test/20260101/{environment.REGION}/ses/aws4_request"
    headers = {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=none"}
    form = urllib.parse.urlencode({"Action": "VerifyEmailIdentity", "EmailAddress": SENDER, "Version": "2010-12-01"})
    request = urllib.request.Request(cloud.url + "/", form.encode(), headers)  # noqa: S310 - our own http address
    try:
        with _opener().open(request, timeout=10):
            return
    except OSError as error:
        raise CloudError(
            f"The mail sender {SENDER} could not be verified ({error}): see {cloud.folder / 'aws.log'}."
        ) from None


@contextmanager
def _locked(folder: Path, progress: Progress) -> Generator[None]:
    """Let one `start` or `stop` of this clone run at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        deadline = time.monotonic() + _PATIENCE
        while not _try_lock(lock.fileno()):
            if deadline - time.monotonic() > _PATIENCE - _POLL:
                progress("waiting for another start or stop of the local cloud")
            if time.monotonic() > deadline:
                raise CloudError(f"Another start or stop holds {folder / 'lock'} for {_PATIENCE:.0f} s: end it.")
            time.sleep(_POLL)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(folder: Path) -> dict[str, Running]:
    """The recorded services; an unreadable record counts as none."""
    try:
        content: dict[str, Any] = json.loads((folder / "state.json").read_text())
        return {name: Running(Identity(s["pid"], s["started"]), s["port"]) for name, s in content.items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _write(folder: Path, services: Mapping[str, Running]) -> None:
    content = {n: {"pid": r.process.pid, "started": r.process.started, "port": r.port} for n, r in services.items()}
    new = folder / "state.json.new"
    new.write_text(json.dumps(content, indent=1))
    new.replace(folder / "state.json")


def clean(folder: Path = FOLDER) -> None:
    """Remove everything the local cloud has left in `folder`. Stop it first."""
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """`python -m scripts.local.cloud start|stop|status`, for trying without the CLI."""
    action = {"start": start, "stop": stop, "status": status}[sys.argv[1]]
    print(action())


if __name__ == "__main__":
    main()
