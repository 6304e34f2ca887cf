"""Bearer tokens: ``sbx_<tenant>_<43 characters>``. Only their SHA-256 is stored, so a leaked table opens nothing.

The token names its tenant, so checking it is one read of one key. A token that does not exist, has expired or is
malformed gets the same answer.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from shared.errors import Forbidden, InvalidRequest, Unauthenticated
from shared.ids import sha256
from shared.ports import Key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.ports import Item, Store

Role = Literal["viewer", "operator", "approver", "admin"]

TENANT = re.compile(r"[a-z][a-z0-9-]{0,39}", re.ASCII)
"""Form of a tenant's name; it holds no underscore, so that a token can be taken apart."""
_TOKEN = re.compile(rf"sbx_({TENANT.pattern})_[A-Za-z0-9_-]{{43}}", re.ASCII)
_ALLOWS: dict[Role, frozenset[str]] = {
    "viewer": frozenset(get_args(Role)),
    "operator": frozenset({"operator", "admin"}),
    "approver": frozenset({"approver", "admin"}),
    "admin": frozenset({"admin"}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls: one holder of one token. ``approver_roles`` are the groups for which an approver may decide."""

    tenant: str
    name: str
    email: str
    roles: frozenset[str]
    approver_roles: frozenset[str] = frozenset()

    def may(self, role: Role) -> bool:
        """Tell whether the roles cover ``role``. Everybody may read; an admin may do everything."""
        return bool(self.roles & _ALLOWS[role])

    def may_decide(self, roles: Iterable[str]) -> bool:
        """Tell whether a gate that asks one of ``roles`` may be decided."""
        return "admin" in self.roles or (self.may("approver") and bool(self.approver_roles & set(roles)))


def issue_token(holder: Principal, now: int, *, expires: int | None = None) -> tuple[str, Item]:
    """Make a token for ``holder``. Returns its text, which is shown once, and the item of the tenants table.

    ``now`` in milliseconds; ``expires`` in seconds since the epoch (the table's TTL attribute), None = never. Raises
    InvalidRequest for a tenant name or role that does not exist.
    """
    unknown = holder.roles - set(get_args(Role))
    if TENANT.fullmatch(holder.tenant) is None:
        raise InvalidRequest(f"Tenant {holder.tenant!r}: use 1 to 40 of a-z, 0-9 and -, starting with a letter.")
    if unknown or not holder.roles:
        raise InvalidRequest(f"Roles {sorted(unknown)} do not exist. Use some of: {', '.join(get_args(Role))}.")
    text = f"sbx_{holder.tenant}_{secrets.token_urlsafe(32)}"
    key = _key(holder.tenant, text)
    item: dict[str, Any] = {
        "pk": key.pk,
        "sk": key.sk,
        "name": holder.name,
        "email": holder.email,
        "roles": sorted(holder.roles),
        "approver_roles": sorted(holder.approver_roles),
        "created": now,
        "rev": 1,
    }
    return text, item | ({"expires": expires, "ttl": expires} if expires else {})


def authenticate(header: str | None, store: Store, now: int) -> Principal:
    """Return who the ``Authorization`` header belongs to. ``now`` in milliseconds. Raises Unauthenticated."""
    if not header:
        raise Unauthenticated("A token is needed. Send it as `Authorization: Bearer sbx_...`.", code="token_missing")
    scheme, _, text = header.strip().partition(" ")
    text = text.strip()
    found = _TOKEN.fullmatch(text) if scheme.lower() == "bearer" else None
    item = _stored(found[1], text, store) if found else None
    if found is None or item is None or item.get("expires", now // 1000 + 1) <= now // 1000:
        raise Unauthenticated("The token is not valid. It may be misspelt, expired or withdrawn: ask for a new one.")
    return Principal(
        tenant=found[1],
        name=item["name"],
        email=item["email"],
        roles=frozenset(cast("list[str]", item["roles"])),
        approver_roles=frozenset(cast("list[str]", item["approver_roles"])),
    )


def require(principal: Principal, role: Role) -> None:
    """Raise Forbidden unless the principal's roles cover ``role``."""
    if not principal.may(role):
        allowed = " or ".join(sorted(_ALLOWS[role]))
        raise Forbidden(f"This needs the role {allowed}; this token has {', '.join(sorted(principal.roles))}.")


def _key(tenant: str, text: str) -> Key:
    return Key(f"TENANT#{tenant}", f"TOKEN#{sha256(text.encode())}")


def _stored(tenant: str, text: str, store: Store) -> Item | None:
    """Look the token up by its digest: how long that takes tells nothing about the text of any other token."""
    key = _key(tenant, text)
    item = store.read([key]).get(key)
    return item if item and hmac.compare_digest(str(item["sk"]), key.sk) else None
