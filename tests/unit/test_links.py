"""Links are genuine, unexpired and unchanged, or they are refused without a word about why."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict

import pytest

from shared.approvals.links import Link, LinkExpired, key_id, sign, verify
from shared.errors import NotFound

KEY, OTHER = b"a" * 32, b"b" * 32
LINK = Link("acme", "01M3250V00MRCMF029XDHYCAZ4", "review", "0123456789abcdef", "fiona@example.com", 2000)


def test_a_signed_link_says_whom_it_is_for():
    assert verify(sign(LINK, KEY), [KEY], 1999) == LINK


def test_a_link_of_an_older_key_still_opens_while_that_key_is_known():
    assert verify(sign(LINK, OTHER), [KEY, OTHER], 0) == LINK
    with pytest.raises(NotFound):
        verify(sign(LINK, OTHER), [KEY], 0)


def test_a_link_names_its_key_without_telling_it():
    payload = sign(LINK, KEY).split(".")[0]
    data = json.loads(base64.urlsafe_b64decode(payload + "=="))
    assert data == {**asdict(LINK), "kid": key_id(KEY)}
    assert key_id(KEY) != key_id(OTHER)


def test_a_link_expires_to_the_millisecond():
    with pytest.raises(LinkExpired) as refused:
        verify(sign(LINK, KEY), [KEY], 2000)
    assert refused.value.status == 410


def test_no_change_of_one_character_passes():
    token = sign(LINK, KEY)
    for place in range(len(token)):
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        with pytest.raises(NotFound):
            verify(changed, [KEY], 0)


@pytest.mark.parametrize("token", ["", ".", "a", "a.b", "..", "é.ü", "\ud800.x", "a" * 5000, "a.b.c"])
def test_nonsense_is_refused_like_any_unknown_link(token: str):
    with pytest.raises(NotFound):
        verify(token, [KEY], 0)
    with pytest.raises(NotFound):
        verify(f"{sign(LINK, KEY)}x", [KEY], 0)


def test_without_a_key_nothing_opens():
    with pytest.raises(NotFound):
        verify(sign(LINK, KEY), [], 0)
