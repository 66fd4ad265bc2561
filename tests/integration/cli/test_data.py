"""`paddlewheel data` on a real API server, beside a dataset-controller that the test plays."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.command import Ended, ended, run, start

from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.objects import key_of
from paddlewheel.core.errors import NotFound
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.ports import SAMPLE_JOBS, SAMPLE_SETS, Object
from paddlewheel.testkit.samplesets import make_sample_set
from paddlewheel.testkit.suites import long_after
from paddlewheel.testkit.wait import eventually

DONE = {
    "filesDone": 3,
    "filesTotal": 3,
    "bytesDone": 3000,
    "bytesTotal": 3000,
    "percent": "100%",
    "listed": True,
}


async def data(api_server: str, *arguments: str) -> Ended:
    return await run("data", *arguments, env={"KUBECONFIG": api_server})


@pytest.fixture
async def digits(cluster: ApiCluster, namespace: str) -> Key:
    return key_of(await cluster.create(SAMPLE_SETS, make_sample_set("digits", namespace)))


async def show(cluster: ApiCluster, run_: Object, **status: Any) -> None:
    """What dataset-controller would write."""
    await cluster.patch(SAMPLE_JOBS, key_of(run_), {"status": status}, subresource="status")


async def only_run(cluster: ApiCluster, namespace: str) -> Object:
    async def there() -> Object | None:
        found = await cluster.list(SAMPLE_JOBS, namespace)
        return found[0] if found else None

    found: Object = await eventually(there, what="a SampleJob")
    return found


@pytest.mark.parametrize(
    ("words", "type_", "options"),
    long_after(
        2,
        [
            (
                (
                    "sync",
                    "--update",
                    "--delete",
                    "-y",
                    "--bandwidth",
                    "400",
                    "--to",
                    "train",
                    "--exclude",
                    "dt=2023",
                ),
                "sync",
                {
                    "update": True,
                    "delete-dst": True,
                    "bwlimit": 400,
                    "destination": "train",
                    "exclude": "dt=2023",
                },
            ),
            (
                ("warm", "--path", "train", "--path", "val", "--strategy", "random", "--threads", "8"),
                "warmup",
                {"paths": ["train", "val"], "strategyName": "random", "threads": 8},
            ),
            (
                (
                    "warm",
                    "--strategy",
                    "sampler",
                    "--batch-size",
                    "64",
                    "--epoch",
                    "1",
                    "--extension",
                    ".npy",
                ),
                "warmup",
                {
                    "strategyName": "sampler",
                    "sampler": {"batchSize": 64, "shuffle": False, "epoch": 1, "extensions": [".npy"]},
                },
            ),
            (("remove", "old", "tmp/files", "--yes"), "rmr", {"paths": ["old", "tmp/files"]}),
            (("evict", "--cache", "/ssd/a"), "clear", {"paths": ["/ssd/a"]}),
        ],
    ),
)
async def test_each_operation_is_a_sample_job_that_the_api_server_accepts(
    cluster: ApiCluster, api_server: str, digits: Key, words: tuple[str, ...], type_: str, options: Any
) -> None:
    word, *rest = words
    done = await data(api_server, word, str(digits), *rest, "--no-follow")
    assert done.code == 0, done.err
    created = await only_run(cluster, digits.namespace)
    assert done.out.startswith(f"{key_of(created)} created; `paddlewheel data show {digits}`")
    assert (created["spec"]["type"], created["spec"].get(f"{type_}Options")) == (type_, options)


async def test_a_run_is_followed_to_its_end(cluster: ApiCluster, api_server: str, digits: Key) -> None:
    process = await start("data", "sync", str(digits), env={"KUBECONFIG": api_server})
    created = await only_run(cluster, digits.namespace)
    await show(cluster, created, phase="Running", progress={**DONE, "filesDone": 1, "bytesDone": 1000})
    assert process.stderr
    while "1 of 3 files, 1000 B of 2.9 KiB" not in (await process.stderr.readline()).decode():
        assert process.returncode is None
    await show(cluster, created, phase="Succeeded", progress=DONE)
    found = await ended(process)
    assert (found.code, found.out) == (0, f"{key_of(created)}: Succeeded: 3 files, 2.9 KiB\n")


@pytest.mark.parametrize("output", long_after(1, ("text", "json")))
async def test_a_run_that_fails_is_exit_code_1(
    cluster: ApiCluster, api_server: str, digits: Key, output: str
) -> None:
    process = await start("data", "warm", str(digits), "-o", output, env={"KUBECONFIG": api_server})
    created = await only_run(cluster, digits.namespace)
    await show(cluster, created, phase="Failed", reason="FilesFailed", message="a.png: no answer")
    found = await ended(process)
    assert found.code == 1
    if output == "json":
        status = found.json["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "FilesFailed")
    else:
        assert "Failed: FilesFailed: a.png: no answer" in found.err


@pytest.mark.long
async def test_list_show_explain_and_cancel(cluster: ApiCluster, api_server: str, digits: Key) -> None:
    await data(api_server, "evict", str(digits), "--no-follow")
    created = await only_run(cluster, digits.namespace)
    status = {"phase": "NotBound", "reason": "SecretNotFound", "message": "there is no Secret digits"}
    await cluster.patch(SAMPLE_SETS, digits, {"status": status}, subresource="status")
    listed = await data(api_server, "list", "-A")
    row = next(line for line in listed.out.splitlines() if str(digits) in line)
    assert row.split()[:2] == [str(digits), "NotBound"]
    shown = await data(api_server, "show", str(digits), "-o", "json")
    assert [each["metadata"]["name"] for each in shown.json["runs"]] == [key_of(created).name]
    assert key_of(created).name in (await data(api_server, "show", str(digits))).out
    explained = await data(api_server, "explain", str(digits))
    assert "to do: create the Secret that is named, or correct spec.secretRef" in explained.out

    cancelled = await data(api_server, "cancel", str(key_of(created)))
    assert cancelled.code == 0

    async def is_gone() -> bool:
        try:
            found = await cluster.get(SAMPLE_JOBS, key_of(created))
        except NotFound:
            return True
        return "deletionTimestamp" in found["metadata"]

    await eventually(is_gone)


@pytest.mark.parametrize(
    ("words", "said"),
    long_after(
        2,
        [
            (("warm", "{namespace}/mnist"), "namespace {namespace} has: digits"),
            (("warm", "{digits}", "--path", "../etc"), "must not contain '..'"),
            (("sync", "{digits}", "--source", "ftp://x"), "NAME://BUCKET[.ENDPOINT][/PREFIX]"),
            (("sync", "{digits}", "--delete"), "no terminal to ask for confirmation: add --yes"),
            (("remove", "{digits}", "old"), "no terminal to ask for confirmation: add --yes"),
            (("cancel", "{namespace}/none"), "SampleJob {namespace}/none not found"),
        ],
    ),
)
async def test_bad_words_are_refused_with_a_remedy(
    api_server: str, digits: Key, words: tuple[str, ...], said: str
) -> None:
    names = {"namespace": digits.namespace, "digits": str(digits)}
    refused = await data(api_server, *(word.format(**names) for word in words))
    assert refused.code in (1, 2)
    assert refused.out == ""
    assert said.format(**names) in refused.err.replace("\n", " ")


async def test_a_set_is_created_with_its_secrets_and_followed_until_it_is_ready(
    cluster: ApiCluster, api_server: str, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "volume.env").write_text(
        "name=mnist\nstorage=minio\nbucket=http://minio:9000/b\nmetaurl=redis://r:6379/0\n"
    )
    engine = ("--engine-file", str(tmp_path / "volume.env"))
    source = ("--from", "s3://b.s3.example.com/mnist")
    words = ("create", f"{namespace}/mnist", *source, *engine, "--partitions", "2")
    command = await start("data", *words, env={"KUBECONFIG": api_server})
    key = Key(namespace, "mnist")

    async def there() -> Object | None:
        with suppress(NotFound):
            return await cluster.get(SAMPLE_SETS, key)
        return None

    found = await eventually(there, what="the SampleSet")
    assert (found["spec"]["partitions"], found["spec"]["secretRef"]) == (2, {"name": "mnist"})
    await cluster.patch(SAMPLE_SETS, key, {"status": {"phase": "Ready"}}, subresource="status")
    done = await ended(command)
    assert (done.code, done.out) == (
        0,
        f"{key} is ready; mount it with `paddlewheel job run --data mnist:/data ...`\n",
    )
    again = await data(api_server, *words)
    assert again.code == 1
    assert f"there is a SampleSet {key} already" in again.err
