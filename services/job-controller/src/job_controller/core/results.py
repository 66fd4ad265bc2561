"""The report of a finished job's program: numbers, and the model that it has saved.

Both are in the termination message of worker 0, a JSON object.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.job_status import JobStatus
from job_controller.core.model import Observed
from job_controller.core.pods import PodId, PodState
from paddlewheel.contracts.crds import WORKER
from paddlewheel.contracts.crds.base import found
from paddlewheel.contracts.crds.models import DIGEST
from paddlewheel.contracts.crds.paddlejob import OutputModel, SavedModel

_FIRST = PodId(WORKER, 0)
_MODEL = "model"
"""Member of the object."""


def decide_results(seen: Observed, phase: str) -> Mapping[str, float]:
    """The numbers of worker 0 once it has succeeded; none of a failed job."""
    if phase == names.FAILED:
        return {}
    message = _message(seen, phase)
    return seen.status.results if message is None else read_results(message)


def decide_saved_model(seen: Observed, phase: str) -> SavedModel | None:
    """The model that worker 0 reported, of a job that makes one."""
    if phase == names.FAILED or seen.job.spec.output_model is None:
        return None
    message = _message(seen, phase)
    return seen.status.saved_model if message is None else read_saved_model(message)


def _message(seen: Observed, phase: str) -> str | None:
    """The termination message of worker 0 once it has succeeded, for its pod may be gone at the end.

    A job without workers has that of its first pod. None: what is recorded counts.
    """
    is_done = (pod for pod in seen.known_pods if pod.id == _FIRST and pod.state is PodState.SUCCEEDED)
    if first := next(is_done, None):
        return first.termination_message
    if phase != names.COMPLETED or _FIRST in seen.succeeded:
        return None
    source = next((pod for pod in seen.pods if pod.id == _FIRST), seen.pods[0] if seen.pods else None)
    return source.termination_message if source else ""


def read_results(message: str) -> Mapping[str, float]:
    """The numeric members of the object."""
    return {str(k): float(v) for k, v in sorted(_read(message).items()) if _is_number(v)}


def read_saved_model(message: str) -> SavedModel | None:
    """The member `model`; None for one without a place."""
    given = _read(message).get(_MODEL)
    uri, digest = (given.get("uri"), given.get("digest")) if isinstance(given, dict) else ("", "")
    if not isinstance(uri, str) or not uri:
        return None
    return SavedModel(uri=uri, digest=digest if isinstance(digest, str) else "")


def why_unpublished(job: Job, status: JobStatus) -> str:
    """Why the model of a completed job is not published, "" when it is, and for a job that makes none."""
    asked, saved = job.spec.output_model, status.saved_model
    if asked is None:
        return ""
    if saved is None:
        example = json.dumps({_MODEL: {"uri": asked.uri}})
        return (
            "spec.outputModel is not published, since the program did not report that it saved the model:"
            f" write {example} to the termination message of the first worker once it is saved"
        )
    if _place(saved.uri) != _place(asked.uri):
        return (
            f"spec.outputModel is not published: its uri is {asked.uri}, and the program saved the model in"
            " another place (status.savedModel.uri); make them the same"
        )
    if saved.digest and not found(DIGEST, saved.digest):
        return (
            f"spec.outputModel is not published: the program reported the digest {saved.digest}; write"
            " sha256: and 64 hexadecimal digits, or leave it out"
        )
    if asked.digest and saved.digest and asked.digest != saved.digest:
        return (
            f"spec.outputModel is not published: its digest is {asked.digest}, and the program reported"
            f" {saved.digest}; remove the digest or correct it"
        )
    return ""


def published_digest(asked: OutputModel, saved: SavedModel | None) -> str:
    """The digest that services compare the files with."""
    return asked.digest or (saved.digest if saved else "")


def _place(uri: str) -> str:
    return uri.rstrip("/")


def _read(message: str) -> dict[Any, Any]:
    """Empty for what is no JSON object."""
    try:
        content = json.loads(message)
        # Escapes in JSON can be half a character, which cannot be stored.
        json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        # A whole number beyond every float.
        return False
