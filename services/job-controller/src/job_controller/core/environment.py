"""Addresses, ports and ranks as environment variables, for Paddle's launchers and role makers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from job_controller.core import names
from job_controller.core.job import Job
from job_controller.core.model import Observed, Options
from job_controller.core.pods import Pod, PodId, PodState, parse_epoch
from paddlewheel.contracts.crds import Mode, Network
from paddlewheel.contracts.crds.limits import LABEL_LENGTH, VARIABLE_BYTES
from paddlewheel.contracts.crds.paddlejob import ENDPOINT_VARIABLES, HETER, PS, WORKER

EnvVar = dict[str, Any]

_TRAINING_ROLE = {PS: "PSERVER", WORKER: "TRAINER", HETER: "HETER_TRAINER"}
_STAGES = {WORKER: "1", HETER: "2"}
"""The stages of the pipeline of a heter job. Each reads the endpoints of the other from the ConfigMap."""
_NEIGHBOURS = {
    WORKER: ("PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST", "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"),
    HETER: ("PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS"),
}
_GPU = "nvidia.com/gpu"
_EPOCH = "PADDLEWHEEL_EPOCH"
_CHECKPOINT = "PADDLEWHEEL_CHECKPOINT_PATH"
_ELASTIC_TIMEOUT_SECONDS = "60"
_HTTP_RENDEZVOUS = "3"
_HIGHEST = 65535
_PODS_PER_NODE = names.GLOO_OFFSET
"""The first ports of a block; gloo has one of its own."""


def endpoint(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def known_hosts(seen: Observed) -> Mapping[PodId, str] | None:
    """Host part of the endpoint of every pod that trains, None while one is unknown."""
    job = seen.job
    if job.network is Network.SERVICE:
        return {place: job.pod_name(place) for place in job.world}
    # One that has succeeded may be gone with its address, which the others must not wait for.
    done = {place: job.pod_name(place) for place in seen.succeeded.intersection(job.world)}
    pods = [seen.by_id.get(p) for p in job.world]
    found = {p.id: p.ip for p in pods if p is not None and p.ip and not p.terminating}
    hosts = done | found
    return hosts if len(hosts) == len(pods) else None


def config_data(seen: Observed, port: int) -> dict[str, str] | None:
    """The ConfigMap's content; None while hosts or ports are unknown, while a list is too long for Linux, and
    for elastic jobs, without one."""
    data = _all_data(seen, port)
    return None if data is None or _overlong(seen.job, data) else data


def overlong_list(seen: Observed, port: int) -> str:
    """Why the addresses of a role do not fit into one variable, "" when they do."""
    job = seen.job
    data = _all_data(seen, port) if _may_be_overlong(job) else None
    found = None if data is None else _overlong(job, data)
    if found is None:
        return ""
    role, name, value = found
    size, room = _size(name, value), VARIABLE_BYTES - _size(name, "")
    return (
        f"spec.{role}.replicas {job.replicas_of(role)} is too large: {name} would have {size} bytes, and"
        f" Linux starts no program with a variable of more than {VARIABLE_BYTES}; set it to"
        f" {value[: room + 1].count(',')} or less"
    )


def _may_be_overlong(job: Job) -> bool:
    """False for few pods, even if their names are as long as they may be."""
    longest = max((job.size_of(role.name) for role in job.roles), default=0)
    return longest * (LABEL_LENGTH + len(":65535,")) > VARIABLE_BYTES - LABEL_LENGTH


def _overlong(job: Job, data: Mapping[str, str]) -> tuple[str, str, str] | None:
    """A role whose list is too long, with the variable and its value."""
    if not _may_be_overlong(job):
        return None
    lists = ((role.name, *_longest_variable(job, role.name, data)) for role in job.roles)
    return next((found for found in lists if _size(*found[1:]) > VARIABLE_BYTES), None)


def _size(name: str, value: str) -> int:
    """Bytes as Linux counts them: with '=' and the final NUL."""
    return len(name) + len(value) + 2


def _longest_variable(job: Job, role: str, data: Mapping[str, str]) -> tuple[str, str]:
    """The list of the role's addresses, under the longest of the names that containers know it by."""
    listed = ENDPOINT_VARIABLES[role]
    neighbours = _NEIGHBOURS.values() if _is_pipeline(job) else ()
    others = (variable for variable, key in neighbours if key in listed)
    return max((*listed, *others), key=len), data[listed[0]]


def _all_data(seen: Observed, port: int) -> dict[str, str] | None:
    job = seen.job
    hosts = None if job.elastic else known_hosts(seen)
    ports = None if hosts is None else pod_ports(seen, port)
    if hosts is None or ports is None:
        return None
    data = {"TRAINER_PORTS_NUM": str(names.PORTS_PER_POD), "PADDLE_PORT": str(port)}
    for role in job.roles:
        pods = [PodId(role.name, i) for i in range(job.size_of(role.name))]
        data |= _role_data(role.name, [hosts[p] for p in pods], [ports[p] for p in pods])
    if job.network is Network.HOST:
        data |= {port_key(pod): str(own) for pod, own in ports.items()}
    return data | _gloo_data(job, hosts, port) | _stages_data(job) | _epoch_data(job)


def _is_pipeline(job: Job) -> bool:
    """Trainers and heter workers are its stages, around parameter servers."""
    return job.mode is Mode.PS and not job.elastic and all(job.replicas_of(role) for role in _STAGES)


def _stages_data(job: Job) -> dict[str, str]:
    if not _is_pipeline(job):
        return {}
    sizes = [job.size_of(role) for role in _STAGES]
    return {"STAGE_NUM": str(len(sizes)), "PADDLE_STAGE_TRAINERS_NUM": str(sizes)}


def _epoch_data(job: Job) -> dict[str, str]:
    """The epoch of the lists; epoch 0 adds nothing, like the original operator."""
    return {_EPOCH: str(job.status.epoch)} if job.status.epoch else {}


def epoch_of(config: Mapping[str, str]) -> int | None:
    """The epoch whose pods the ConfigMap lists, None for a malformed value."""
    return parse_epoch(config.get(_EPOCH, "0"))


def told_host(config: Mapping[str, str], pod: PodId) -> str | None:
    """The address of this pod in the ConfigMap, None when it has none there."""
    listed = (config.get(ENDPOINT_VARIABLES[pod.role][0]) or "").split(",")
    if pod.ordinal >= len(listed):
        return None
    return listed[pod.ordinal].rpartition(":")[0].strip("[]") or None


def told_pods(config: Mapping[str, str]) -> Mapping[str, int]:
    """The number of pods of each role that the ConfigMap lists."""
    lists = {role: config.get(variables[0]) for role, variables in ENDPOINT_VARIABLES.items()}
    return {
        role: len(listed.split(",")) if listed else 0 for role, listed in lists.items() if listed is not None
    }


def _role_data(role: str, hosts: list[str], ports: list[int]) -> dict[str, str]:
    joined = ",".join(map(endpoint, hosts, ports))
    data = dict.fromkeys(ENDPOINT_VARIABLES[role], joined)
    if role == WORKER:
        data |= {"PADDLE_TRAINERS": ",".join(hosts), "PADDLE_TRAINERS_NUM": str(len(hosts))}
    return data


def _gloo_data(job: Job, hosts: Mapping[PodId, str], port: int) -> dict[str, str]:
    first_server = hosts.get(PodId(PS, 0))
    if (job.spec.with_gloo or 0) <= 0 or first_server is None:
        return {}
    return {
        "PADDLE_WITH_GLOO": str(job.spec.with_gloo),
        "PADDLE_GLOO_RENDEZVOUS": _HTTP_RENDEZVOUS,
        "PADDLE_GLOO_HTTP_ENDPOINT": endpoint(first_server, port + names.GLOO_OFFSET),
    }


def container_env(job: Job, pod: PodId, port: int, options: Options, own: list[EnvVar]) -> list[EnvVar]:
    """The user's variables, except the names that we set, then ours."""
    ours = _identity(job, pod) + _elastic(job, options) + _restarts(job)
    set_directly = {v["name"] for v in ours}
    kept = [v for v in own if v.get("name") not in set_directly]
    taken = {str(v.get("name")) for v in kept}
    own_port = _own_port(job, pod, taken)
    shown_port = "$(PADDLE_PORT)" if own_port else str(port)
    endpoint_of_its_own = _current_endpoint(job, pod, shown_port, taken)
    stage = [v for v in _stage(job, pod) if v["name"] not in taken]
    return kept + ours + own_port + endpoint_of_its_own + stage


def _restarts(job: Job) -> list[EnvVar]:
    """Where a program finds its last checkpoint, and whether it should look for one."""
    checkpoint = job.spec.checkpoint_path
    epoch = {"name": _EPOCH, "value": str(job.status.epoch)}
    return [epoch, *([{"name": _CHECKPOINT, "value": checkpoint}] if checkpoint else [])]


def _own_port(job: Job, pod: PodId, taken: set[str]) -> list[EnvVar]:
    """A port on the hosts' network is known once the pod has a node."""
    if job.network is not Network.HOST or job.elastic or "PADDLE_PORT" in taken:
        return []
    ref = {"name": job.key.name, "key": port_key(pod)}
    return [{"name": "PADDLE_PORT", "valueFrom": {"configMapKeyRef": ref}}]


def _identity(job: Job, pod: PodId) -> list[EnvVar]:
    training_role = _TRAINING_ROLE[pod.role]
    return [
        _pod_ip(job, pod),
        {"name": "PADDLE_TRAINER_ID", "value": str(pod.ordinal)},
        {"name": "TRAINING_ROLE", "value": training_role},
        {"name": "PADDLE_TRAINING_ROLE", "value": training_role},
    ]


def _pod_ip(job: Job, pod: PodId) -> EnvVar:
    if job.network is Network.SERVICE:
        return {"name": "POD_IP", "value": job.pod_name(pod)}
    return {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def _stage(job: Job, pod: PodId) -> list[EnvVar]:
    """Without these, Paddle's role maker refuses a pod whose environment lists heter workers."""
    if pod.role not in _STAGES or not _is_pipeline(job):
        return []
    neighbours, key = _NEIGHBOURS[pod.role]
    ref = {"name": job.key.name, "key": key}
    return [
        {"name": "STAGE_ID", "value": _STAGES[pod.role]},
        {"name": "HETER_DEVICE_TYPE", "value": _device(job, pod.role)},
        {"name": neighbours, "valueFrom": {"configMapKeyRef": ref}},
    ]


def _device(job: Job, role: str) -> str:
    [template] = [asked.template for asked in job.roles if asked.name == role]
    resources = template["spec"]["containers"][0].get("resources") or {}
    return "gpu" if _GPU in (resources.get("limits") or {}) else "cpu"


def _elastic(job: Job, options: Options) -> list[EnvVar]:
    if not job.elastic:
        return []
    values = {
        "PADDLE_ELASTIC_JOB_ID": f"{job.key.namespace}-{job.key.name}",
        names.ELASTIC_WORKERS: str(job.replicas_of(WORKER) or 0),
        "PADDLE_ELASTIC_TIMEOUT": _ELASTIC_TIMEOUT_SECONDS,
    }
    if options.elastic_server:
        values["PADDLE_ELASTIC_SERVER"] = options.elastic_server
    return [{"name": name, "value": value} for name, value in values.items()]


def _current_endpoint(job: Job, pod: PodId, port: str, taken: set[str]) -> list[EnvVar]:
    """`init_parallel_env` without the launcher looks for its own endpoint in the trainers' list."""
    collective = job.mode is not Mode.PS and pod.role == WORKER
    if not collective or "PADDLE_CURRENT_ENDPOINT" in taken:
        return []
    return [{"name": "PADDLE_CURRENT_ENDPOINT", "value": f"$(POD_IP):{port}"}]


def told_port(job: Job) -> int:
    """The base port in the addresses."""
    claimed = job.annotations.get(names.ANNOTATION_HOST_PORT, "") if job.network is Network.HOST else ""
    return parse_port(claimed) or names.BASE_PORT


def port_key(pod: PodId) -> str:
    """The key of the pod's own port in the ConfigMap. `envFrom` requires a legal name of a variable."""
    return f"PADDLE_PORT_{pod.role.upper()}_{pod.ordinal}"


def pod_ports(seen: Observed, base: int) -> Mapping[PodId, int] | None:
    """The port of every wanted pod: the base port, unless another pod of the job on its node has it.

    A pod alone on its node has the base port, for older launchers of Paddle assume the same one everywhere.

    Returns:
        None while a node has more pods of the job than the block has ports.
    """
    if not _shares_nodes(seen.job):
        return dict.fromkeys(seen.job.pod_ids, base)
    nodes = _pods_by_node(seen)
    if any(len(pods) > _PODS_PER_NODE for pods in nodes.values()):
        return None
    block = range(base, base + _PODS_PER_NODE)
    config = seen.config or {}
    # A pod that has succeeded may be gone.
    ports = {pod: _told(config, pod, block) or base for pod in seen.job.pod_ids}
    for pods in nodes.values():
        ports |= _ports_on_node(pods, config, block)
    return ports


def crowded_node(seen: Observed) -> str:
    """Why pods cannot have ports of their own, "" when they can."""
    if not _shares_nodes(seen.job):
        return ""
    for node, pods in _pods_by_node(seen).items():
        if len(pods) > _PODS_PER_NODE:
            return (
                f"{len(pods)} pods of the job are on node {node}, and its host ports are enough for "
                f"{_PODS_PER_NODE}; spread them by a podAntiAffinity or topologySpreadConstraints"
            )
    return ""


def _shares_nodes(job: Job) -> bool:
    """Its pods have the addresses of their nodes, and the ConfigMap has the addresses of all."""
    return job.network is Network.HOST and not job.elastic


def _pods_by_node(seen: Observed) -> Mapping[str, list[Pod]]:
    """Wanted pods by their node's address."""
    nodes: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in seen.pods:
        if pod.id in seen.job.wanted and pod.ip and not pod.terminating:
            nodes[pod.ip].append(pod)
    return nodes


def _ports_on_node(pods: Iterable[Pod], config: Mapping[str, str], block: range) -> dict[PodId, int]:
    """A pod keeps its port in the ConfigMap. When two pods have one port, the pod that has started has it."""
    ports: dict[PodId, int] = {}
    for pod in sorted(pods, key=_seniority):
        told = _told(config, pod.id, block)
        if told is not None and told not in ports.values():
            ports[pod.id] = told
    free = (port for port in block if port not in ports.values())
    return ports | {pod.id: next(free) for pod in sorted(pods, key=_seniority) if pod.id not in ports}


def _told(config: Mapping[str, str], pod: PodId, block: range) -> int | None:
    port = parse_port(config.get(port_key(pod), ""))
    return port if port in block else None


def _seniority(pod: Pod) -> tuple[object, ...]:
    return not pod.began, pod.state is PodState.PENDING, pod.id


def parse_port(text: str) -> int | None:
    """A usable first port of a block, else None."""
    # An annotation may hold more digits than `int` takes.
    if not text.isdecimal() or len(text) > len(str(_HIGHEST)):
        return None
    port = int(text)
    return port if 0 < port <= _HIGHEST - names.PORTS_PER_POD + 1 else None
