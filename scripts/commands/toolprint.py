"""What tools print: it goes to stderr, since stdout belongs to the command's own answer."""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TextIO

CALLERS = "signalbox-"
"""Start of the names of the threads in which an in-process host calls tools."""


class _Sorted:
    """Standard output, but for what is written by the threads that call tools."""

    def __init__(self, own: TextIO) -> None:
        self._own = own

    def write(self, text: str) -> int:
        """Write where it belongs."""
        return (sys.stderr if threading.current_thread().name.startswith(CALLERS) else self._own).write(text)

    def __getattr__(self, name: str) -> Any:
        """Be standard output in everything else."""
        return getattr(self._own, name)


@contextmanager
def tools_print_to_stderr() -> Generator[None]:
    """Keep stdout clean as long as the block lasts."""
    own, sorted_ = sys.stdout, _Sorted(sys.stdout)
    sys.stdout = sorted_  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        sys.stdout = own
