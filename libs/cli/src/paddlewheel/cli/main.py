"""The console script. It imports little, so that signals are handled from the start."""

from __future__ import annotations

import signal
import sys

COMMANDS = {
    "cluster": (
        "A real Kubernetes on this machine.",
        "`cluster up` continues, `cluster down` removes what was started",
    ),
    "dev": (
        "The inner loop: services as local processes.",
        "`dev up` continues, `dev down` removes what was started",
    ),
    "images": (
        "Paddlewheel's container images, built and loaded without a registry.",
        "complete images are kept: run it again to build the others",
    ),
    "bus": ("The message bus: its state and its content.", "it is safe to run it again"),
    "dlq": (
        "Messages that a consumer could not handle (dead letters).",
        "`dlq list` shows what is left",
    ),
    "doctor": (
        "Show what is missing on this machine and how to install it; exit code 1 when something is missing.",
        "run it again to check everything",
    ),
    "demo": (
        "Sync 1,797 handwritten digits into the cache, train on two nodes, serve, reject a bad version.",
        "run it again to continue with its cluster, or `cluster down` to remove it",
    ),
    "events": (
        "Follow the facts that the services publish; Ctrl-C ends it.",
        "continue with --since, or from the same position with --durable NAME",
    ),
    "job": (
        "Training jobs (PaddleJob): run one without YAML, look at it, scale, suspend, restart or delete it.",
        "a job that was created continues: `job list` shows it; it is safe to run other commands again",
    ),
    "data": (
        "Data sets (SampleSet): show their state and caches; copy, warm, evict and remove data.",
        "a run that was started continues: `data show` shows it, `data cancel` ends it",
    ),
    "logs": (
        "Print the logs of all pods of a job, each line with its rank.",
        "run it again: without --tail it begins at the first line",
    ),
    "service": (
        "Models and programs that answer requests (PaddleService), and their updates.",
        "`service show` shows what has changed; it is safe to run it again",
    ),
    "uninstall": (
        "Remove Paddlewheel's services and NATS from a cluster; objects and CRDs stay by default.",
        "run it again to continue",
    ),
}
"""Each command in the order of `--help`: its summary, and what to do after an interruption.

The command is the app in the module of its name.
"""


def main() -> None:
    """Run the command. An error of our own is one line with what to do, never a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the command runs, Ctrl-C ends this process without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from paddlewheel.cli import ending

    code = ending.run(_command)
    if word := ending.WORDS.get(code):
        sys.stderr.write(f"{word}: {_hint()}\n")
        sys.stderr.flush()
    ending.leave(code)


def _command() -> None:
    from paddlewheel.cli.app import app
    from paddlewheel.core.errors import PaddlewheelError

    try:
        app()
    except PaddlewheelError as error:
        _print_error(str(error))
        raise SystemExit(1) from None


def _print_error(text: str) -> None:
    from paddlewheel.cli.output import print_styled

    print_styled(("error:", "red"), f" {text}", stderr=True)


def _hint() -> str:
    used = next((word for word in sys.argv[1:] if word in COMMANDS), None)
    return COMMANDS[used][1] if used else "run it again"


if __name__ == "__main__":
    main()
