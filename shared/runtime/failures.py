"""Failed attempts as records: what an error means to the cascade, without anything that must not be kept."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from shared.errors import BudgetExceeded
from shared.ledger.records import Failure
from shared.redaction import redacted_text

if TYPE_CHECKING:
    from shared.budget import rules
    from shared.errors import StepFailure

LONGEST_WISH = 24 * 3600
"""Most seconds that a far side may ask us to wait; more (or no number at all) is none of its business."""


def failure_of(error: StepFailure) -> Failure:
    """Return the record of a failed attempt. Messages come from outside: half characters could not be stored."""
    message = redacted_text(str(error))[:2000].encode(errors="backslashreplace").decode()
    known = Failure(
        error.error_class, message, _wish(error.retry_after), error.uncertain, pause=error.pause, held=error.held
    )
    if isinstance(error, BudgetExceeded):
        return dataclasses.replace(known, level=error.level, dimension=error.dimension, wanted=error.wanted)
    return known


def exceeded(refusal: rules.Refusal) -> BudgetExceeded:
    """Return a refusal as the failure of the attempt that asked."""
    return BudgetExceeded(str(refusal), refusal.level, refusal.dimension, refusal.wanted)


def _wish(seconds: float | None) -> int | None:
    """Return the far side's wish in milliseconds, if it is one that can be granted."""
    return int(seconds * 1000) if seconds is not None and 0 <= seconds <= LONGEST_WISH else None
