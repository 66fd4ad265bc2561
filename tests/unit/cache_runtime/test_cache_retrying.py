"""What is tried again, and what would be refused for ever."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from cache_runtime.retrying import at_most, persistently
from paddlewheel.core.errors import Permanent, Retry
from paddlewheel.testkit.clock import ManualClock


@pytest.mark.parametrize("number", [errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENAMETOOLONG, errno.ELOOP])
async def test_what_no_later_try_changes_is_not_tried_again(number: int) -> None:
    tries = 0

    async def refuse() -> None:
        nonlocal tries
        tries += 1
        if tries > 1:
            raise AssertionError("tried again")
        raise OSError(number, os.strerror(number), "d/a")

    with pytest.raises(Permanent, match=rf"'d/a': .* \({errno.errorcode[number]}\)") as found:
        await persistently(refuse, _Hasty())
    assert found.value.reason == "FileSystemFailed"


async def test_a_file_system_that_times_out_is_told_from_the_limit() -> None:
    """The error is a TimeoutError, too."""
    for limit in (None, 60.0):
        with pytest.raises(TimeoutError) as found:
            async with at_most(limit, "CopyTimeout", "copying"):
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        assert found.value.errno == errno.ETIMEDOUT


async def test_what_takes_longer_than_its_limit_is_retried() -> None:
    with pytest.raises(Retry, match="CopyTimeout: copying took more than 0 s"):
        async with at_most(0.0, "CopyTimeout", "copying"):
            await _forever()


class _Hasty(ManualClock):
    async def sleep(self, seconds: float) -> None:
        return None


async def _forever() -> None:
    await asyncio.Event().wait()
