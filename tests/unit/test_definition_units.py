from decimal import Decimal

import pytest

from shared.definition.units import nano_usd, seconds, usd


@pytest.mark.parametrize(
    ("text", "value"), [("500ms", 0.5), ("60s", 60), ("1.5m", 90), ("10m", 600), ("24h", 86400), ("2d", 172800)]
)
def test_durations(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["60", 60, "", "0s", "-1s", "1w", "1 h", "1h30m", None, True, "1e3s", "9" * 20 + "s"])
def test_a_duration_has_one_number_and_one_unit(text):
    with pytest.raises(ValueError, match="duration"):
        seconds(text)


@pytest.mark.parametrize(("given", "nano"), [(0.5, 500_000_000), ("0.000000001", 1), (1, 10**9), (0.05, 50_000_000)])
def test_money_is_exact(given, nano):
    assert nano_usd(usd(given)) == nano
    assert isinstance(usd(given), Decimal)


@pytest.mark.parametrize("given", [-1, "x", True, None, "0.0000000001", "NaN", "Infinity", float("inf")])
def test_other_amounts_are_refused(given):
    with pytest.raises(ValueError, match="USD"):
        usd(given)
