"""One lock a run, held by the process that drives it: the in-process host's lease.

The operating system gives a lock back when its process ends, however that happens, so a run can be taken over the very
moment its process is dead, and never before. All locks are bytes of one file: a thousand runs cost one descriptor.
"""

from __future__ import annotations

import fcntl
import os
import threading
from typing import TYPE_CHECKING

from shared.ids import sha256

if TYPE_CHECKING:
    from pathlib import Path


class RunLocks:
    """The locks of the runs in one store. Make one object a process and file: POSIX locks belong to the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: set[str] = set()
        self._guard = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def acquire(self, run: str) -> bool:
        """Take the lock of a run; False while another process has it. Taking it again is harmless."""
        with self._guard:
            if run in self._held:
                return True
            if not self._lock(run):
                return False
            self._held.add(run)
            return True

    def release(self, run: str) -> None:
        """Give the lock of a run back."""
        with self._guard:
            if run in self._held:
                self._held.discard(run)
                self._unlock(run)

    def is_free(self, run: str) -> bool:
        """Tell whether no process drives the run."""
        with self._guard:
            if run in self._held or not self._lock(run):
                return False
            self._unlock(run)
            return True

    def close(self) -> None:
        """Give all locks back."""
        os.close(self._file)

    def _lock(self, run: str) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(run))
        except OSError:
            return False
        return True

    def _unlock(self, run: str) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(run))


def _place(run: str) -> int:
    return int(sha256(run.encode())[:15], 16)
