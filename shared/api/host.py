"""What the API function is given, and what an endpoint is called with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.ledger.records import run_partition
from shared.runtime.host import NO_SECRETS, Host
from shared.runtime.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.api.web import Request
    from shared.ports import Secrets, Store
    from shared.tenants.tokens import Principal


@dataclass(frozen=True, slots=True)
class ApiHost(Host):
    """The ports of the API function.

    ``tokens`` is the tenants table and ``catalogue`` the definitions table, as stores. ``start`` hands a payload to the
    function that starts runs and returns its answer, ``sweep`` one to the sweeper. ``unwind_machine`` is that machine's
    ARN. ``secrets`` are those that webhooks are signed with, ``environment`` is the deployment's name,
    ``schedules`` tells whether it has those of the workflows.
    """

    tokens: Store
    catalogue: Store
    start: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    sweep: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    unwind_machine: str
    secrets: Secrets = NO_SECRETS
    environment: str = "local"
    schedules: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated call of an endpoint: the request, who sent it, and the names in its path."""

    request: Request
    principal: Principal
    names: Mapping[str, str]

    @property
    def tenant(self) -> str:
        """The caller's tenant: nothing of another one is ever read."""
        return self.principal.tenant

    @property
    def by(self) -> str:
        """How the caller stands in records: their address, so that gates can compare it with approvers'."""
        return self.principal.email

    def journal(self, host: Host, run: str) -> Journal:
        """Return the journal of one of the tenant's runs."""
        return Journal(host.store, host.clock, self.tenant, run)

    def partition(self, run: str) -> str:
        """Return the partition of one of the tenant's runs."""
        return run_partition(self.tenant, run)
