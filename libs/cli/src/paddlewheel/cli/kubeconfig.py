"""Checks a kubeconfig before kubectl reads it: kubectl would ask localhost:8080 without a usable one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from paddlewheel.core.errors import Permanent
from paddlewheel.devcluster.state import clusters_dir
from paddlewheel.kube.kubeconfig import present_files


@dataclass(frozen=True)
class KubeContext:
    """A context of a kubeconfig.

    Attributes:
        files: the files with content, as in the variable. The API client cannot read empty files.
    """

    name: str
    namespace: str = "default"
    files: str = field(default="", compare=False)


def chosen_context(paths: str, source: str, context: str = "") -> KubeContext:
    """The context to use of one file or several, which are merged as kubectl merges them.

    Args:
        source: the option or variable that names the files; "" for ~/.kube/config.
        context: name of a context; "" for the current one.

    Raises:
        Permanent: BadKubeconfig, with the source, the file and what to do.
    """
    present = present_files(paths)
    if not present:
        raise _bad(source, paths, "does not exist", _creation(paths))
    return _chosen({file: _load(file, source) for file in present}, paths, source, context)


def default_context(file: Path, context: str) -> KubeContext | None:
    """The context to use of ~/.kube/config; None when the file is missing or has no contexts.

    Raises:
        Permanent: BadKubeconfig.
    """
    content = _load(file, "") if file.exists() else {}
    return _chosen({file: content}, str(file), "", context) if content.get("contexts") else None


def _chosen(found: dict[Path, dict[str, Any]], paths: str, source: str, context: str) -> KubeContext:
    contents = list(found.values())
    contexts = _by_name(contents, "contexts", "context")
    if context and context not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise _bad(source, paths, f"has no context {context!r}", f"choose --context from: {known}")
    current = next((str(c["current-context"]) for c in contents if c.get("current-context")), "")
    context = context or current
    if not context:
        choice = f"choose --context from: {', '.join(contexts)}" if contexts else "the file has no contexts"
        advice = f"set it with `kubectl config use-context NAME`; {choice}"
        raise _bad(source, paths, "has no current context", advice)
    if context not in contexts:
        raise _bad(source, paths, f"has no context {context!r}, which is its current one")
    clusters = _by_name(contents, "clusters", "cluster")
    if not clusters.get(contexts[context].get("cluster", ""), {}).get("server"):
        raise _bad(source, paths, f"has no server for its context {context!r}")
    files = os.pathsep.join(str(file) for file, content in found.items() if content)
    return KubeContext(context, contexts[context].get("namespace") or KubeContext.namespace, files)


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
    """The entries of all files by name; the first file that has a name counts."""
    entries = [entry for content in contents for entry in content.get(field) or () if isinstance(entry, dict)]
    return {str(entry.get("name")): entry.get(part) or {} for entry in reversed(entries)}


def _bad(source: str, paths: str, problem: str, advice: str = "") -> Permanent:
    if not source:
        return Permanent("BadKubeconfig", f"{paths} {problem}; {advice or 'name another with --kubeconfig'}")
    other = f"set {source} to the kubeconfig of a running cluster"
    return Permanent("BadKubeconfig", f"{source}: {paths} {problem}; {advice or other}")


def _creation(paths: str) -> str:
    """Advice for the kubeconfig of an embedded cluster that was deleted; "" for another file."""
    files = [Path(part).absolute() for part in paths.split(os.pathsep) if part]
    name = next((file.parent.name for file in files if file.parent.parent == clusters_dir()), "")
    return f"create that cluster again with `paddlewheel cluster up --name {name}`" if name else ""
