"""Times as EventBridge Scheduler reads them: six fields, validated here, since one bad one is found too late there.

Source: EventBridge Scheduler User Guide, "Schedule types", cron-based schedules. Minutes, hours, day of month, month,
day of week (1 = Sunday), year. One of the two days is ``?``. ``L`` = the last, ``15W`` = the weekday nearest to the
15th, ``6#3`` = the third Friday.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FIRST_YEAR, _LAST_YEAR = 1970, 2199
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"], 1
    )
}
_DAYS = {name: number for number, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], 1)}
_SATURDAY = 5
_WORK_DAYS = 5


class CronFault(ValueError):
    """The expression cannot be read; the message says which field and what it may hold."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: Mapping[str, int]
    signs: str = "`*` `,` `-` `/`"

    def fault(self, text: str) -> CronFault:
        words = f" or {next(iter(self.names))}-{list(self.names)[-1]}" if self.names else ""
        return CronFault(
            f"`{text[:40]}` is no {self.name}: write {self.low}-{self.high}{words}, with {self.signs} where needed"
        )

    def number(self, text: str) -> int:
        found = self.names.get(text.upper())
        if found is None and re.fullmatch(r"[0-9]{1,4}", text, re.ASCII):
            found = int(text)
        if found is None or not self.low <= found <= self.high:
            raise self.fault(text)
        return found

    def numbers(self, text: str) -> frozenset[int]:
        """Return the numbers that a list of values, ranges and steps holds."""
        return frozenset(number for part in text.split(",") for number in self._part(part))

    def _part(self, text: str) -> range:
        base, slash, step = text.partition("/")
        if slash and not re.fullmatch(r"[1-9][0-9]{0,3}", step, re.ASCII):
            raise self.fault(text)
        start, dash, end = base.partition("-")
        if base == "*":
            low, high = self.low, self.high
        else:
            low = self.number(start)
            high = self.number(end) if dash else (self.high if slash else low)
        if low > high:
            raise self.fault(text)
        return range(low, high + 1, int(step or 1))


_MINUTES = _Field("minute", 0, 59, {})
_HOURS = _Field("hour", 0, 23, {})
_MONTH_DAY = _Field("day of the month", 1, 31, {}, "`*` `,` `-` `/` `?` `L` `W`")
_MONTH = _Field("month", 1, 12, _MONTHS)
_WEEK_DAY = _Field("day of the week", 1, 7, _DAYS, "`*` `,` `-` `?` `L` `#`")
_YEAR = _Field("year", _FIRST_YEAR, _LAST_YEAR, {})


@dataclass(frozen=True, slots=True)
class Cron:
    """One expression, read. ``month_day`` and ``week_day`` stay texts: what they mean depends on the month."""

    minutes: frozenset[int]
    hours: frozenset[int]
    month_day: str
    months: frozenset[int]
    week_day: str
    years: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Read the six fields. Raises CronFault."""
        parts = text.split()
        if text.strip().startswith(("cron(", "rate(", "at(")):
            raise CronFault("write the six fields alone, without a word around them: `*/5 * * * ? *`")
        if len(parts) != 6:  # noqa: PLR2004 - the six fields
            raise CronFault(
                f"expected six fields (minute, hour, day of month, month, day of week, year), not {len(parts)}: "
                "`0 2 * * ? *` is every day at two"
            )
        minute, hour, month_day, month, week_day, year = parts
        if (month_day == "?") == (week_day == "?"):
            raise CronFault("exactly one of day of month (third) and day of week (fifth) is `?`, the other one counts")
        _check_month_day(month_day)
        _check_week_day(week_day)
        return cls(
            _MINUTES.numbers(minute),
            _HOURS.numbers(hour),
            month_day.upper(),
            _MONTH.numbers(month),
            week_day.upper(),
            _YEAR.numbers(year),
        )

    def matches(self, day: date) -> bool:
        """Tell whether a day is meant."""
        if day.year not in self.years or day.month not in self.months:
            return False
        return _is_week_day(self.week_day, day) if self.month_day == "?" else _is_month_day(self.month_day, day)

    def days(self, first: date) -> Iterator[date]:
        """Yield the days that are meant, from ``first`` to the end of its last year."""
        for year in sorted(year for year in self.years if year >= first.year):
            for month in sorted(self.months):
                for number in range(1, calendar.monthrange(year, month)[1] + 1):
                    day = date(year, month, number)
                    if day >= first and self.matches(day):
                        yield day

    def never(self) -> bool:
        """Tell whether no day in any of its years is meant, such as 30 February."""
        return next(self.days(date(_FIRST_YEAR, 1, 1)), None) is None

    def upcoming(self, zone: str, after: datetime, most: int) -> list[datetime]:
        """Return the next ``most`` times after an aware ``after``, in UTC.

        A time that a change to summer time skips is left out; one that occurs twice occurs once.
        """
        return list(islice(self._times(ZoneInfo(zone), after), most))

    def _times(self, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        for day in self.days(after.astimezone(zone).date() - timedelta(days=1)):
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                    moment = local.astimezone(UTC)
                    exists = moment.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None)
                    if exists and moment > after:
                        yield moment


def _check_month_day(text: str) -> None:
    if text in {"?", "*"} or text.upper() in {"L", "LW"}:
        return
    nearest = re.fullmatch(r"([0-9]{1,2})[Ww]", text, re.ASCII)
    if nearest:
        _MONTH_DAY.number(nearest[1])
    else:
        _MONTH_DAY.numbers(text)


def _check_week_day(text: str) -> None:
    if text in {"?", "*"} or text.upper() == "L":
        return
    marked = re.fullmatch(r"([0-9]|[A-Za-z]{3})(L|#[1-5])", text, re.ASCII | re.IGNORECASE)
    if marked:
        _WEEK_DAY.number(marked[1])
    elif "/" in text:
        raise _WEEK_DAY.fault(text)
    else:
        _WEEK_DAY.numbers(text)


def _is_month_day(text: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if text == "L":
        return day.day == last
    if text.endswith("W"):
        wanted = last if text == "LW" else int(text[:-1])
        return wanted <= last and day == _nearest_work_day(date(day.year, day.month, wanted), last)
    return day.day in _MONTH_DAY.numbers(text)


def _nearest_work_day(day: date, last: int) -> date:
    """Return the weekday nearest to ``day`` within its month."""
    if day.weekday() < _WORK_DAYS:
        return day
    shift = -1 if day.weekday() == _SATURDAY else 1
    if not 1 <= day.day + shift <= last:
        shift = 2 if day.weekday() == _SATURDAY else -2
    return day + timedelta(days=shift)


def _is_week_day(text: str, day: date) -> bool:
    number = (day.weekday() + 1) % 7 + 1
    if text == "L":  # the last day of the week
        return number == _DAYS["SAT"]
    name, sign, count = text.partition("#")
    if sign:
        return number == _WEEK_DAY.number(name) and (day.day - 1) // 7 + 1 == int(count)
    if text.endswith("L"):
        last = calendar.monthrange(day.year, day.month)[1]
        return number == _WEEK_DAY.number(text[:-1]) and day.day + 7 > last
    return number in _WEEK_DAY.numbers(text)
