"""The first tenant of a deployment, and a token for it."""

import getpass
import time
from collections.abc import Mapping
from typing import Any

TENANT = "default"


def has_token(client: Any, table: str, tenant: str = TENANT) -> bool:
    """Tell whether the tenant has any token. `client` is a DynamoDB client."""
    from shared.ledger.dynamodb import DynamoStore  # noqa: PLC0415 - half a second

    return bool(DynamoStore(client, table).query(f"TENANT#{tenant}", "TOKEN#", limit=1))


def make_token(client: Any, table: str, approvers: Mapping[str, Any], tenant: str = TENANT) -> str:
    """Make a token that may do everything in `tenant`, and return its text: it can never be shown again."""
    from shared.ledger.dynamodb import DynamoStore  # noqa: PLC0415 - half a second
    from shared.ports import Key, Write  # noqa: PLC0415 - with it
    from shared.tenants import register  # noqa: PLC0415 - with it
    from shared.tenants.tokens import Principal, issue_token  # noqa: PLC0415 - with it

    holder = Principal(
        tenant=tenant,
        name=_user(),
        email=f"{_user()}@localhost",
        roles=frozenset({"admin", "operator", "approver"}),
        approver_roles=frozenset(approvers),
    )
    text, item = issue_token(holder, time.time_ns() // 1_000_000)
    store = DynamoStore(client, table)
    store.commit([Write(Key(item["pk"], item["sk"]), item, None), *register.missing(store, tenant)])
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "admin"
