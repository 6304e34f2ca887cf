"""The command line in processes of its own, on one folder, as several shells of one person would use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
PATIENCE = 60
"""Seconds that anything may take on a busy machine."""


class Shell:
    """Starts commands on the runs of ``folder``; nothing of the user's own shell is in their environment."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("ANTHROPIC", "SIGNALBOX", "AWS"))}
        places = {"SIGNALBOX_RUNS": str(folder / "runs.db"), "SIGNALBOX_LOCAL_FOLDER": str(folder / "none")}
        self.environment = kept | places | variables

    def write(self, name: str, text: str, tools: str) -> str:
        """Write a workflow file, and the module of its tools beside it. Returns the file's path."""
        (self.folder / "tools").mkdir()
        (self.folder / "tools" / "own.py").write_text(tools)
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def start(self, *arguments: str, **given: Any) -> subprocess.Popen[str]:
        """Start a command."""
        line = [sys.executable, "-m", "scripts.cli", *arguments]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(line, cwd=ROOT, env=self.environment, text=True, **(pipes | given))

    def __call__(self, *arguments: str, code: int = 0) -> Any:
        """Run a command with --json to its end; return what it printed, one value or a list of lines."""
        done = self.start(*arguments, "--json")
        out, errors = done.communicate(timeout=PATIENCE)
        assert done.returncode == code, (done.returncode, out, errors)
        assert not errors, errors
        try:
            return json.loads(out)
        except ValueError:
            return [json.loads(line) for line in out.splitlines()]

    def words(self, *arguments: str, code: int = 0) -> str:
        """Run a command to its end; return all its words."""
        done = self.start(*arguments, stderr=subprocess.STDOUT)
        out, _ = done.communicate(timeout=PATIENCE)
        assert done.returncode == code, (done.returncode, out)
        assert "Traceback" not in out
        return out

    def watched(self, *arguments: str) -> Watched:
        """Start a command that prints JSON lines until it ends."""
        return Watched(self.start(*arguments, "--json"))

    def run(self, run: str) -> dict[str, Any]:
        """Return a run as `runs show` does."""
        return self("runs", "show", run)

    def kinds(self, run: str) -> list[str]:
        """Return a run's events, each as ``type:path``."""
        events = self("runs", "events", run)["events"]
        assert [each["seq"] for each in events] == list(range(1, len(events) + 1))
        return [f"{each['type']}:{each['path']}" if each["path"] else each["type"] for each in events]


class Watched:
    """A running command and the JSON lines that it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.lines = process, list[dict[str, Any]]()
        self._news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._news:
                self.lines.append(json.loads(line))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first line of which ``holds`` is true, as soon as it is there."""
        end = time.monotonic() + PATIENCE
        with self._news:
            while not (found := next(filter(holds, self.lines), None)):
                assert self._news.wait(end - time.monotonic()), f"it has not come: {self.lines}"
                assert self.process.poll() is None or any(map(holds, self.lines)), self.lines
        return found

    def seen(self, kind: str, path: str | None = None) -> dict[str, Any]:
        """Return the first event of a kind, as soon as it is there."""
        return self.until(lambda line: line.get("type") == kind and path in {None, line.get("path")})

    @property
    def id(self) -> str:
        """The run's id."""
        return str(self.until(lambda line: "run" in line)["run"])

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def end(self, code: int = 0) -> dict[str, Any]:
        """Wait for its end; return the last line."""
        found = self.until(lambda line: "state" in line)
        assert self.process.wait(PATIENCE) == code
        return found
