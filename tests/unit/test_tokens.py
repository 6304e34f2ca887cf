"""Bearer tokens: stored hashed, checked by one read, with roles."""

from __future__ import annotations

import hashlib

import pytest

from shared.errors import Forbidden, InvalidRequest, Unauthenticated
from shared.ports import Key, Write
from shared.tenants.tokens import Principal, authenticate, issue_token, require
from shared.testing import MemoryStore

NOW = 1_790_000_000_000
HOLDER = Principal("acme", "Ina", "ina@example.com", frozenset({"approver"}), frozenset({"finance"}))


def stored(holder: Principal = HOLDER, expires: int | None = None) -> tuple[str, MemoryStore]:
    text, item = issue_token(holder, NOW, expires=expires)
    store = MemoryStore()
    store.commit([Write(Key(item["pk"], item["sk"]), item, None)])
    return text, store


def test_a_token_says_who_calls():
    text, store = stored()
    assert authenticate(f"Bearer {text}", store, NOW) == HOLDER
    assert authenticate(f"bearer   {text}", store, NOW) == HOLDER


def test_the_token_itself_is_not_stored():
    text, store = stored()
    ((key, item),) = store.items.items()
    assert key == Key("TENANT#acme", f"TOKEN#{hashlib.sha256(text.encode()).hexdigest()}")
    assert text not in repr(item)
    assert text.removeprefix("sbx_acme_") not in repr(item)


def test_two_tokens_of_one_holder_differ_and_have_256_bits():
    texts = {issue_token(HOLDER, NOW)[0] for _ in range(20)}
    assert len(texts) == 20
    assert {len(text.removeprefix("sbx_acme_")) for text in texts} == {43}


def test_a_token_ends_at_its_expiry():
    text, store = stored(expires=NOW // 1000 + 10)
    assert authenticate(f"Bearer {text}", store, NOW + 9_999) == HOLDER
    with pytest.raises(Unauthenticated):
        authenticate(f"Bearer {text}", store, NOW + 10_000)


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text[:-1], lambda text: f"{text}x", lambda text: f"{text} x"]
)
def test_a_changed_token_is_refused(change):
    text, store = stored()
    with pytest.raises(Unauthenticated, match="not valid"):
        authenticate(f"Bearer {change(text)}", store, NOW)


@pytest.mark.parametrize(
    "header", ["Bearer", "Basic x", "Bearer sbx_acme_", "sbx_acme_x", "Bearer \x00", "Bearer sbx__x"]
)
def test_any_other_header_is_refused_without_a_read(header: str):
    class Unread(MemoryStore):
        def read(self, keys):
            raise AssertionError(keys)

    with pytest.raises(Unauthenticated, match="not valid"):
        authenticate(header, Unread(), NOW)


@pytest.mark.parametrize("header", [None, ""])
def test_a_missing_header_gets_a_hint(header: str | None):
    with pytest.raises(Unauthenticated) as refused:
        authenticate(header, MemoryStore(), NOW)
    assert refused.value.problem == "token_missing"


def test_a_token_of_one_tenant_opens_no_other():
    text, store = stored()
    with pytest.raises(Unauthenticated):
        authenticate("Bearer " + text.replace("sbx_acme", "sbx_evil"), store, NOW)


@pytest.mark.parametrize(
    ("roles", "allowed"),
    [
        ({"viewer"}, {"viewer"}),
        ({"operator"}, {"viewer", "operator"}),
        ({"approver"}, {"viewer", "approver"}),
        ({"admin"}, {"viewer", "operator", "approver", "admin"}),
        ({"operator", "approver"}, {"viewer", "operator", "approver"}),
    ],
)
def test_roles_cover_what_they_say(roles, allowed):
    principal = Principal("acme", "x", "x@example.com", frozenset(roles))
    for role in ("viewer", "operator", "approver", "admin"):
        if role in allowed:
            require(principal, role)
        else:
            with pytest.raises(Forbidden):
                require(principal, role)


def test_approvers_decide_for_their_groups_and_admins_for_all():
    assert HOLDER.may_decide(["finance", "legal"])
    assert not HOLDER.may_decide(["legal"])
    assert Principal("acme", "x", "x", frozenset({"admin"})).may_decide(["legal"])
    assert not Principal("acme", "x", "x", frozenset({"operator"}), frozenset({"legal"})).may_decide(["legal"])


@pytest.mark.parametrize("tenant", ["", "Acme", "a_b", "a#b", "x" * 41])
def test_a_tenants_name_must_fit_into_a_token(tenant: str):
    with pytest.raises(InvalidRequest):
        issue_token(Principal(tenant, "x", "x", frozenset({"viewer"})), NOW)


@pytest.mark.parametrize("roles", [set(), {"root"}])
def test_only_known_roles_are_given(roles):
    with pytest.raises(InvalidRequest, match="viewer"):
        issue_token(Principal("acme", "x", "x", frozenset(roles)), NOW)
