"""Every execution sleeps 150 ms before its first state."""

from scripts.local.corrections.upstream import rewrite, stepfunctions

NAME = "start_sleep"


def apply() -> None:
    """Start at once."""
    rewrite(NAME, stepfunctions(), "_run_execution", ("    time.sleep(0.15)\n", ""))
