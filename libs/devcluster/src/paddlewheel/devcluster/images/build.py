"""Builds missing images and exports each as an archive named by its content hash."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Literal

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.binaries import cache_dir
from paddlewheel.devcluster.images.buildah import BuildJob, Store
from paddlewheel.devcluster.images.catalog import (
    BASE,
    CATALOG,
    IMAGES,
    ON_DEMAND,
    UV,
    ImageSpec,
    image_reference,
)
from paddlewheel.devcluster.images.command import check_tools, run_apart
from paddlewheel.devcluster.images.fingerprint import fingerprint
from paddlewheel.devcluster.images.machine import build_secrets, find_uv
from paddlewheel.devcluster.images.rootfs import rootfs_command

PARALLEL = 2
"""Concurrent builds: one can wait for the network or the disk while another computes."""

_KEPT_ARCHIVES = 2
"""Archives kept per image: the current one and the previous one, which may still be in use."""

_EXPORTED = (*IMAGES, *ON_DEMAND)

Step = Literal["cached", "building", "exporting", "done"]


@dataclass(frozen=True)
class ImageProgress:
    """Progress of one image.

    Args:
        image: name in the catalog; intermediate images such as `base` are reported too.
        step: cached and done are final.
        seconds: time since the build of this image started.
    """

    image: str
    step: Step
    seconds: float = 0.0


Report = Callable[[ImageProgress], None]


def archive_path(name: str, repository: Path, cache: Path | None = None) -> Path:
    """Path of the archive for the image's current content, which may not exist yet."""
    return _archive(cache or cache_dir(), name, fingerprint(name, repository))


def _archive(cache: Path, name: str, tag: str) -> Path:
    return cache / "images" / f"{name}-{tag}.tar"


def remove_old_archives(folder: Path, name: str) -> None:
    """Remove archives of an image, except the newest ones."""
    old = sorted(folder.glob(f"{name}-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in old[_KEPT_ARCHIVES:]:
        path.unlink()


def content_tag(archive: Path) -> str:
    """The tag an archive's image has in addition to `dev`; changes whenever the content does."""
    return archive.stem.rpartition("-")[2]


def build_images(
    names: Sequence[str], report: Report, *, repository: Path, cache: Path | None = None
) -> dict[str, Path]:
    """Create the archives of these images. For an existing archive, only its inputs are hashed.

    Args:
        names: names in `catalog.IMAGES` or `catalog.ON_DEMAND`.
        report: called from several threads, one call at a time for each image.
        repository: root of the source tree.
        cache: folder for archives and the image store; default `~/.cache/paddlewheel`.

    Raises:
        Permanent: unknown image, missing program or failed build, with the end of the build log.
    """
    _check_names(names)
    cache = cache or cache_dir()
    tags = {name: fingerprint(name, repository) for name in _needs(names)}
    archives = {name: _archive(cache, name, tags[name]) for name in names}
    if missing := _missing(archives, report):
        check_tools()
        with _locked(cache / "images"):
            still_missing = [name for name in missing if not archives[name].exists()]
            _Build(repository, cache, tags, report).run(still_missing)
    return archives


def _check_names(names: Sequence[str]) -> None:
    if unknown := sorted(set(names) - set(_EXPORTED)):
        raise Permanent("UnknownImage", f"no image {', '.join(unknown)}; there are: {', '.join(_EXPORTED)}")


def _missing(archives: dict[str, Path], report: Report) -> list[str]:
    missing = [name for name, path in archives.items() if not path.exists()]
    for name in archives.keys() - set(missing):
        report(ImageProgress(name, "cached"))
    return missing


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Allow one building process at a time; the lock is released however its holder exits."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class _Build:
    """One run over the missing images and those they are built on."""

    def __init__(self, repository: Path, cache: Path, tags: Mapping[str, str], report: Report) -> None:
        self._repository = repository
        self._cache = cache
        self._tags = tags
        self._work = cache / "images" / "work"
        self._store = Store(cache / "images" / "store")
        self._report = report

    def run(self, names: Sequence[str]) -> None:
        """Build in dependency order, PARALLEL at a time."""
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        self._store.recover()
        self._secrets = build_secrets(os.environ, self._work)
        graph = TopologicalSorter(_needs(names))
        graph.prepare()
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="image") as pool:
            try:
                self._drain(graph, pool)
            except BaseException:
                # Also on Ctrl-C: waiting builds must not begin.
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        shutil.rmtree(self._work)

    def _drain(self, graph: TopologicalSorter[str], pool: ThreadPoolExecutor) -> None:
        running: dict[Future[None], str] = {}
        while graph.is_active():
            for name in _in_catalog_order(graph.get_ready()):
                running[pool.submit(self._make, CATALOG[name])] = name
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                future.result()
                graph.done(running.pop(future))

    def _make(self, spec: ImageSpec) -> None:
        began = time.monotonic()
        reference = self._reference(spec.name)

        def say(step: Step) -> None:
            self._report(ImageProgress(spec.name, step, time.monotonic() - began))

        if not self._store.has(reference):
            say("building")
            self._log(spec.name).unlink(missing_ok=True)
            self._store.build(self._job(spec, reference))
        if spec.name in _EXPORTED:
            say("exporting")
            self._export(spec.name, reference)
        self._forget_old(spec.name, reference)
        say("done")

    def _job(self, spec: ImageSpec, reference: str) -> BuildJob:
        images = {**spec.parents, **spec.tools}
        return BuildJob(
            reference,
            self._repository / spec.dockerfile,
            self._context(spec.name),
            self._log(spec.name),
            args={argument: self._reference(image) for argument, image in images.items()},
            secrets=self._secrets if spec.tools else {},
        )

    def _context(self, name: str) -> Path:
        """Build context: the repository, except for the two images made from the machine's own files."""
        folder = self._work / name
        if name == BASE:
            folder.mkdir()
            run_apart(rootfs_command(folder / "rootfs.tar"), self._log(name))
            return folder
        if name == UV:
            folder.mkdir()
            shutil.copy2(find_uv(), folder / "uv")
            return folder
        return self._repository

    def _reference(self, name: str) -> str:
        return image_reference(name, self._tags[name])

    def _log(self, name: str) -> Path:
        return self._cache / "images" / "logs" / f"{name}.log"

    def _export(self, name: str, reference: str) -> None:
        """Write the archive to a temporary file and rename it: a file of that name is always complete."""
        target = _archive(self._cache, name, self._tags[name])
        partial = self._work / target.name
        self._store.export(reference, image_reference(name), partial, self._log(name))
        partial.rename(target)
        remove_old_archives(target.parent, name)

    def _forget_old(self, name: str, reference: str) -> None:
        """Remove exported images, which are in their archives, and outdated intermediate images."""
        repository = image_reference(name, "")
        for known in self._store.references():
            if known.startswith(repository) and (known != reference or name in _EXPORTED):
                self._store.remove(known, self._log(name))


def _needs(names: Sequence[str]) -> dict[str, frozenset[str]]:
    """The images and everything they are built on."""
    graph: dict[str, frozenset[str]] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in graph:
            graph[name] = CATALOG[name].needs
            waiting.extend(graph[name])
    return graph


def _in_catalog_order(names: Sequence[str]) -> list[str]:
    order = list(CATALOG)
    return sorted(names, key=order.index)
