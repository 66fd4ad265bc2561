"""The classes of all facts: `from paddlewheel.sdk import JobSucceeded`."""

from __future__ import annotations

from paddlewheel.contracts.generated.cache_v1 import *  # noqa: F403
from paddlewheel.contracts.generated.cacheprogress_v1 import *  # noqa: F403
from paddlewheel.contracts.generated.common_v1 import *  # noqa: F403
from paddlewheel.contracts.generated.datasets_v1 import *  # noqa: F403
from paddlewheel.contracts.generated.jobs_v1 import *  # noqa: F403
from paddlewheel.contracts.generated.measurements_v1 import *  # noqa: F403
from paddlewheel.contracts.generated.models_v1 import *  # noqa: F403
from paddlewheel.contracts.generated.progress_v1 import *  # noqa: F403
from paddlewheel.contracts.generated.serving_v1 import *  # noqa: F403
from paddlewheel.contracts.generated.triggers_v1 import *  # noqa: F403
