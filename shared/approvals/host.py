"""What the function behind the approval page is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.runtime.host import Host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.settings import Person


@dataclass(frozen=True, slots=True)
class ApprovalsHost(Host):
    """The ports of the approval page.

    ``link_key`` verifies links, and so do ``older_keys`` while it is being rotated. ``approvers`` maps a role to its
    people.
    """

    link_key: bytes
    approvers: Mapping[str, tuple[Person, ...]]
    older_keys: tuple[bytes, ...] = ()
