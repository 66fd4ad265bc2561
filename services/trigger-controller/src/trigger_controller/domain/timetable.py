"""Computes the times of a cron expression.

When clocks change for summer time, it behaves like Debian's cron.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from paddlewheel.contracts.crds.trigger import ScheduleSource

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LOOK_BACK = tuple(timedelta(hours=hours) for hours in (1, 24, 32 * 24, 367 * 24))
"""How far back the newest time is searched, shortest first. A schedule of minutes has thousands of times in
weeks."""


@dataclass(frozen=True)
class Timetable:
    """A cron expression in a time zone. Arguments and results are in UTC."""

    cron: str
    zone: str

    @property
    def expression(self) -> str:
        """The cron expression and the time zone as one text."""
        return f"{self.cron} {self.zone}"

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after this one; None if there is none within 50 years."""
        return next(self._times_after(moment), None)

    def newest_within(self, since: datetime, until: datetime) -> datetime | None:
        """The last time after `since` and not after `until`."""
        starts = (until - back for back in _LOOK_BACK if until - back > since)
        for start in (*starts, since):
            if found := self._last(start, until):
                return found
        return None

    def _last(self, since: datetime, until: datetime) -> datetime | None:
        times = deque(takewhile(lambda time: time <= until, self._times_after(since)), maxlen=1)
        return times[0] if times else None

    def _times_after(self, moment: datetime) -> Iterator[datetime]:
        for time in CronSim(self._fields, moment.astimezone(self._zone_info)):
            if (utc := time.astimezone(UTC)) > moment:
                yield utc

    @cached_property
    def _fields(self) -> str:
        return _NAMED.get(self.cron, self.cron)

    @cached_property
    def _zone_info(self) -> ZoneInfo:
        return ZoneInfo(self.zone)


def find_schedule_problem(schedule: ScheduleSource | None) -> str:
    """The error in a schedule, with the field and what to do; "" if it is valid."""
    if schedule is None:
        return ""
    try:
        ZoneInfo(schedule.time_zone)
    except (OSError, ValueError, KeyError):
        return (
            f"spec.when.schedule.timeZone: there is no time zone {schedule.time_zone};"
            " use a name such as UTC or Asia/Shanghai"
        )
    try:
        CronSim(_NAMED.get(schedule.cron, schedule.cron), datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        return (
            f"spec.when.schedule.cron: {_lowered(str(error))} in '{schedule.cron}';"
            " the fields are minute, hour, day of the month, month and day of the week"
        )
    return ""


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
