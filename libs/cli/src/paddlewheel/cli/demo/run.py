"""The demo as a list of stages. Each waits for a fact from the bus, never for a guessed time."""

from __future__ import annotations

from datetime import UTC, datetime

from paddlewheel.bus.admin.permissions import SUBSCRIBER
from paddlewheel.bus.ports import Delivery
from paddlewheel.cli.bus_access import cluster_bus_access
from paddlewheel.cli.demo import canary, digits, prepare, serving, training
from paddlewheel.cli.demo.facts import Listener, listening
from paddlewheel.cli.demo.model import WANTED_ACCURACY, DemoOptions, Outcome, Run
from paddlewheel.cli.demo.stage import timed_stage
from paddlewheel.cli.demo.view import View
from paddlewheel.cli.events import describe
from paddlewheel.cli.target import Target


async def run_demo(options: DemoOptions, view: View) -> Outcome:
    """Run every stage and judge the outcome.

    Raises:
        Permanent: a stage failed; the message names the stage and the reason.
    """
    outcome = Outcome()
    where = await prepare.prepare_cluster(options, view, outcome)
    return await run_workload(options, view, where, outcome)


async def run_workload(
    options: DemoOptions, view: View, where: Target, outcome: Outcome, on_fact: Listener | None = None
) -> Outcome:
    """Run the stages after the start of the cluster; `on_fact` receives every fact, for fault injection."""
    async with timed_stage("storage", view, outcome):
        await digits.start_storage(where.tools, view)
    async with timed_stage("data", view, outcome):
        await digits.upload_digits(where.tools, options, view)
    began = datetime.now(UTC)
    async with (
        cluster_bus_access(where, role=SUBSCRIBER) as access,
        listening(access, began, _on_fact(view, on_fact)) as facts,
    ):
        writes = await training.count_writes(where.tools)
        applied = await digits.apply_workload(where.tools, options)
        await _follow(Run(options, view, outcome, where.tools, facts, applied), where.gateway_url)
        outcome.api_writes = dict(await training.count_writes(where.tools) - writes)
    judge(options, outcome)
    return outcome


def _on_fact(view: View, on_fact: Listener | None) -> Listener:
    def receive(delivery: Delivery) -> None:
        view.fact(describe(delivery.event))
        if on_fact:
            on_fact(delivery)

    return receive


async def _follow(run: Run, gateway: str) -> None:
    async with timed_stage("sync", run.view, run.outcome):
        await training.await_synced(run)
    async with timed_stage("warm", run.view, run.outcome):
        await training.await_warmed(run)
    async with timed_stage("train", run.view, run.outcome):
        await training.await_trained(run)
    async with timed_stage("model", run.view, run.outcome):
        run.outcome.model = await training.fetch_model(run)
    if run.options.serves:
        async with timed_stage("serve", run.view, run.outcome):
            await serving.serve(run)
    if run.options.serves and gateway:
        async with timed_stage("bad version", run.view, run.outcome):
            run.outcome.bad_version = await canary.try_bad_version(run, gateway)
    await training.count_facts(run)


def judge(options: DemoOptions, outcome: Outcome) -> None:
    """Fill in the success of the run, and its shortfalls."""
    asked = outcome.prediction
    accuracy = outcome.results.get("accuracy", 0.0)
    checks = {
        f"synced {outcome.files_synced} of {options.digits} files": outcome.files_synced == options.digits,
        f"warmed {outcome.files_warmed} of {options.digits} files": outcome.files_warmed >= options.digits,
        f"only {outcome.cached_percent:.1f} % of the bytes are cached": outcome.cached_percent >= 99.9,
        f"accuracy {accuracy:.3f} is below {WANTED_ACCURACY}": (
            accuracy >= WANTED_ACCURACY or not options.judges_accuracy
        ),
        f"received {outcome.facts_received} of {outcome.facts_published} facts": (
            outcome.facts_received >= outcome.facts_published > 0
        ),
        "no model was written": bool(outcome.model),
        "the served model gave no prediction": asked is not None or not options.serves,
        "the served model took the digit for another": (
            asked is None or asked.digit == asked.predicted or not options.judges_accuracy
        ),
    }
    outcome.shortfalls = [text for text, holds in checks.items() if not holds]
    outcome.success = not outcome.shortfalls
