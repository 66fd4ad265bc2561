"""Checks a kubeconfig before kubectl reads it: without a usable one kubectl asks localhost:8080."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.state import clusters_dir
from paddlewheel.kube.kubeconfig import present_files


def check_kubeconfig(paths: str, source: str, context: str = "") -> None:
    """Check one file or several, as kubectl merges them.

    Args:
        source: the variable or option that holds `paths`.
        context: the one to use; default: the current one of the files.

    Raises:
        Permanent: BadKubeconfig, with the source, the file and a remedy.
    """
    present = present_files(paths)
    if not present:
        raise _bad(source, paths, "does not exist", _creation(paths))
    contents = [_load(file, source) for file in present]
    contexts = _by_name(contents, "contexts", "context")
    if context and context not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise _bad(source, paths, f"has no context {context!r}", f"give --context one of those: {known}")
    current = next((str(c["current-context"]) for c in contents if c.get("current-context")), "")
    context = context or current
    if not context:
        choice = f"choose one of {', '.join(contexts)}" if contexts else "it has no contexts either"
        raise _bad(
            source, paths, "has no current context", f"`kubectl config use-context NAME` sets it; {choice}"
        )
    if context not in contexts:
        raise _bad(source, paths, f"has no context {context!r}, which is its current one")
    clusters = _by_name(contents, "clusters", "cluster")
    if not clusters.get(contexts[context].get("cluster", ""), {}).get("server"):
        raise _bad(source, paths, f"has no server for its context {context!r}")


def _load(file: Path, source: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise _bad(source, str(file), f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _bad(source, str(file), "is not YAML") from error
    if not isinstance(content, dict | None):
        raise _bad(source, str(file), "is not a kubeconfig")
    return content or {}


def _by_name(contents: list[dict[str, Any]], field: str, part: str) -> dict[str, dict[str, Any]]:
    """The named entries of all files; the first one of a name counts."""
    entries = [entry for content in contents for entry in content.get(field) or () if isinstance(entry, dict)]
    return {str(entry.get("name")): entry.get(part) or {} for entry in reversed(entries)}


def _bad(source: str, paths: str, problem: str, remedy: str = "") -> Permanent:
    other = f"set {source} to the kubeconfig of a running cluster, or omit it to use the embedded cluster"
    return Permanent("BadKubeconfig", f"{source}: {paths} {problem}; {remedy or other}")


def _creation(paths: str) -> str:
    """The file of an embedded cluster is gone with it."""
    files = [Path(part).absolute() for part in paths.split(os.pathsep) if part]
    name = next((file.parent.name for file in files if file.parent.parent == clusters_dir()), "")
    return f"`paddlewheel cluster up --name {name}` creates that cluster again" if name else ""
