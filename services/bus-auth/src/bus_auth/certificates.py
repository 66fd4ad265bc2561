"""The bus's certificates and the key of bus-auth, kept in Secrets that the chart creates without data.

Without access to the cluster (`helm template`, Argo CD), Helm would make new keys at each rendering. So
bus-auth makes them, once.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from bus_auth.timing import CERTIFICATES_CHECK_INTERVAL_SECONDS
from paddlewheel.bus.callout.certificates import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    Files,
    check_readable,
    is_current,
    is_lasting,
    make_authority,
    make_key,
    make_server,
    names_of,
    renew_authority,
)
from paddlewheel.contracts.keys import Key
from paddlewheel.core.clock import Clock
from paddlewheel.core.errors import Conflict, PaddlewheelError, Permanent
from paddlewheel.core.files import replace_file
from paddlewheel.core.library_logging import LibraryLogger
from paddlewheel.kube.ports import CONFIG_MAPS, SECRETS, Cluster, Object, Resource

MADE_BY = "paddlepaddle.org/made-by"
"""Annotation of a Secret whose data the chart leaves alone."""

log = LibraryLogger(__name__)


def _has_key(files: Files) -> bool:
    return {CERTIFICATE, KEY} <= set(files)


class Certificates:
    """Makes the missing data of the Secrets, and copies this service's own files to its folder.

    Args:
        namespace: where the release and its Secrets are.
        names: DNS names of the servers.
        folder: for `tls.key` and `ca.crt`.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, names: Sequence[str], folder: Path, clock: Clock
    ) -> None:
        self._cluster, self._namespace, self._names = cluster, namespace, names
        self._folder, self._clock = folder, clock

    async def begin(self) -> None:
        """Write the files to the folder.

        Raises:
            PaddlewheelError: the API server does not answer, or a Secret is unreadable, and the folder has no
                files yet.
        """
        try:
            await self._update()
        except PaddlewheelError as error:
            # The files outlive the container, so it can start while the API server is away.
            if not (self._folder / KEY).exists():
                raise
            log.warning("the bus's certificates cannot be checked", why=str(error))

    async def run(self) -> None:
        """Keep them up to date until cancelled."""
        while True:
            await self._clock.sleep(CERTIFICATES_CHECK_INTERVAL_SECONDS)
            try:
                await self._update()
            except PaddlewheelError as error:
                log.warning("the bus's certificates cannot be checked", why=str(error))

    async def _update(self) -> None:
        now = self._clock.now()
        authority = await self._kept_authority(now)
        await self._keep_server(authority, now)
        key = await self._kept_key("bus-auth-key", lambda: make_key(now))
        await self._publish(authority[CERTIFICATE])
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, content in ((AUTHORITY, authority[CERTIFICATE]), (KEY, key[KEY])):
            _write(self._folder / name, content)

    async def _kept_authority(self, now: datetime) -> Files:
        found = await self._kept_key("nats-ca", lambda: make_authority(now))
        if is_lasting(found, now):
            return found
        log.warning("the bus's authority is renewed: replace all copies of ConfigMap bus-ca")
        # Another replica may be faster.
        return await self._kept_key(
            "nats-ca", lambda: renew_authority(found, now), lambda files: _has_key(files) and files != found
        )

    async def _kept_key(
        self, name: str, make: Callable[[], Files], is_good: Callable[[Files], bool] = _has_key
    ) -> Files:
        """The Secret's files. Unreadable ones are kept: what they signed would become invalid."""
        files = await self._kept(name, is_good, make)
        with self._readable(name):
            check_readable(files)
        return files

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        """Raises Permanent when the block finds the files of the Secret unreadable."""
        try:
            yield
        except ValueError as error:
            fix = "restore it, or remove its data: bus-auth then makes another"
            raise Permanent(
                "BusSecretUnreadable", f"Secret {self._namespace}/{name}: {error}; {fix}"
            ) from error

    async def _kept(self, name: str, is_good: Callable[[Files], bool], make: Callable[[], Files]) -> Files:
        """The Secret's files; made first when they are missing or not good."""
        while True:
            found = await self._cluster.get(SECRETS, Key(self._namespace, name))
            files = {file: base64.b64decode(text) for file, text in (found.get("data") or {}).items()}
            if is_good(files):
                return files
            # Only the authority's key signs, so only that Secret can be unreadable here.
            with self._readable("nats-ca"):
                made = make()
            try:
                await self._fill(
                    SECRETS, found, {file: base64.b64encode(text).decode() for file, text in made.items()}
                )
            except Conflict:
                # Another replica was faster.
                continue
            return made

    async def _keep_server(self, authority: Files, now: datetime) -> None:
        """Make a certificate when there is none with at least the names of the servers.

        A certificate for a new name keeps the former names until it is renewed. Otherwise two replicas with
        different names, during an update, would replace each other's certificates without end.
        """
        names: Sequence[str] = ()

        def is_good(files: Files) -> bool:
            nonlocal names
            present = names_of(files)
            complete = set(self._names) <= set(present)
            names = self._names if complete else tuple(dict.fromkeys((*self._names, *present)))
            return complete and is_current(files, authority, present, now)

        await self._kept("nats-tls-server", is_good, lambda: make_server(authority, names, now))

    async def _publish(self, authority: bytes) -> None:
        """Write the authority's certificate, by which clients verify the servers, to the ConfigMap."""
        data = {AUTHORITY: authority.decode()}
        while True:
            found = await self._cluster.get(CONFIG_MAPS, Key(self._namespace, "bus-ca"))
            if found.get("data") == data:
                return None
            # Another replica may be faster.
            with suppress(Conflict):
                return await self._fill(CONFIG_MAPS, found, data)

    async def _fill(self, resource: Resource, found: Object, data: Mapping[str, str]) -> None:
        """Write data to an object that was read. Raises Conflict when it has changed since."""
        key = Key(self._namespace, found["metadata"]["name"])
        metadata: dict[str, Any] = {"resourceVersion": found["metadata"]["resourceVersion"]}
        if not found.get("data"):
            # Data without the annotation are rendered by the chart, as in earlier releases, and stay so.
            metadata["annotations"] = {MADE_BY: "bus-auth"}
        await self._cluster.patch(resource, key, {"metadata": metadata, "data": dict(data)})
        log.info("bus-auth has written the data of an object", kind=resource.kind, name=key.name)


def _write(file: Path, content: bytes) -> None:
    """Write a file only when its content differs: other tasks check whether the file has changed."""
    if not file.exists() or file.read_bytes() != content:
        replace_file(file, content, 0o600)
