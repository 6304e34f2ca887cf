"""What built-in tools need from their host: clients of AWS, secrets, the way to the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shared.errors import PermanentFailure
from shared.settings import HTTP_ALLOWED_HOSTS
from shared.tools import guard
from shared.tools.client import Net
from shared.tools.guard import Allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared.ports import Secrets
    from shared.tools.registry import Call


def _no_aws(service: str, timeout: float) -> Any:  # noqa: ARG001 - the port's form
    raise PermanentFailure(f"This host has no client of {service}.")


class Means(NamedTuple):
    """``aws`` makes a client of a service that does not retry and waits so many seconds; ``resolve`` resolves names."""

    aws: Callable[[str, float], Any] = _no_aws
    secrets: Secrets | None = None
    resolve: Callable[[str, int], Sequence[str]] = guard.system

    def net(self, call: Call, *also: tuple[str, int | None]) -> Net:
        """Return the way outside: to public hosts, those of the setting, and ``also``. Raises PermanentFailure."""
        allowed = Allowed.of(call.settings.get(HTTP_ALLOWED_HOSTS, ""))
        return Net(Allowed(allowed.hosts | frozenset(also)), self.resolve)
