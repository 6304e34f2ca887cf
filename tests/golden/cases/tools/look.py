"""Tools for the golden cases; they are compiled, never called."""

from shared.tools.registry import tool


@tool
def look(what: str) -> dict[str, str]:
    """Read something."""
    return {"what": what}


@tool
def book(what: str) -> dict[str, str]:
    """Write something."""
    return {"booked": what}


@tool
def unbook(what: str) -> dict[str, str]:
    """Undo ``book``."""
    return {"unbooked": what}
