"""Runs the emulator in this process, corrected, in a clean environment, on 127.0.0.1 only.

`python -m scripts.local.launcher --port 4566` serves until SIGTERM, SIGINT, or the end of the process
named by `--parent`. Its Lambda processes end with it. `--without NAME` leaves a correction out.
"""

import argparse
import asyncio
import importlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.local import environment, processes, server
from scripts.local.corrections import NAMES, apply_all

_MARK = "SIGNALBOX_LAUNCHER"
_GRACE = 1
"""Seconds that requests under way get at the end."""
_LIMITS = {
    "LAMBDA_WARM_TTL_SECONDS": "60",  # a burst's surplus processes go after a minute
    "LAMBDA_ACCOUNT_CONCURRENCY": "200",  # beyond it AWS's own throttle answers, instead of the laptop's memory
    "IOT_MTLS_ENABLED": "0",  # it would open a port of its own
    "SFTP_ENABLED": "0",
}


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="scripts.local.launcher", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--parent", type=int, help="end when this process ends")
    parser.add_argument("--without", action="append", default=[], choices=NAMES, help="leave a correction out")
    parser.add_argument("--auth", action="store_true", help="enforce the IAM policies of Lambda roles")
    parser.add_argument("--log-level", default="INFO")
    return parser.parse_args(argv)


def server_environment(port: int, home: Path, *, auth: bool, log_level: str) -> dict[str, str]:
    """The whole environment of the emulator, which its Lambda processes inherit."""
    return {
        **environment.clean(home),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "GATEWAY_PORT": str(port),
        "BIND_HOST": environment.HOST,
        "LOG_LEVEL": log_level,
        "AUTH": "true" if auth else "false",
        _MARK: str(home),
        **_LIMITS,
    }


def main(argv: list[str] | None = None) -> None:
    """Start over with a clean environment once, then serve."""
    args = arguments(argv)
    home = os.environ.get(_MARK)
    if home is None:
        home = tempfile.mkdtemp(prefix="signalbox-cloud-")
        variables = server_environment(args.port, Path(home), auth=args.auth, log_level=args.log_level)
        command = [sys.executable, "-m", "scripts.local.launcher", *(sys.argv[1:] if argv is None else argv)]
        os.execve(sys.executable, command, variables)  # noqa: S606 - this very program, no shell
    _serve(args, Path(home), os.environ)


def _serve(args: argparse.Namespace, home: Path, variables: Mapping[str, str]) -> None:
    try:
        apply_all(frozenset(args.without))
        if args.auth:
            _count_as_encrypted()
        asyncio.run(_run(args, variables["BIND_HOST"]))
    except Exception:
        logging.getLogger("signalbox.launcher").exception("the local cloud stopped")
        _leave(home, 1)
    _leave(home, 0)


def _count_as_encrypted() -> None:
    """Let plain HTTP on this machine pass where policies demand TLS, as those of the CDK's own bucket do.

    Without roles' policies enforced nothing asks; with them, nothing could be uploaded and no deployment begin.
    """
    evaluator: Any = importlib.import_module("ministack.core.iam_evaluator")
    pin = evaluator.pin_request_origin

    def pinned(source_ip: str, _encrypted: object) -> None:
        pin(source_ip, True)  # noqa: FBT003 - upstream's form

    evaluator.pin_request_origin = pinned


async def _run(args: argparse.Namespace, host: str) -> None:
    """Serve until told to stop; requests that hang after the grace period are given up."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    app = importlib.import_module("ministack.app").app
    serving = asyncio.create_task(server.serve(app, (host, args.port), stop, grace=_GRACE))
    watching = asyncio.create_task(_watch_parent(args.parent, stop))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    watching.cancel()
    await asyncio.wait({serving}, timeout=_GRACE)
    if serving.done():
        serving.result()
    elif stop.is_set():
        _leave(Path(os.environ[_MARK]), 0)  # asyncio.run would wait for the threads of hanging requests


async def _watch_parent(pid: int | None, stop: asyncio.Event) -> None:
    parent = None if pid is None else processes.identify(pid)
    while pid is not None:
        if parent is None or not processes.alive(parent):
            stop.set()
            return
        await asyncio.sleep(0.5)


def _leave(home: Path, code: int) -> None:
    """End every Lambda process and this one, at once: the emulator's own threads never end by themselves."""
    runtime = importlib.import_module("ministack.core.lambda_runtime")
    for workers in list(runtime._workers.values()):  # noqa: SLF001 - upstream offers no list of its processes
        for worker in workers:
            process = worker._proc  # noqa: SLF001
            if process is not None and process.poll() is None:
                process.kill()
    shutil.rmtree(home, ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
