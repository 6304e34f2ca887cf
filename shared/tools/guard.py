"""The SSRF guard: which addresses a workflow may reach over HTTP.

A URL may come from an input, a model or a far side, so nothing is believed of it. It is read strictly; its name is
resolved here, every address that it has is checked, and the connection goes to exactly these addresses, so a second
answer of the name server changes nothing. Hosts that the deployment names may also stand in a private network, speak
plain HTTP and listen on other ports; no host may stand where only machines of a cloud talk to themselves (metadata).
"""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

from shared.errors import PermanentFailure, Unreached
from shared.settings import HTTP_ALLOWED_HOSTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from urllib.parse import SplitResult

PORTS = {"https": 443, "http": 80}
LONGEST_URL = 8_000
_HOST = re.compile(r"(?!-|.{254})[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*(?<!-)")
_HALF = re.compile(r"[\ud800-\udfff]")
_SAFE = "/%:@!$&'()*+,;=~-._[]"
_NAT64 = IPv6Network("64:ff9b::/96")
_NOBODYS = (
    IPv6Network("64:ff9b:1::/48"),
    IPv6Network("fec0::/10"),
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
)
"""What some releases of Python take for global. Source: IANA special-purpose address registries, RFC 3879."""
_CLOUD = IPv6Network("fd00:ec2::/32")
"""AWS's own services for an instance over IPv6: metadata, name server, time."""

Address = IPv4Address | IPv6Address


class Target(NamedTuple):
    """Where a request goes: scheme, host in small letters, port, path with query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """What two targets share that belong to one server."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The ``Host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


class Allowed(NamedTuple):
    """The hosts that the deployment names; each with a port, or None for the usual ones."""

    hosts: frozenset[tuple[str, int | None]] = frozenset()

    @classmethod
    def of(cls, text: str) -> Allowed:
        """Read the setting ``HTTP_ALLOWED_HOSTS``. Raises PermanentFailure."""
        return cls(frozenset(map(_entry, filter(None, (one.strip().lower() for one in text.split(","))))))

    def __contains__(self, target: object) -> bool:
        """Tell whether a target's host is named, for its port."""
        if not isinstance(target, Target):
            return False
        usual = target.port == PORTS[target.scheme]
        return (target.host, target.port) in self.hosts or (usual and (target.host, None) in self.hosts)


def _entry(text: str) -> tuple[str, int | None]:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        return (port or host).strip("[]").rstrip("."), None
    if not port.isdigit() or not host or (":" in host and not host.startswith("[")):
        raise PermanentFailure(
            f"{HTTP_ALLOWED_HOSTS} holds {text!r}. Write `host` or `host:port`, separated by commas."
        )
    return host.strip("[]").rstrip("."), int(port)


def target_of(url: str, allowed: Allowed) -> Target:
    """Read a URL strictly and check all that needs no name server. Raises PermanentFailure, which names no path."""
    parts = split(url)
    host = (parts.hostname or "").rstrip(".")
    if not (_HOST.fullmatch(host) or _literal(host)):
        raise PermanentFailure("The URL's host is no name of letters, digits, dots and `-` and no IP address.")
    path = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE + '?')}" if parts.query else "")
    target = Target(parts.scheme, host, port_of(parts), path)
    if target not in allowed:
        _check_public(target)
    return target


def named(url: str) -> Target:
    """Read a URL whose host the deployment names, so that it may stand anywhere. Raises PermanentFailure, even so."""
    parts = split(url)
    target = target_of(url, Allowed(frozenset({((parts.hostname or "").rstrip("."), port_of(parts))})))
    literal = _literal(target.host)
    if literal and (why := _never(literal)):
        raise PermanentFailure(f"{target.host} is {why}; no setting allows that.")
    return target


def split(url: str) -> SplitResult:
    """Read a URL strictly. Raises PermanentFailure."""
    if len(url) > LONGEST_URL or any(character <= " " or character in "\\\x7f" for character in url):
        raise PermanentFailure(
            f"The URL has spaces, control characters, backslashes or over {LONGEST_URL:,} characters."
        )
    if _HALF.search(url):
        raise PermanentFailure("The URL has half characters (lone surrogates), which stand for nothing.")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise PermanentFailure(f"The URL cannot be read: {error}") from None
    if parts.scheme not in PORTS or not parts.netloc:
        raise PermanentFailure("The URL must begin with https:// and name a host.")
    if "@" in parts.netloc:
        raise PermanentFailure("The URL holds a user name or password. Put credentials into `headers`, as secrets.")
    return parts


def port_of(parts: SplitResult) -> int:
    """Return a URL's port. Raises PermanentFailure."""
    try:
        return parts.port or PORTS[parts.scheme]
    except ValueError:
        raise PermanentFailure("The URL's port is no number up to 65535.") from None


def _check_public(target: Target) -> None:
    """Refuse what a host may only do that the deployment names."""
    literal = _literal(target.host)
    name = f"{target.host}:{target.port}"
    if literal and _why_not(literal):
        raise PermanentFailure(f"{target.host} is {_why_not(literal)}; {_remedy(name)}")
    if target.scheme != "https":
        raise PermanentFailure(f"{target.host} is asked over plain HTTP. Use https://, or {_remedy(name)}")
    if target.port != PORTS["https"]:
        raise PermanentFailure(f"Port {target.port} of {target.host} is not 443; {_remedy(name)}")


def _remedy(name: str) -> str:
    return f"to allow it, name {name} in the tool setting {HTTP_ALLOWED_HOSTS}."


def addresses(target: Target, allowed: Allowed, resolve: Callable[[str, int], Sequence[str]]) -> tuple[str, ...]:
    """Resolve a target's name once and return its addresses, all of them checked.

    Raises Unreached when the name has none, PermanentFailure when one of them may not be reached: a name that has
    some of both is no accident.
    """
    try:
        found = [ip_address(target.host)] if _literal(target.host) else list(_read(resolve(target.host, target.port)))
    except (OSError, UnicodeError) as error:
        raise Unreached(f"The name {target.host} cannot be resolved: {error}") from None
    if not found:
        raise Unreached(f"The name {target.host} has no address.")
    for address in found:
        why = _never(address) or ("" if target in allowed else _why_not(address))
        if why:
            remedy = "no setting allows that." if _never(address) else _remedy(f"{target.host}:{target.port}")
            raise PermanentFailure(f"{target.host} leads to {address}, which is {why}; {remedy}")
    return tuple(map(str, found))


def _read(texts: Iterable[str]) -> Iterator[Address]:
    for text in texts:
        try:
            yield ip_address(text)
        except ValueError:
            raise PermanentFailure(f"The name server answered {text!r}, which is no address.") from None


def system(host: str, port: int) -> list[str]:
    """Ask the system's name server. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[4][0]) for place in found))


def _literal(host: str) -> Address | None:
    try:
        return None if "%" in host else ip_address(host)
    except ValueError:
        return None


def _never(address: Address) -> str:
    """Return why nobody may reach an address, whatever the deployment allows."""
    inner = _inside(address)
    if inner:
        return _never(inner)
    if address.is_link_local or address in _CLOUD:
        return "link-local, where clouds keep their metadata"
    if address.is_multicast or address.is_unspecified:
        return "no address of one machine"
    return "reserved" if address.is_reserved and not address.is_loopback else ""


def _why_not(address: Address) -> str:
    """Return why an address is not public."""
    inner = _inside(address)
    if inner:
        return _why_not(inner)
    never = _never(address)
    if never or (address.is_global and not any(address in network for network in _NOBODYS)):
        return never
    return "this machine itself" if address.is_loopback else "in a private network"


def _inside(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for: mapped, 6to4, Teredo, NAT64, compatible."""
    if isinstance(address, IPv4Address):
        return None
    low = int(address) & 0xFFFFFFFF
    if address in _NAT64 or (int(address) >> 32 == 0 and low > 1):
        return IPv4Address(low)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None)
