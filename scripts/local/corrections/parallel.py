"""Parallel waits for every branch although one has failed, and all branches share one context object.

Sharing means that `$$.State.Name`, `$$.State.RetryCount` and `$$.Task.Token` in one branch may be a
sibling's. AWS fails the state at once and stops the other branches.
"""

import threading
from collections.abc import Sequence

from scripts.local.corrections import scopes
from scripts.local.corrections.upstream import rewrite, stepfunctions

NAME = "parallel"
_GLANCE = 0.005
"""Seconds between two looks at the branches; their threads offer nothing better to wait for."""


def apply() -> None:
    """Give each branch a context and a scope of its own, and stop at the first error."""
    rewrite(
        NAME,
        stepfunctions(),
        "_run_parallel_branches",
        (
            "    def run_branch(idx, branch):\n",
            (
                "    scopes = [_branches.begin() for _ in branches]\n"
                "    contexts = [copy.deepcopy(ctx) for _ in branches]\n\n"
                "    def run_branch(idx, branch):\n        _branches.enter(scopes[idx])\n"
            ),
        ),
        ("effective, execution, ctx)", "effective, execution, contexts[idx])"),
        ("    for t in threads:\n        t.join()\n", "    _branches.join(threads, errors, scopes)\n"),
        names={"_branches": _Branches},
    )


class _Branches:
    """What the rewritten text calls."""

    @staticmethod
    def begin() -> scopes.Scope:
        return scopes.Scope(scopes.current.get())

    @staticmethod
    def enter(scope: scopes.Scope) -> None:
        scopes.current.set(scope)

    @staticmethod
    def join(threads: Sequence[threading.Thread], errors: Sequence[object], begun: Sequence[scopes.Scope]) -> None:
        """Return when all branches are done or the first has failed; then end them all."""
        for thread in threads:
            while thread.is_alive() and not any(error is not None for error in errors):
                thread.join(_GLANCE)
        for scope in begun:
            scope.end()
