"""What follows from a plan alone, kept: the same few plans are met again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.manifest import StepPlan

T = TypeVar("T")
_MOST = 10_000


class Memo(Generic[T]):
    """Facts of plans, each about a scope. Plans are frozen but have no hash, so they are known by their identity."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[StepPlan, T]] = {}

    def of(self, plan: StepPlan, scope: str, make: Callable[[], T]) -> T:
        """Return what ``make`` has returned for this plan and scope."""
        known = self._known.get((id(plan), scope))
        if known is None or known[0] is not plan:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[id(plan), scope] = plan, make()
        return known[1]
