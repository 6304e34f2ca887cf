"""The register of tenants: who has ever been given a token. The sweeper goes through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.ports import Key, Write

if TYPE_CHECKING:
    from shared.ports import Store

_REGISTER = "TENANTS"
_NAME = "NAME#"


def missing(store: Store, tenant: str) -> list[Write]:
    """Return the write that enters a tenant, unless it is in the register; ``store`` is the tenants table."""
    key = Key(_REGISTER, f"{_NAME}{tenant}")
    return [] if key in store.read([key]) else [Write(key, {"tenant": tenant}, None)]


def is_known(store: Store, tenant: str) -> bool:
    """Tell whether a tenant is in the register; ``store`` is the tenants table."""
    key = Key(_REGISTER, f"{_NAME}{tenant}")
    return key in store.read([key])


def tenants(store: Store) -> list[str]:
    """Return the names of all tenants; ``store`` is the tenants table."""
    return [str(item["tenant"]) for item in store.query(_REGISTER, _NAME)]
