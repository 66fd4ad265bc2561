"""The cause of a failure is found in logs. Paddle 3.3.1 and Python 3.11 wrote the files in `logs/`."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlewheel.core.log_reason import reason_line, telling_lines

LOGS = Path(__file__).parent / "logs"
KUBELET_LIMIT_BYTES = 2048
"""Bytes of a failed container's log that the kubelet keeps in the status of the pod."""
LOST_PEER = "RuntimeError: [/paddle/third_party/gloo/gloo/transport/tcp/pair.cc:584] TIMEOUT"
SEGMENTATION_FAULT = "FatalError: `Segmentation fault` is detected by the operating system."
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\n'
VALUE_ERROR = "ValueError: step 7: label 12 is out of range [0, 10)"

REASONS = {
    "bad-alloc": "std::bad_alloc",
    "chained": "DataError: labels are missing:",
    "data-loader": "ValueError: image 5 is truncated",
    "exception": VALUE_ERROR,
    "exception-group": "OSError: [Errno 5] Input/output error on shard 2",
    "exception-launched": VALUE_ERROR,
    "exception-then-store-shutdown": VALUE_ERROR,
    "exit-after-a-warning": "sum 1.0",
    "exit-code": "loss is nan, giving up",
    "exit-code-launched": "loss is nan, giving up",
    "interrupt": "KeyboardInterrupt",
    "killed-after-a-progress-bar": "sum 1.0",
    "killed-after-a-warning": "sum 1.0",
    "lost-peer": LOST_PEER,
    "lost-peer-terminated": LOST_PEER,
    "memory-error": "MemoryError: (ResourceExhausted) Fail to alloc memory of 34359738368 size",
    "numpy-memory": "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 64.0 TiB",
    "paddle-error": "ValueError: (InvalidArgument) In operator matmul, the [1] dimension of Input(X)",
    "segmentation-fault": SEGMENTATION_FAULT,
    "segmentation-fault-launched": SEGMENTATION_FAULT,
}
"""The beginning of the cause, by the name of the log."""


def test_every_log_has_a_reason() -> None:
    assert {log.stem for log in LOGS.glob("*.log")} == set(REASONS)


@pytest.mark.parametrize("name", REASONS)
def test_the_reason_is_found_in_a_whole_log_and_in_what_the_kubelet_keeps_of_it(name: str) -> None:
    log = (LOGS / f"{name}.log").read_bytes()
    kept = log[-KUBELET_LIMIT_BYTES:]
    reasons = [reason_line(part.decode(errors="replace")) for part in (log, kept)]
    assert [reason[: len(REASONS[name])] for reason in reasons] == [REASONS[name]] * 2


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("", ""),
        ("\n \n", ""),
        ("reading\nno bucket\n\n", "no bucket"),
        (
            "I1127 21:42:47.57 1 tcp_store.cc:292] receive shutdown event\n",
            "I1127 21:42:47.57 1 tcp_store.cc:292] receive shutdown event",
        ),
        (
            "F1127 21:42:47.57 1 pool.cc:7] Check failed: size > 0\n*** Check failure stack trace: ***\n",
            "Check failed: size > 0",
        ),
        ("epoch 3\n\r 70%|#######   | 7/10 [00:00<00:00,  9.8it/s]", "epoch 3"),
        (
            '  File "a.py", line 3\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n',
            "SyntaxError: invalid syntax",
        ),
        (
            '  File "a.py", line 3, in f\nI1127 21:42:47.57 1 store.cc:2] closed\nOSError: gone\n',
            "OSError: gone",
        ),
        (
            'Traceback (most recent call last):\n  File "a.py", line 3, in f\nOSError: gone\n'
            "Exception ignored in: <function Pool.__del__ at 0x7f>\n"
            'Traceback (most recent call last):\n  File "b.py", line 9, in __del__\nTypeError: None\n',
            "OSError: gone",
        ),
        (
            "RuntimeError: \n\n--------\nError Message Summary:\n--------\n"
            "InvalidArgumentError: shapes differ\n  [Hint: Expected 2] (at /paddle/x.cc:1)\n",
            "InvalidArgumentError: shapes differ",
        ),
        ("x" * 400, "x" * 300),
        (
            "----\nError Message Summary:\n----\nResourceExhaustedError: \n\n"
            "Out of memory error on GPU 0. Cannot allocate 2.0GB memory on GPU 0.\n\n"
            "Please check whether there is any other process using GPU 0.\n",
            "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 2.0GB memory on GPU 0.",
        ),
        (
            f"{TRACEBACK}RuntimeError: Error(s) in loading a Net:\n"
            '\tMissing key(s) in state_dict: "fc.weight".\n',
            'RuntimeError: Error(s) in loading a Net: Missing key(s) in state_dict: "fc.weight".',
        ),
        (
            f"{TRACEBACK}urllib.error.HTTPError: HTTP Error 503: Unavailable\n"
            "retrying in 2 s\n" + "step done\n" * 8 + "loss is nan at step 812, giving up\n",
            "loss is nan at step 812, giving up",
        ),
        (
            f"{TRACEBACK}ValueError: no shard\n" + "wandb: Run history:\n" * 9,
            "ValueError: no shard",
        ),
        (
            f"{TRACEBACK}ValidationError: 3 errors\nfield a\nfield b\nfield c\nsaving\nterminated\n",
            "ValidationError: 3 errors",
        ),
        (
            f"{TRACEBACK}ValueError: image 5 is truncated\n{TRACEBACK}"
            "SystemError: (Fatal) Blocking queue is killed because the data reader raises an exception.\n",
            "ValueError: image 5 is truncated",
        ),
        (
            "ERROR: Unexpected BUS error encountered in DataLoader worker. This is caused by "
            f"shared memory (shm).\n{TRACEBACK}SystemError: (Fatal) Blocking queue is killed because x.\n",
            "Unexpected BUS error encountered in DataLoader worker. This is caused by shared memory (shm).",
        ),
        (
            f"{TRACEBACK}FileNotFoundError: conf.yaml\n{TRACEBACK}"
            "subprocess.CalledProcessError: Command '['train']' returned non-zero exit status 1.\n",
            "FileNotFoundError: conf.yaml",
        ),
        (
            f"{TRACEBACK}subprocess.CalledProcessError: Command '['train']' failed.\n",
            "subprocess.CalledProcessError: Command '['train']' failed.",
        ),
        (f"{TRACEBACK}ValueError: loss diverged\n{TRACEBACK}EOFError\n", "ValueError: loss diverged"),
        (
            f"{TRACEBACK}ValueError: loss diverged\n{TRACEBACK}KeyError: '/psm_a1b2c3'\n",
            "ValueError: loss diverged",
        ),
        (
            "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
            '  File "train.py", line 3 in f\n\nExtension modules: numpy.core._multiarray_umath (total: 12)\n',
            "Segmentation fault",
        ),
        ("epoch 3\ntrain.py:9: DeprecationWarning: use bool\n  mask = np.bool(x)\n", "epoch 3"),
        (
            "2026-11-28 01:02:03,004 ERROR train | Traceback (most recent call last):\n"
            "  File \"a.py\", line 3, in f\nKeyError: 'img'\nshutting down\n",
            "KeyError: 'img'",
        ),
        (
            f"{TRACEBACK}__main__.main.<locals>.BadBatch: batch 3\ndone\n",
            "__main__.main.<locals>.BadBatch: batch 3",
        ),
    ],
)
def test_other_endings(log: str, reason: str) -> None:
    assert reason_line(log) == reason


def test_the_telling_lines_are_the_last_ones_without_noise() -> None:
    log = "a\nb\nLAUNCH INFO 2026-11-27 21:45:56,853 Exit code 3\nc\nI1127 21:42:47.57 1 store.cc:2] closed\n"
    assert telling_lines(log, 2) == ("b", "c")
    assert telling_lines("I1127 21:42:47.57 1 store.cc:2] closed\n", 2) == (
        "I1127 21:42:47.57 1 store.cc:2] closed",
    )
    assert telling_lines("", 2) == ()
