"""The last stage: serve the model, and let it recognize a digit that it has not seen."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import orjson

from paddlewheel.cli.demo.digits import NAMESPACE, SERVICE
from paddlewheel.cli.demo.model import Prediction, Run
from paddlewheel.cli.predictions import ask_stable
from paddlewheel.cli.repo import repo_file
from paddlewheel.cli.service_changes import explanation
from paddlewheel.cli.tools import run as run_program
from paddlewheel.contracts.generated.serving_v1 import ServiceReady
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import Permanent

_HELD_OUT = 25
"""Index of the digit in scikit-learn's data; every fifth is held out of the training."""
_READY_TIMEOUT_SECONDS = 300.0
PATH = f"/v2/models/{SERVICE}/infer"
_SHADES = " ░▒▓█"


async def serve(run: Run) -> None:
    """Apply the PaddleService, wait until it is ready, and ask it."""
    run.view.progress("starting the server", 0.1)
    await await_ready(run, await apply_service(run, "paddleservice"))
    run.view.progress("asking for a prediction", 0.9)
    run.outcome.prediction = await predict(run)


async def apply_service(run: Run, manifest: str) -> str:
    """Apply a manifest of examples/digits; returns the uid of the service."""
    path = str(repo_file(f"examples/digits/{manifest}.yaml"))
    await run.tools.run("kubectl", "apply", "--namespace", NAMESPACE, "-f", path)
    return str((await read_service(run))["metadata"]["uid"])


async def await_ready(run: Run, uid: str) -> None:
    """Wait until the service is ready. Raises Permanent with the reason in its status."""
    try:
        await run.facts.expect(
            ServiceReady,
            lambda fact: fact.service is not None and fact.service.uid == uid,
            within=_READY_TIMEOUT_SECONDS,
            unless=lambda: None,
        )
    except Permanent as error:
        why = (
            explanation(await read_service(run)) or "empty: serving-controller has not processed the service"
        )
        raise Permanent("DemoFailed", f"{error.message}; the status of the service is {why}") from None


async def read_service(run: Run) -> dict[str, Any]:
    """The PaddleService as the API server has it."""
    get = ("kubectl", "get", "paddleservice", SERVICE, "--namespace", NAMESPACE, "--output", "json")
    found: dict[str, Any] = orjson.loads(await run.tools.run(*get))
    return found


async def predict(run: Run) -> Prediction:
    """Raises Permanent when the service refuses the digit."""
    request = await held_out_request()
    status, answer = await ask_stable(run.tools, Key(NAMESPACE, SERVICE), PATH, request.encode())
    if status != 200:
        raise Permanent("PredictionRefused", f"{status}: {answer}")
    chances = softmax(orjson.loads(answer)["outputs"][0]["data"])
    best = max(range(len(chances)), key=chances.__getitem__)
    asked = orjson.loads(request)
    return Prediction(int(asked["id"]), best, chances[best], picture(asked["inputs"][0]["data"]))


async def held_out_request() -> str:
    """A prediction of a held-out digit, as JSON."""
    script = str(repo_file("examples/digits/make_digits.py"))
    return await run_program([sys.executable, script, "--request", str(_HELD_OUT)])


def softmax(logits: Sequence[float]) -> list[float]:
    """Chances that sum up to 1."""
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def picture(pixels: Sequence[Sequence[float]]) -> list[str]:
    """Lines of text, two characters wide for each pixel from 0 to 1."""
    last = len(_SHADES) - 1
    return ["".join(_SHADES[round(pixel * last)] * 2 for pixel in row) for row in pixels]
