"""Lines that a new service adds to files it shares with the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from string import Template


class AnchorError(ValueError):
    """The file does not contain the line that the new ones belong to; names both."""


@dataclass(frozen=True)
class Insertion:
    """`text` goes into `path`, before or after the first line that starts with `anchor`.

    `anchor` and `text` are templates; `text` without its final newline.
    """

    path: str
    anchor: str
    text: str
    after: bool = True


INSERTIONS = (
    Insertion("pyproject.toml", '    "paddlewheel-trigger-controller",', '    "paddlewheel-$service",'),
    Insertion(
        "pyproject.toml",
        "paddlewheel-trigger-controller = {",
        "paddlewheel-$service = { workspace = true }",
    ),
    Insertion("pyproject.toml", '    "services/trigger-controller/src",', '    "services/$service/src",'),
    Insertion(".importlinter", "    trigger_controller.domain", "    $package.domain"),
    Insertion(
        "libs/kube/src/paddlewheel/kube/ports.py",
        'TRIGGERS = Resource("',
        '$RESOURCE = Resource("$group", "$version", "$plural", "$Kind")',
    ),
    Insertion(
        "libs/bus/src/paddlewheel/bus/streams.py",
        "SERVING = _facts(",
        '$STREAM = _facts("$STREAM", 32 * _MIB, declaration=1)',
        after=False,
    ),
    Insertion(
        "libs/bus/src/paddlewheel/bus/admin/permissions.py",
        "        AGENT,",
        """        "$service",
        publishes=(streams.$STREAM,),
        waits_for_streams=True,
        answers_commands=True,
    ),
    Role(""",
        after=False,
    ),
    Insertion(
        "libs/devcluster/src/paddlewheel/devcluster/images/catalog.py",
        '    _controller_image("trigger-controller"),',
        '    _controller_image("$service"),',
    ),
    Insertion(
        "libs/cli/src/paddlewheel/cli/dev.py",
        '    "trigger-controller": "trigger_controller",',
        '    "$service": "$package",',
    ),
    Insertion(
        "libs/sdk/src/paddlewheel/sdk/selection.py",
        '    "trigger-controller": ("triggers",),',
        '    "$service": ("$context",),',
    ),
    Insertion(
        "libs/contracts/src/paddlewheel/contracts/crds/kinds.py",
        "from paddlewheel.contracts.crds.trigger import",
        "from paddlewheel.contracts.crds.$lower import ${CONST}_RULES, ${Kind}Spec, ${Kind}Status",
        after=False,
    ),
    Insertion(
        "libs/contracts/src/paddlewheel/contracts/crds/kinds.py",
        "PUBLISHED_KINDS =",
        """$CONST = Kind(
    kind="$Kind",
    plural="$plural",
    version="$version",
    description="Say in a line what it is.",
    spec=${Kind}Spec,
    status=${Kind}Status,
    rules=${CONST}_RULES,
    columns=(
        Column("Phase", ".status.phase"),
        REASON,
        AGE,
        MESSAGE,
    ),
    group="$group",
)
""",
        after=False,
    ),
    Insertion(
        "libs/contracts/src/paddlewheel/contracts/crds/parse.py",
        "from paddlewheel.contracts.crds.trigger import",
        "from paddlewheel.contracts.crds.$lower import ${Kind}Spec",
        after=False,
    ),
    Insertion(
        "libs/contracts/src/paddlewheel/contracts/crds/parse.py",
        "parse_trigger_spec = ",
        'parse_${lower}_spec = _reader(${Kind}Spec, "spec")',
        after=False,
    ),
    Insertion(
        "libs/contracts/src/paddlewheel/contracts/crds/__init__.py",
        "    parse_trigger_spec,",
        "    parse_${lower}_spec,",
        after=False,
    ),
    Insertion(
        "libs/contracts/src/paddlewheel/contracts/crds/__init__.py",
        '    "parse_trigger_spec",',
        '    "parse_${lower}_spec",',
        after=False,
    ),
    Insertion(
        "deploy/charts/paddlewheel/values.yaml",
        "nats:",
        """$values:
  enabled: true
  replicas: 1
  namespace: ""
  extraEnv: {}
  resources:
    requests: {cpu: 50m, memory: 128Mi}
    limits: {memory: 512Mi}
""",
        after=False,
    ),
    Insertion(
        "deploy/charts/paddlewheel/values.schema.json",
        '    "networkPolicies": {',
        """    "$values": {
      "type": "object",
      "additionalProperties": false,
      "properties": {
        "enabled": {"description": "Run it.", "type": "boolean"},
        "replicas": {"$$ref": "#/definitions/count"},
        "namespace": {"$$ref": "#/definitions/namespace"},
        "extraEnv": {"$$ref": "#/definitions/env"},
        "resources": {"$$ref": "#/definitions/resources"}
      }
    },""",
        after=False,
    ),
    Insertion(
        "zensical.toml",
        '    { "Trigger" = ',
        '    { "$Kind" = "docs/reference/$lower.md" },',
    ),
    Insertion(
        "compose.yaml",
        "  redis:",
        """  $service:
    <<: *controller
    image: paddlewheel/$service:dev
    build:
      context: .
      dockerfile: services/$service/Dockerfile
    environment:
      ${ENV}_NATS_URL: nats://127.0.0.1:4222
      ${ENV}_KUBECONFIG: /etc/paddlewheel/kubeconfig
      ${ENV}_HTTP_PORT: "0"
      ${ENV}_LOG_LEVEL: $${PADDLEWHEEL_LOG_LEVEL:-info}
""",
        after=False,
    ),
)


def insert(content: str, insertion: Insertion, names: dict[str, str]) -> str:
    """The file's new content. Raises AnchorError."""
    anchor = Template(insertion.anchor).safe_substitute(names)
    text = Template(insertion.text).substitute(names)
    lines = content.split("\n")
    found = [number for number, line in enumerate(lines) if line.startswith(anchor)]
    if not found:
        raise AnchorError(f"{insertion.path}: no line starts with {anchor!r}")
    at = found[0] + (1 if insertion.after else 0)
    return "\n".join([*lines[:at], text, *lines[at:]])


def replace_in_line(content: str, old: str, new: str, path: str) -> str:
    """Raises AnchorError when `old` does not occur."""
    if old not in content:
        raise AnchorError(f"{path}: {old!r} does not occur")
    return content.replace(old, new)


Edit = Callable[[str, dict[str, str]], str]


def _modules(content: str, names: dict[str, str]) -> str:
    """Every list of services' packages; the layers name them in one line."""
    package = names["package"]
    line = "\n    trigger_controller\n"
    content = replace_in_line(content, line, f"{line}    {package}\n", ".importlinter")
    return replace_in_line(
        content, "| trigger_controller |", f"| trigger_controller | {package} |", ".importlinter"
    )


def _streams(content: str, names: dict[str, str]) -> str:
    return replace_in_line(
        content, "    TRIGGERS,\n", f"    TRIGGERS,\n    {names['STREAM']},\n", "streams.py"
    )


def _kinds(content: str, names: dict[str, str]) -> str:
    old = "KINDS = (*PUBLISHED_KINDS, TRIGGER"
    return replace_in_line(content, old, f"{old}, {names['CONST']}", "kinds.py")


def _services(content: str, names: dict[str, str]) -> str:
    old = '    "trigger-controller",\n'
    return replace_in_line(content, old, f'{old}    "{names["service"]}",\n', "catalog.py")


EDITS: dict[str, tuple[Edit, ...]] = {
    ".importlinter": (_modules,),
    "libs/bus/src/paddlewheel/bus/streams.py": (_streams,),
    "libs/contracts/src/paddlewheel/contracts/crds/kinds.py": (_kinds,),
    "libs/devcluster/src/paddlewheel/devcluster/images/catalog.py": (_services,),
}
