"""Finds the API server and its credentials."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger, _cleanup_temp_files

from paddlewheel.core.errors import Permanent
from paddlewheel.kube.api import ApiCluster
from paddlewheel.kube.kubeconfig import present_files


async def open_cluster(kubeconfig: str | None = None, context: str = "") -> ApiCluster:
    """Open a client: see `paddlewheel.kube.connect`."""
    settings = Configuration()
    # No limit here: ApiCluster limits calls, and streams must not block calls or other streams.
    settings.connection_pool_maxsize = 0
    path = kubeconfig or os.environ.get("KUBECONFIG")
    try:
        if not path:
            load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            return ApiCluster(_client(settings))
        _check_files(path)
        await _load_files(path, context, settings)
        return ApiCluster(_client(settings), renew=partial(_renew_token, path, context, settings))
    except (ConfigException, OSError) as error:
        raise Permanent("NoCluster", f"{error}; set KUBECONFIG to a usable file, or run in a pod") from error


def _client(settings: Configuration) -> ApiClient:
    # With trust_env, aiohttp reads ~/.netrc in a thread before each request, and fails if that file has a
    # default login in addition to our token. The proxy is the only setting needed from the environment.
    settings.client_session_kwargs = {"trust_env": False}
    settings.proxy = settings.proxy or proxy_of(settings.host)
    client = ApiClient(configuration=settings)
    _remove_temporary_files()
    return client


def proxy_of(url: str) -> str | None:
    """The proxy from HTTPS_PROXY or HTTP_PROXY. None if NO_PROXY names the host."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


async def _load_files(path: str, context: str, settings: Configuration) -> None:
    """Load the files into `settings`. This also runs a credential plugin that a file names.

    Raises:
        Permanent: the user of the context acts as another user, which this client cannot do.
    """
    merged = KubeConfigMerger(path).config  # type: ignore[no-untyped-call]
    loader = KubeConfigLoader(merged, active_context=context or None, config_base_path=None)  # type: ignore[no-untyped-call]
    user: Any = loader._user
    if other := user and user.safe_get("as"):
        raise Permanent(
            "NoCluster",
            f"{path}: the user of context {loader.current_context['name']} has `as: {other}`, which is not"
            " supported; choose a context with the credentials of that user",
        )
    plugin = (user and user.safe_get("exec")) or {}
    if command := plugin.get("command"):
        plugin["command"] = _command_of(str(command), user.path)
    await loader.load_and_set(settings)  # type: ignore[no-untyped-call]


def _command_of(command: str, kubeconfig: str) -> str:
    """A relative path begins at the folder of the kubeconfig, as for kubectl; a name is found on PATH."""
    return str(Path(kubeconfig).absolute().parent / command) if "/" in command else command


async def _renew_token(path: str, context: str, settings: Configuration) -> None:
    await _load_files(path, context, settings)
    _remove_temporary_files()


def _remove_temporary_files() -> None:
    """Remove the files into which the loader writes the certificates and keys of a kubeconfig.

    The client has read them. It would remove them only at a regular exit, not when a command is interrupted.
    """
    _cleanup_temp_files()  # type: ignore[no-untyped-call]


def _check_files(path: str) -> None:
    if not present_files(path):
        raise Permanent("NoCluster", f"{path} does not exist; set KUBECONFIG to an existing file")
