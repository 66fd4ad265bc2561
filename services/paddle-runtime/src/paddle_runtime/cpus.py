"""The CPUs that this process may use."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def cpu_limit(cgroups: Path = _CGROUPS) -> float:
    """The CPU limit of the container in cores; without a limit, the cores that the process may run on.

    Args:
        cgroups: folder of the container's own cgroup, of version 1 or 2.
    """
    allowed = float(len(os.sched_getaffinity(0)))
    return min([allowed, *_quotas(cgroups)])


def _quotas(cgroups: Path) -> list[float]:
    """Cores by the files of either version; none without a limit."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (cgroups / "cpu.max").read_text().split()
        return [] if quota == "max" else [int(quota) / int(period)]
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((cgroups / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return [int(quota) / int(period)] if int(quota) > 0 else []
    return []
