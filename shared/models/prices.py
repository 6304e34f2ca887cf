"""What model tokens cost, from the dated table beside this file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import PermanentFailure
from shared.ports import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

_TABLE = Path(__file__).with_name("prices.json")
_NANO_PER_TOKEN = 1000
"""Nano-USD a token for each USD a million tokens."""


@dataclass(frozen=True, slots=True)
class Price:
    """What one token costs, in nano-USD, and whose model it is."""

    provider: str
    input: int
    output: int

    def usage(self, input_tokens: int, output_tokens: int) -> Usage:
        """Return the usage with its price."""
        return Usage(input_tokens, output_tokens, input_tokens * self.input + output_tokens * self.output)


@lru_cache(maxsize=1)
def prices() -> Mapping[str, Price]:
    """Return the table by model name."""
    models = json.loads(_TABLE.read_text())["models"]
    return {name: _price(row) for name, row in models.items()}


def price_of(model: str) -> Price:
    """Return a model's price. Raises PermanentFailure for a model that is not in the table."""
    if model not in prices():
        raise PermanentFailure(f"Model {model} has no price, so nothing can be reserved for it. Add it to the table.")
    return prices()[model]


def _price(row: Mapping[str, str]) -> Price:
    return Price(row["provider"], _nano(row["input"]), _nano(row["output"]))


def _nano(dollars_a_million: str) -> int:
    return int(Decimal(dollars_a_million) * _NANO_PER_TOKEN)
