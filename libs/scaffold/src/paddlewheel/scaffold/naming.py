"""Every form in which a new service's name appears."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_CONTEXT = re.compile(r"[a-z][a-z0-9]*")
_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_SUFFIX = "-controller"


class BadNameError(ValueError):
    """A name is invalid. The message has the cause."""


@dataclass(frozen=True)
class Naming:
    """Names derived from the service's and the kind's.

    Args:
        service: name of the service in kebab-case, ending with `-controller`.
        kind: kind of the custom resource in CamelCase.
        context: context of the facts, which is a part of their subjects, their stream and their proto
            package; "" = the kind's plural.
    """

    service: str
    kind: str
    group: str = "batch.paddlepaddle.org"
    version: str = "v1alpha1"
    context: str = ""

    @classmethod
    def of(cls, name: str, kind: str = "", group: str = "", version: str = "", context: str = "") -> Naming:
        """The names for the user's arguments; an empty argument has its default.

        Args:
            name: `notebook` or `notebook-controller`.
            kind: kind of the custom resource; "" = the name in CamelCase.

        Raises:
            BadNameError: a name is invalid; the message describes valid names.
        """
        stem = name.removesuffix(_SUFFIX)
        if not _NAME.fullmatch(stem):
            raise BadNameError(f"NAME={name}: use lower-case words joined by '-', such as notebook")
        kind = kind or "".join(word.capitalize() for word in stem.split("-"))
        if not _KIND.fullmatch(kind):
            raise BadNameError(f"KIND={kind}: use CamelCase, such as Notebook")
        if version and not _VERSION.fullmatch(version):
            raise BadNameError(f"VERSION={version}: use a Kubernetes API version, such as v1alpha1")
        if context and not _CONTEXT.fullmatch(context):
            raise BadNameError(f"CONTEXT={context}: use one lower-case word, such as notebooks")
        given = {"group": group, "version": version, "context": context}
        return cls(f"{stem}{_SUFFIX}", kind, **{name: value for name, value in given.items() if value})

    @property
    def placeholders(self) -> dict[str, str]:
        """Values of the template's placeholders."""
        lower, plural = self.kind.lower(), f"{self.kind.lower()}s"
        package = self.service.replace("-", "_")
        words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", self.kind)
        head, *tail = self.service.split("-")
        constant = "_".join(word.upper() for word in words)
        context = self.context or plural
        return {
            "service": self.service,
            "package": package,
            "Kind": self.kind,
            "lower": lower,
            "plural": plural,
            "context": context,
            "group": self.group,
            "version": self.version,
            "ENV": package.upper(),
            "CONST": constant,
            "RESOURCE": f"{constant}S",
            "STREAM": context.upper(),
            "stream": f"PW_{context.upper()}",
            "values": head + "".join(word.capitalize() for word in tail),
            "finalizer": f"{lower}.paddlepaddle.org/facts",
        }
