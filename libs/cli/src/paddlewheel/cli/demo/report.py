"""The table at the end of a demo run."""

from __future__ import annotations

from paddlewheel.cli.demo.model import Outcome
from paddlewheel.cli.output import print_line, print_styled
from paddlewheel.cli.table import print_table, properties


def render_report(outcome: Outcome) -> None:
    """Print the results of the run; the same figures as `-o json`."""
    if outcome.prediction:
        print_line("\n".join(outcome.prediction.picture))
    print_table(properties("digits: from an object store to a served model", dict(_rows(outcome))))
    for shortfall in outcome.shortfalls:
        print_styled(("missed:", "red"), f" {shortfall}")
    print_styled(("success", "green") if outcome.success else ("failed", "red"))


def _rows(outcome: Outcome) -> list[tuple[str, str]]:
    stages = [(f"seconds, {stage}", f"{seconds:.1f}") for stage, seconds in outcome.seconds.items()]
    results = outcome.results
    return [
        *stages,
        ("seconds, total", f"{sum(outcome.seconds.values()):.1f}"),
        ("synced", f"{outcome.files_synced:,} files, {outcome.bytes_synced:,} bytes"),
        ("warmed", f"{outcome.files_warmed:,} files, {outcome.bytes_warmed:,} bytes"),
        ("cached, by juicefs warmup --check", f"{outcome.cached_percent:.1f} %"),
        ("epochs", f"{results.get('epochs', len(outcome.epochs)):.0f}"),
        ("loss", f"{results.get('loss', float('nan')):.4f}"),
        ("accuracy on held-out digits", f"{results.get('accuracy', float('nan')):.4f}"),
        ("facts published / received", f"{outcome.facts_published} / {outcome.facts_received}"),
        (
            "API writes by job-controller",
            ", ".join(f"{k} {v}" for k, v in outcome.api_writes.items()) or "unknown",
        ),
        ("model", outcome.model),
        *_prediction(outcome),
        *_bad_version(outcome),
    ]


def _prediction(outcome: Outcome) -> list[tuple[str, str]]:
    asked = outcome.prediction
    if asked is None:
        return []
    return [(f"served model's answer to this {asked.digit}", f"{asked.predicted}, {asked.chance:.1%} sure")]


def _bad_version(outcome: Outcome) -> list[tuple[str, str]]:
    bad = outcome.bad_version
    if bad is None:
        return []
    counted = f"{bad.percent} % of the requests: {bad.errors:,} of {bad.requests:,} failed"
    return [("bad version of the service", f"{counted}; rolled back after {bad.seconds:.1f} s: {bad.reason}")]
