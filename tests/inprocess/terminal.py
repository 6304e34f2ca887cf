"""A command with a terminal of its own: what a person would see on it, and type."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

from shell import PATIENCE, ROOT

if TYPE_CHECKING:
    from shell import Shell

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
CTRL_C, CTRL_D = "\x03", "\x04"
PRESSES = 10


class Terminal:
    """Starts a command on a pseudo-terminal; waits for what it shows, never for a time."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        environment = {**shell.environment, "TERM": "xterm", "COLUMNS": "160"}
        self.raw, self._read_to, self._code = "", 0, None
        self.pid, self._fd = pty.fork()
        if not self.pid:
            os.chdir(ROOT)
            os.execve(sys.executable, [sys.executable, "-m", "scripts.cli", *arguments], environment)  # noqa: S606

    @property
    def shown(self) -> str:
        """Everything that was shown so far, without colours."""
        return _CONTROL.sub("", self.raw)

    def expect(self, text: str) -> str:
        """Wait until ``text`` is shown, after what was waited for before; return what came up to it."""
        end = time.monotonic() + PATIENCE
        while (found := self.shown.find(text, self._read_to)) < 0:
            assert self._more(end), f"{text!r} is not shown: {self.shown}"
        seen, self._read_to = self.shown[self._read_to : found], found + len(text)
        return seen

    def type(self, text: str) -> None:
        """Type."""
        os.write(self._fd, text.encode())

    def press(self, key: str, text: str) -> None:
        """Press a key until ``text`` is shown.

        A signal that comes after Python has looked for one and before ``input`` waits in the kernel wakes nobody; a
        person presses Ctrl-C again then.
        """
        for _ in range(PRESSES):
            self.type(key)
            end = time.monotonic() + PATIENCE / PRESSES
            while text not in self.shown and select.select([self._fd], [], [], max(0, end - time.monotonic()))[0]:
                if not self._more(end + PATIENCE):
                    break
            if text in self.shown:
                return
        self.expect(text)

    def sign(self, by: str = "", note: str = "") -> None:
        """Answer who decides, and with which note."""
        self.answer("Signed by", by)
        self.answer("Note", note)

    def answer(self, question: str, text: str) -> None:
        """Wait for a question and answer it with a line."""
        self.expect(question)
        self.type(f"{text}\n")

    def end(self) -> int:
        """Wait for the command's end; return its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._more(deadline):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        """End it as a power cut would."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def _more(self, deadline: float) -> bool:
        """Read what has come; False = the command has closed its terminal."""
        ready, _, _ = select.select([self._fd], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"nothing more is shown: {self.shown}"
        try:
            part = os.read(self._fd, 65536)
        except OSError:  # Linux says so when the other side is closed
            return False
        self.raw += part.decode(errors="replace")
        return bool(part)
