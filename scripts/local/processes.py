"""Background processes: started in a session of their own, recognised by pid and start time, ended as a group."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_DYING = 10.0
"""Seconds that a killed process may take to be gone: nothing can keep it, but it must get its turn."""
_POLL = 0.02
"""Seconds between two looks at a process."""


@dataclass(frozen=True)
class Identity:
    """A process: its pid, and when it started, so that a recycled pid is never taken for it."""

    pid: int
    started: str


def identify(pid: int) -> Identity | None:
    """The process with this pid, or None when there is none (or only a zombie is left)."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The second field is the command in parentheses and may itself hold spaces and parentheses.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        # Ticks since boot, so the boot belongs to it.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        return None if fields[0] == "Z" else Identity(pid, f"{boot}-{fields[19]}")
    return _identify_by_ps(pid)


def _identify_by_ps(pid: int) -> Identity | None:
    command = ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split(maxsplit=1)  # noqa: S603
    return Identity(pid, answer[1].strip()) if len(answer) > 1 and not answer[0].startswith("Z") else None


def alive(process: Identity) -> bool:
    """Whether exactly this process still runs."""
    return identify(process.pid) == process


def spawn(command: Sequence[str], *, variables: Mapping[str, str], folder: Path, log: Path) -> Identity:
    """Start `command` as the leader of a new session, its output appended to `log`.

    Raises:
        RuntimeError: When it ended before it could be identified.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - our own commands, no shell
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(variables),
            start_new_session=True,
        )
    found = identify(process.pid)
    if found is None:
        raise RuntimeError(f"{command[0]} ended at once: see {log}")
    return found


def end(process: Identity, grace: float = 5.0) -> None:
    """End a process started by `spawn` and everything in its session: SIGTERM, then after `grace` seconds SIGKILL.

    Does nothing when the process is gone or its pid belongs to another one by now.
    """
    if not alive(process):
        return
    os.kill(process.pid, signal.SIGTERM)
    _wait_until_gone(process, grace)
    # A group id is not given to a new process while the group has members, so this hits only what we started;
    # with the leader gone and no member left there is nothing to hit.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _wait_until_gone(process, _DYING)


def _wait_until_gone(process: Identity, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while alive(process) and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError, OSError):
            os.waitpid(process.pid, os.WNOHANG)
        time.sleep(_POLL)
