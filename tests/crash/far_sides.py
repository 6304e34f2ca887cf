"""What runs call: far sides that tell how many of their effects stand."""

from __future__ import annotations

from typing import Any


class Erp:
    """The far side: one document a key, however often it is asked."""

    def __init__(self) -> None:
        self.documents: dict[str, str] = {}

    def post(self, _: Any, call: Any) -> dict[str, Any]:
        return {"document": self._put(call.idempotency_key)}

    def _put(self, key: str) -> str:
        self.documents.setdefault(f"D-{key[:8]}", "posted")
        return f"D-{key[:8]}"

    def void(self, arguments: dict[str, Any], _: Any) -> dict[str, Any]:
        self.documents[arguments["document"]] = "void"
        return {"document": arguments["document"], "status": "void"}

    def find(self, arguments: dict[str, Any], _: Any) -> dict[str, Any]:
        document = f"D-{arguments['key'][:8]}"
        there = document in self.documents
        return {"count": int(there), "document": document if there else ""}

    def found(self, step: Any) -> Any:
        document = next(iter(self.documents), None)
        return {"document": document} if document else None

    def by_hand(self, step: Any) -> Any:
        """Return the call's document; a person who does not find it posts it."""
        return {"document": self._put(step.call.key)}

    def mine(self, step: Any) -> Any:
        document = f"D-{step.call.key[:8]}" if step.call else ""
        return {"document": document} if document in self.documents else None

    @property
    def live(self) -> int:
        return sum(status == "posted" for status in self.documents.values())


class Bank:
    """A far side without keys: every call that arrives is one more transfer. ``due`` is what may be paid."""

    def __init__(self, due: int = 5) -> None:
        self.transfers, self.due = 0, due

    def pay(self, arguments: dict[str, Any], _: Any) -> dict[str, Any]:
        assert arguments["sum"] == self.due
        self.transfers += 1
        return {"transfer": self.transfers}

    def find(self, *_: Any) -> dict[str, Any]:
        return {"transfer": self.transfers, "count": self.transfers}

    def found(self, _: Any) -> Any:
        return {"transfer": 1} if self.transfers else None

    @property
    def live(self) -> int:
        return self.transfers


class Transfers(Bank):
    """A bank that knows which call made which transfer, for who looks by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    def pay(self, arguments: dict[str, Any], call: Any) -> dict[str, Any]:
        self.keys.append(call.idempotency_key)
        return super().pay(arguments, call)

    def found(self, step: Any) -> Any:
        return {"transfer": 1} if step.call and step.call.key in self.keys else None
