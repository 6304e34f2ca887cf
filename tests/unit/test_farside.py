from __future__ import annotations

import json

import pytest

from shared.inprocess.farside import FarSide, may_be_secret


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ERP_TOKEN", "x"),
        ("API_KEY", "x"),
        ("APIKEY", "x"),
        ("db-password", "x"),
        ("ERP_URL", "https://ann:pw@erp.example.com"),
        ("ERP_URL", "https://erp.example.com/?access_token=abc"),
        ("HEADERS", '{"authorization": "abc"}'),
        ("HEADER", "Bearer abc"),
        ("DATABASE", "host=db password=abc"),
        ("ACCESS", "b7f3a9c2d4e8416fa0c5"),
        ("ANY", "ghp_" + "a" * 36),
        ("ANY", "it holds hush-hush, which is known"),
    ],
)
def test_what_may_be_a_secret(name, value):
    assert may_be_secret(name, value, ["hush-hush"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ERP_URL", "http://127.0.0.1:8080/base?page=1"),
        ("FOLDER", "/srv/some/folder/of_2026"),
        ("HTTP_ALLOWED_HOSTS", "erp.internal, 10.0.0.8:8080"),
        ("EMAIL_SENDER", "signalbox@example.com"),
        ("KEYBOARD", "de"),
        ("MCP_SERVERS", json.dumps({"crm": {"url": "https://crm.example.com/mcp", "secret": "crm_token"}})),
    ],
)
def test_what_says_only_where(name, value):
    assert not may_be_secret(name, value)


def test_of_what_may_be_secret_the_name_is_kept():
    side = FarSide({"A": "1", "TOKEN": "x", "B": "abcd"}, "at", "https://a:b@example.com", key=True)
    kept = FarSide({"A": "1"}, "at", "", key=True, withheld=("--models-url", "B", "TOKEN"))
    assert side.keepable(["abcd", "1"]) == kept  # a known one that is too short says nothing
