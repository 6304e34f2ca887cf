"""Corrections to the pinned emulator, one module each.

A correction exists only where the emulator differs from AWS in a way a workflow can see. Each
module's docstring says what is wrong upstream; its `apply()` changes the running emulator and
refuses when the text it changes is no longer what it expects. `tests/emulator` proves every one of
them twice: the corrected server behaves like AWS, and a server without it still does not.
"""

import importlib

from scripts.local.corrections.upstream import CorrectionError, check_version

NAMES = (
    "stop",
    "parallel",
    "error_names",
    "worker_survives",
    "stderr_drain",
    "start_sleep",
    "throttle_name",
    "token_errors",
    "token_once",
    "token_fresh",
    "version_arns",
    "start_again",
    "machine_timeout",
    "pollers",
    "reserved_concurrency",
)
"""In the order of application; each stands alone."""


def apply_all(without: frozenset[str] = frozenset()) -> None:
    """Apply every correction except those named in `without`.

    Raises:
        CorrectionError: For an unknown name, another emulator version, or a text that changed upstream.
    """
    unknown = without.difference(NAMES)
    if unknown:
        raise CorrectionError(f"No such correction: {', '.join(sorted(unknown))}. There are: {', '.join(NAMES)}.")
    check_version()
    for name in NAMES:
        if name not in without:
            importlib.import_module(f"scripts.local.corrections.{name}").apply()
