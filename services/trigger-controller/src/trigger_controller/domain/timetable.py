"""When a cron expression comes true. Hours that are left out or come twice are as in Debian's cron."""

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
"""From where on the newest time is looked for: weeks of a schedule of minutes are thousands of times."""


@dataclass(frozen=True)
class Timetable:
    """A cron expression in a time zone. All times that go in and come out are in UTC."""

    cron: str
    zone: str

    @property
    def expression(self) -> str:
        """Both, as one text."""
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
    """What is wrong with it, as a sentence that names the field and the remedy; "" when nothing is."""
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
