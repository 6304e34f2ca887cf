"""Cron expressions as EventBridge Scheduler reads them: what is refused, and which times are meant."""

from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter
from zoneinfo import ZoneInfo

import pytest

from shared.definition.cron import LONGEST, Cron, CronFault, normal

NOW = datetime(2026, 11, 30, 11, tzinfo=UTC)


def times(text, zone="UTC", after=NOW, most=3):
    return [one.strftime("%Y-%m-%dT%H:%M") for one in Cron.parse(text).upcoming(zone, after, most)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 2 * * ? *", ["2026-12-01T02:00", "2026-12-02T02:00", "2026-12-03T02:00"]),
        ("*/20 23 30 11 ? 2026", ["2026-11-30T23:00", "2026-11-30T23:20", "2026-11-30T23:40"]),
        ("5/30 12-13 * * ? *", ["2026-11-30T12:05", "2026-11-30T12:35", "2026-11-30T13:05"]),
        ("0 9 ? * mon-fri *", ["2026-12-01T09:00", "2026-12-02T09:00", "2026-12-03T09:00"]),
        ("0 9 ? * 7,1 *", ["2026-12-05T09:00", "2026-12-06T09:00", "2026-12-12T09:00"]),
        ("0 9 ? * L *", ["2026-12-05T09:00", "2026-12-12T09:00", "2026-12-19T09:00"]),
        ("0 9 ? * 6L *", ["2026-12-25T09:00", "2027-01-29T09:00", "2027-02-26T09:00"]),
        ("0 9 ? * FRI#3 *", ["2026-12-18T09:00", "2027-01-15T09:00", "2027-02-19T09:00"]),
        ("0 9 ? * 2#5 *", ["2027-03-29T09:00", "2027-05-31T09:00", "2027-08-30T09:00"]),
        ("0 9 L * ? *", ["2026-12-31T09:00", "2027-01-31T09:00", "2027-02-28T09:00"]),
        ("0 9 LW * ? *", ["2026-12-31T09:00", "2027-01-29T09:00", "2027-02-26T09:00"]),
        ("0 9 15W 8-10 ? 2027", ["2027-08-16T09:00", "2027-09-15T09:00", "2027-10-15T09:00"]),
        ("0 9 1W 5 ? 2027", ["2027-05-03T09:00"]),  # a Saturday: not back into April
        ("0 9 31W 1 ? 2027", ["2027-01-29T09:00"]),  # a Sunday: not on into February
        ("0 0 29 2 ? *", ["2028-02-29T00:00", "2032-02-29T00:00", "2036-02-29T00:00"]),
        ("0 0 1 JAN,jul ? 2030-2199", ["2030-01-01T00:00", "2030-07-01T00:00", "2031-01-01T00:00"]),
        ("0 0 1 1 ? 1970", []),
    ],
)
def test_it_means_these_times(text, expected):
    assert times(text) == expected


def test_times_are_those_of_the_zone():
    assert times("0 2 * * ? *", "Europe/Berlin", most=1) == ["2026-12-01T01:00"]
    assert times("0 23 * * ? *", "America/New_York", most=1) == ["2026-12-01T04:00"]
    assert times("30 0 * * ? *", "Pacific/Kiritimati", most=1) == ["2026-12-01T10:30"]


def test_an_hour_that_summer_time_skips_does_not_come_and_one_that_occurs_twice_comes_once():
    zone = ZoneInfo("Europe/Berlin")
    spring, autumn = datetime(2027, 3, 27, 12, tzinfo=zone), datetime(2027, 10, 30, 12, tzinfo=zone)
    assert times("30 2 * * ? *", "Europe/Berlin", spring, 2) == ["2027-03-29T00:30", "2027-03-30T00:30"]
    assert times("30 2 * * ? *", "Europe/Berlin", autumn, 2) == ["2027-10-31T00:30", "2027-11-01T01:30"]


@pytest.mark.parametrize(
    "text",
    ["0 2 30 2 ? *", "0 2 31 4,6,9,11 ? *", "0 2 29 2 ? 2027", "0 0 1 1 ? 2001", "0 0 29 11 ? 2026", "0 0 29 2 ? 2100"],
)
def test_days_that_never_come_are_known(text):
    assert Cron.parse(text).never(NOW.date())


@pytest.mark.parametrize("text", ["0 2 29 2 ? *", "0 2 L 2 ? *", "0 2 ? * 1#5 *", "0 0 30 11 ? 2026"])
def test_days_that_come_are_not_taken_for_such(text):
    assert not Cron.parse(text).never(NOW.date())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "six fields"),
        ("0 2 * *", "six fields"),
        ("0 2 * * ? * *", "six fields"),
        ("rate(5 minutes)", "without a word around them"),
        ("cron(0 2 * * ? *)", "without a word around them"),
        ("0 2 * * * *", "exactly one"),
        ("0 2 ? * ? *", "exactly one"),
        ("60 2 * * ? *", "`60` is no minute: write 0-59"),
        ("-1 2 * * ? *", "is no minute"),
        ("a 2 * * ? *", "is no minute"),
        ("٣ 2 * * ? *", "is no minute"),
        ("*/0 2 * * ? *", "is no minute"),
        ("*/99 2 * * ? *", "`*/99` is no minute"),
        ("0 0/24 * * ? *", "`0/24` is no hour"),
        ("5-1 2 * * ? *", "`5-1` is no minute"),
        ("1,,2 2 * * ? *", "is no minute"),
        ("0 24 * * ? *", "`24` is no hour"),
        ("0 2 32 * ? *", "`32` is no day of the month"),
        ("0 2 0W * ? *", "`0` is no day of the month"),
        ("0 2 L-3 * ? *", "is no day of the month"),
        ("0 2 * 13 ? *", "`13` is no month: write 1-12 or JAN-DEC"),
        ("0 2 ? * 0 *", "`0` is no day of the week: write 1-7 or SUN-SAT"),
        ("0 2 ? * MONDAY *", "is no day of the week"),
        ("0 2 ? * 6#6 *", "is no day of the week"),
        ("0 2 ? * */2 *", "is no day of the week"),
        ("0 2 ? * MON,L *", "is no day of the week"),
        ("0 2 * * ? 1969", "`1969` is no year"),
        ("0 2 * * ? 2200", "`2200` is no year"),
    ],
)
def test_what_cannot_be_read_is_told(text, told):
    with pytest.raises(CronFault) as fault:
        Cron.parse(text)
    assert told in str(fault.value)


def test_a_hostile_expression_is_refused_at_once():
    with pytest.raises(CronFault) as fault:
        Cron.parse("0 0 " + "9" * 100_000 + " * ? *")
    assert len(str(fault.value)) < 300


def test_days_are_read_once_whatever_they_are():
    """A list of a hundred days was read anew for every day of two centuries."""
    started = perf_counter()
    text = f"0 0 {','.join(['30'] * 75)} 2 ? *"
    assert len(text) <= LONGEST
    assert all(Cron.parse(text).never(NOW.date()) for _ in range(20))
    assert all(Cron.parse("0 0 31 2,4,6 ? *").never(NOW.date()) for _ in range(20))
    assert perf_counter() - started < 2


def test_never_is_true_exactly_of_what_no_year_has():
    for text in ("0 0 ? 2 SUN#5 *", "0 0 29 2 ? 2097-2103", "0 0 31W 2 ? *", "0 0 ? 2 7#5 2030-2047"):
        cron = Cron.parse(text)
        every = list(cron.days(NOW.date(), cron.years & {*range(2026, 2200)}))
        assert cron.never(NOW.date()) is (every == []), text


def test_what_is_deployed_is_in_capitals_with_single_blanks():
    assert normal(" 0\u00a02\n* *  ?\t* ") == "0 2 * * ? *"
    assert normal("0 9 ? * mon#1 *") == "0 9 ? * MON#1 *"
    assert normal("0 9 lw * ? *") == "0 9 LW * ? *"
    with pytest.raises(CronFault, match="at most 250"):
        normal("0" * 251)
