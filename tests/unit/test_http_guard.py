"""The SSRF guard: what a URL may say, and where it may lead."""

from __future__ import annotations

import pytest

from shared.errors import PermanentFailure, Unreached
from shared.tools.guard import Allowed, Target, addresses, system, target_of

NOBODY = Allowed()
UNSPECIFIED = "0.0.0.0"  # noqa: S104 - nothing is bound to it
PUBLIC = "93.184.215.14"


def leads_to(*found):
    return lambda *_: list(found)


def test_a_public_https_url_passes():
    assert target_of("https://api.example.com/a b".replace(" ", "%20") + "?x=1#top", NOBODY) == Target(
        "https", "api.example.com", 443, "/a%20b?x=1"
    )
    assert target_of("https://API.example.com.", NOBODY).host == "api.example.com"
    assert target_of("https://example.com/größe?ä=1", NOBODY).path == "/gr%C3%B6%C3%9Fe?%C3%A4=1"
    target = target_of("https://example.com", NOBODY)
    assert addresses(target, NOBODY, leads_to(PUBLIC, "2606:2800:21f:cb07::1")) == (PUBLIC, "2606:2800:21f:cb07::1")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://example.com/x", "must begin with https://"),
        ("file:" + "///etc/passwd", "must begin with https://"),
        ("gopher://example.com", "must begin with https://"),
        ("example.com", "must begin with https://"),
        ("//example.com", "must begin with https://"),
        ("https:///path", "must begin with https://"),
        ("https://user@example.com/", "user name or password"),
        ("https://user:secret@example.com/", "user name or password"),
        ("https://example.com@127.0.0.1/", "user name or password"),
        ("https://example.com\\@127.0.0.1/", "backslashes"),
        ("https://example.com/\r\nHost: x", "control characters"),
        ("https://example.com/ x", "spaces"),
        ("https://exa\tmple.com/", "control characters"),
        ("https://ex%61mple.com/", "no name of letters"),
        ("https://exämple.com/", "no name of letters"),
        ("https://[::1", "cannot be read|no name"),
        ("https://[fe80::1%25eth0]/", "no name of letters"),
        ("https://example.com:99999/", "no number up to 65535"),
        ("https://example.com:x/", "no number up to 65535"),
        ("http://example.com/", "plain HTTP"),
        ("https://example.com:22/", "Port 22 of example.com is not 443"),
        ("https://127.0.0.1/", "this machine itself"),
        ("https://10.0.0.8/", "private network"),
        ("https://169.254.169.254/latest/meta-data", "link-local"),
        ("https://[::1]/", "this machine itself"),
        ("https://[::ffff:169.254.169.254]/", "link-local"),
        ("https://example.com/" + "x" * 9_000, "over 8,000 characters"),
    ],
)
def test_a_url_is_read_strictly(url: str, message: str):
    with pytest.raises(PermanentFailure, match=message):
        target_of(url, NOBODY)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.8.8.8",
            UNSPECIFIED,
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
        ),
        *("169.254.169.254", "169.254.170.2", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.9"),
        *("224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "100::1", "fec0::1"),
        *("::ffff:10.0.0.1", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:1:1:1:1:f5ff:fffe"),
    ],
)
def test_no_name_leads_inside(address: str):
    target = target_of("https://example.com/", NOBODY)
    with pytest.raises(PermanentFailure, match=r"example\.com leads to"):
        addresses(target, NOBODY, leads_to(address))
    with pytest.raises(PermanentFailure, match=r"example\.com leads to"):
        addresses(target, NOBODY, leads_to(PUBLIC, address))


def test_numbers_that_are_addresses_in_disguise_are_checked_as_what_they_are():
    for host in ("2130706433", "0x7f000001", "127.1", "0177.0.0.1"):
        target = target_of(f"https://{host}/", NOBODY)
        with pytest.raises((PermanentFailure, Unreached)):
            addresses(target, NOBODY, system)


def test_a_deployment_allows_hosts_by_name():
    allowed = Allowed.of(" erp.internal, 127.0.0.1:8080 ,[::1]:81,Bare.Example ")
    assert allowed.hosts == {("erp.internal", None), ("127.0.0.1", 8080), ("::1", 81), ("bare.example", None)}
    for url in ("https://erp.internal/", "http://erp.internal/", "http://127.0.0.1:8080/", "http://[::1]:81/"):
        target = target_of(url, allowed)
        assert addresses(target, allowed, leads_to("10.0.0.1"))
    with pytest.raises(PermanentFailure, match=r"name erp.internal:8080 in the tool setting HTTP_ALLOWED_HOSTS"):
        target_of("http://erp.internal:8080/", allowed)
    with pytest.raises(PermanentFailure, match="this machine itself"):
        target_of("http://127.0.0.1:8081/", allowed)


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "224.0.0.1", "::ffff:169.254.169.254", UNSPECIFIED])
def test_nobody_allows_metadata(address: str):
    allowed = Allowed.of("erp.internal")
    with pytest.raises(PermanentFailure, match="no setting allows that"):
        addresses(target_of("https://erp.internal/", allowed), allowed, leads_to(address))


@pytest.mark.parametrize("text", ["host:port", "a b:x", "::1", ":80"])
def test_a_setting_that_cannot_be_read_says_so(text: str):
    with pytest.raises(PermanentFailure, match="HTTP_ALLOWED_HOSTS holds"):
        Allowed.of(text)


def test_a_name_that_does_not_resolve_was_never_asked():
    def nowhere(host, port):
        raise OSError("unknown name")

    for resolve in (nowhere, leads_to()):
        with pytest.raises(Unreached):
            addresses(target_of("https://example.com/", NOBODY), NOBODY, resolve)
    with pytest.raises(PermanentFailure, match="no address"):
        addresses(target_of("https://example.com/", NOBODY), NOBODY, leads_to("evil"))
