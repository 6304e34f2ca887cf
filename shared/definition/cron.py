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
    from collections.abc import Callable, Iterable, Iterator, Mapping

_FIRST_YEAR, _LAST_YEAR = 1970, 2199
LONGEST = 250
"""Characters. Source: EventBridge Scheduler API Reference, ScheduleExpression: 256 with `cron()`."""
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
        found = self.names.get(text)
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
        if slash and not self._is_step(step):
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

    def _is_step(self, text: str) -> bool:
        return re.fullmatch(r"[1-9][0-9]{0,3}", text, re.ASCII) is not None and int(text) <= self.high - self.low


_MINUTES = _Field("minute", 0, 59, {})
_HOURS = _Field("hour", 0, 23, {})
_MONTH_DAY = _Field("day of the month", 1, 31, {}, "`*` `,` `-` `/` `?` `L` `W`")
_MONTH = _Field("month", 1, 12, _MONTHS)
_WEEK_DAY = _Field("day of the week", 1, 7, _DAYS, "`*` `,` `-` `?` `L` `#`")
_YEAR = _Field("year", _FIRST_YEAR, _LAST_YEAR, {})


@dataclass(frozen=True, slots=True)
class Cron:
    """One expression, read once. ``is_meant`` tells of a day what its two fields do: it depends on the month."""

    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    years: frozenset[int]
    is_meant: Callable[[date], bool]

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Read the six fields. Raises CronFault."""
        minute, hour, month_day, month, week_day, year = _six(text)
        if (month_day == "?") == (week_day == "?"):
            raise CronFault("exactly one of day of month (third) and day of week (fifth) is `?`, the other one counts")
        return cls(
            minutes=_MINUTES.numbers(minute),
            hours=_HOURS.numbers(hour),
            months=_MONTH.numbers(month),
            years=_YEAR.numbers(year),
            is_meant=_month_day(month_day) if week_day == "?" else _week_day(week_day),
        )

    def days(self, first: date, years: Iterable[int]) -> Iterator[date]:
        """Yield the days of some years that are meant, from ``first``."""
        for year in sorted(years):
            for month in sorted(self.months):
                for number in range(1, calendar.monthrange(year, month)[1] + 1):
                    day = date(year, month, number)
                    if day >= first and self.is_meant(day):
                        yield day

    def never(self, today: date) -> bool:
        """Tell whether no day is meant from ``today``, such as 30 February, or one in years that are over."""
        # Years that begin with the same day of the week and are as long have the same days: one of each is enough.
        later = {(date(year, 1, 1).weekday(), calendar.isleap(year)): year for year in self.years if year > today.year}
        return next(self.days(today, {*later.values(), *(self.years & {today.year})}), None) is None

    def upcoming(self, zone: str, after: datetime, most: int) -> list[datetime]:
        """Return the next ``most`` times after an aware ``after``, in UTC.

        A time that a change to summer time skips is left out; one that occurs twice occurs once.
        """
        return list(islice(self._times(ZoneInfo(zone), after), most))

    def _times(self, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        first = after.astimezone(zone).date() - timedelta(days=1)
        for day in self.days(first, (year for year in self.years if year >= first.year)):
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                    moment = local.astimezone(UTC)
                    exists = moment.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None)
                    if exists and moment > after:
                        yield moment


def normal(text: str) -> str:
    """Return the expression as it is deployed: upper-case, with single blanks. Raises CronFault when it is too long."""
    if len(text) > LONGEST:
        raise CronFault(f"the expression has {len(text):,} characters: at most {LONGEST} can be deployed")
    return " ".join(text.split()).upper()


def _six(text: str) -> list[str]:
    parts = normal(text).split()
    if parts and parts[0].startswith(("CRON(", "RATE(", "AT(")):
        raise CronFault("write the six fields alone, without a word around them: `*/5 * * * ? *`")
    if len(parts) != 6:  # noqa: PLR2004 - the six fields
        raise CronFault(
            f"expected six fields (minute, hour, day of month, month, day of week, year), not {len(parts)}: "
            "`0 2 * * ? *` is every day at two"
        )
    return parts


def _last(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def _month_day(text: str) -> Callable[[date], bool]:
    """Return what tells of a day whether a day of the month means it. Raises CronFault."""
    if text == "L":
        return lambda day: day.day == _last(day)
    if text == "LW":
        return lambda day: day == _nearest_work_day(day.replace(day=_last(day)))
    nearest = re.fullmatch(r"([0-9]{1,2})W", text, re.ASCII)
    if nearest:
        wanted = _MONTH_DAY.number(nearest[1])
        return lambda day: wanted <= _last(day) and day == _nearest_work_day(day.replace(day=wanted))
    numbers = _MONTH_DAY.numbers(text)
    return lambda day: day.day in numbers


def _nearest_work_day(day: date) -> date:
    """Return the weekday nearest to ``day`` within its month."""
    if day.weekday() < _WORK_DAYS:
        return day
    shift = -1 if day.weekday() == _SATURDAY else 1
    if not 1 <= day.day + shift <= _last(day):
        shift = 2 if day.weekday() == _SATURDAY else -2
    return day + timedelta(days=shift)


def _week_day(text: str) -> Callable[[date], bool]:
    """Return what tells of a day whether a day of the week means it. Raises CronFault."""
    if text == "L":  # the last day of the week
        return lambda day: _number(day) == _DAYS["SAT"]
    marked = re.fullmatch(r"([0-9]|[A-Z]{3})(L|#([1-5]))", text, re.ASCII)
    if marked:
        wanted, count = _WEEK_DAY.number(marked[1]), int(marked[3] or 0)
        return lambda day: _number(day) == wanted and (_count(day) == count if count else day.day + 7 > _last(day))
    if "/" in text:
        raise _WEEK_DAY.fault(text)
    numbers = _WEEK_DAY.numbers(text)
    return lambda day: _number(day) in numbers


def _number(day: date) -> int:
    return (day.weekday() + 1) % 7 + 1


def _count(day: date) -> int:
    return (day.day - 1) // 7 + 1
