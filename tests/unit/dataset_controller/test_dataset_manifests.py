"""A set's children as manifests, each one compared whole."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.dataset_controller.builders import make_set, spec_of

from cache_runtime.engines.juicefs.mount_options import mount_options
from cache_runtime.timing import CLIENT_FLUSH_TIMEOUT_SECONDS, CLIENT_LEAVE_TIMEOUT_SECONDS
from dataset_controller import timing
from dataset_controller.config import Settings
from dataset_controller.domain.paths import CacheDirectory, Places
from dataset_controller.domain.runs import SetIdentity
from dataset_controller.domain.sampleset import render
from dataset_controller.domain.sampleset.model import CacheSpec, RuntimeConfig, SetSpec
from paddlewheel.contracts.crds.options import JuiceFSMountOptions, kebab_case
from paddlewheel.contracts.dataset_names import SET_NAME_MAX, pv_name, runtime_name, set_reference
from paddlewheel.contracts.keys import Key
from paddlewheel.contracts.staged_writes import LAST_WORD_SECONDS, UNMOUNT_SECONDS, UPLOAD_SECONDS


def cache(named: str) -> CacheDirectory:
    return CacheDirectory(named, "/ssd", f"{named}/team-a/uid-1")


OWNER = SetIdentity("team-a", "digits", "uid-1")
SPEC = SetSpec(
    partitions=2,
    no_sync=True,
    source=None,
    engine_secret=Key("vault", "engine"),
    source_secret=Key("vault", "engine"),
    mount_options=(("buffer-size", "300"), ("writeback", "true")),
    cache=CacheSpec((cache("/ssd/a"), cache("/ssd/b")), 4096),
    node_affinity=None,
    tolerations=(),
    warmup=None,
)
CONFIG = RuntimeConfig("runtime:1", "nats://bus:4222", "Always", {"LOG_LEVEL": "debug"})
RUNTIME = Key("paddle-system", runtime_name("team-a", "digits", "paddle-system"))
SELECTOR = {"paddlepaddle.org/juicefs-digits": "true", "name": RUNTIME.name}
MNT = "/var/lib/paddlewheel/mnt/uid-1"
CACHES = "cache-" + hashlib.sha256(b"/ssd").hexdigest()[:12]
"""Name of the volume of the root /ssd."""


LABELS = {
    "app.kubernetes.io/managed-by": "dataset-controller",
    "paddlepaddle.org/juicefs-digits": "true",
    "paddlepaddle.org/sampleset": "team-a.digits",
}
ANNOTATIONS = {
    "CreatedBy": "paddle-operator",
    "paddlepaddle.org/sampleset": "team-a/digits",
    "paddlepaddle.org/sampleset-uid": "uid-1",
}


def metadata(name: str) -> dict[str, Any]:
    """The metadata of an object in the namespace of the release."""
    return {
        "name": name,
        "namespace": "paddle-system",
        "labels": dict(LABELS),
        "annotations": dict(ANNOTATIONS),
    }


def claim_metadata() -> dict[str, Any]:
    return {
        "name": "digits",
        "namespace": "team-a",
        "labels": dict(LABELS),
        "annotations": {"CreatedBy": "paddle-operator"},
        "ownerReferences": [
            {
                "apiVersion": "batch.paddlepaddle.org/v1alpha1",
                "kind": "SampleSet",
                "name": "digits",
                "uid": "uid-1",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def volume(source: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": "team-a.digits",
            "labels": dict(LABELS),
            "annotations": {"CreatedBy": "paddle-operator", "paddlepaddle.org/sampleset-uid": "uid-1"},
        },
        "spec": {
            "capacity": {"storage": "10Pi"},
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "paddle-operator",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "team-a",
                "name": "digits",
                "uid": "claim-uid",
            },
            **source,
        },
    }


def test_without_a_csi_driver_the_volume_is_the_path_that_agents_mount_on_labelled_nodes() -> None:
    label = {"key": "paddlepaddle.org/juicefs-team-a.digits", "operator": "Exists"}
    assert render.volume(OWNER, SPEC, None, "claim-uid") == volume(
        {
            "hostPath": {"path": "/var/lib/paddlewheel/mnt/uid-1/view/data", "type": "Directory"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [label]}]}},
        }
    )


def test_with_a_csi_driver_the_volume_names_the_sets_own_secret_and_all_mount_options() -> None:
    """Twice: the driver makes a mount pod that was lost again from `spec.mountOptions` alone."""
    caches = "cache-dir=/ssd/a/team-a/uid-1:/ssd/b/team-a/uid-1"
    options = ["buffer-size=300", caches, "cache-size=4096", "writeback"]
    assert render.volume(OWNER, SPEC, render.driver_secret_key(RUNTIME), "claim-uid") == volume(
        {
            "mountOptions": options,
            "csi": {
                "driver": "csi.juicefs.com",
                "fsType": "juicefs",
                "volumeHandle": "team-a.digits",
                "volumeAttributes": {"mountOptions": ",".join(options)},
                "nodePublishSecretRef": {"name": f"{RUNTIME.name}-volume", "namespace": "paddle-system"},
            },
        }
    )


@pytest.mark.parametrize("has_csi", [True, False])
@pytest.mark.parametrize("namespace", ["team-a", "n" * 18, "n" * 19, "n" * 63])
def test_a_volumes_name_fits_a_label_value(namespace: str, has_csi: bool) -> None:
    """As such the driver's mount pods have the handle, and where the handle is no volume's name, the driver
    does not find the volume again."""
    secret = render.driver_secret_key(RUNTIME) if has_csi else None
    made = render.volume(SetIdentity(namespace, "s" * SET_NAME_MAX, "uid-1"), SPEC, secret, "claim-uid")
    name = made["metadata"]["name"]
    assert re.fullmatch("[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name)
    assert len(name) <= 63
    assert not has_csi or made["spec"]["csi"]["volumeHandle"] == name


def test_volumes_of_long_names_are_told_apart() -> None:
    long, name = "n" * 62, "s" * SET_NAME_MAX
    names = {pv_name(long + "a", name), pv_name(long + "b", name), pv_name(long + "a", name[:-1] + "t")}
    assert len(names) == 3
    # Nobody gets the name by that of a namespace: those have no dot, and `namespace.set` has one.
    assert {each.count(".") for each in names} == {2}


EVERY_OPTION: dict[str, Any] = {
    "metrics": "127.0.0.1:9567", "attr-cache": 7200, "entry-cache": 2, "dir-entry-cache": 3,
    "enable-xattr": True, "get-timeout": 5, "put-timeout": 6, "io-retries": 7, "max-uploads": 8,
    "buffer-size": 9, "prefetch": 10, "writeback": True, "free-space-ratio": "0.2",
    "cache-partial-only": True, "open-cache": 11, "sub-dir": "a/b",
}  # fmt: skip


def test_a_csi_driver_is_given_the_options_that_the_agent_gives_to_the_client() -> None:
    """The driver passes on what the volume names: by a name that the client does not know, nothing mounts."""
    made = make_set(spec={"csi": {"juiceFSMountOptions": EVERY_OPTION}})
    given = dict(spec_of(made).mount_options)
    caches = {"cache-dir", "cache-size"}
    assert set(given) == {kebab_case(name) for name in JuiceFSMountOptions.model_fields} - caches
    items = {item for item in render.csi_options(spec_of(made)) if item.partition("=")[0] not in caches}
    assert items == {argument.removeprefix("--") for argument in mount_options(given)}
    assert "subdir=a/b" in items


def test_the_claim_is_bound_to_its_volume_by_name_and_label() -> None:
    assert render.claim(OWNER) == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": claim_metadata(),
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "10Pi"}},
            "storageClassName": "paddle-operator",
            "volumeName": "team-a.digits",
            "selector": {"matchLabels": {"paddlepaddle.org/juicefs-digits": "true"}},
        },
    }


def test_the_secret_has_a_file_for_each_value() -> None:
    assert render.secret(OWNER, RUNTIME, {"engine.name": "vol", "engine.bucket": "é"}) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(RUNTIME.name),
        "type": "Opaque",
        "data": {"engine.bucket": "w6k=", "engine.name": "dm9s"},
    }


def test_the_service_is_headless() -> None:
    assert render.service(OWNER, RUNTIME) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(f"{RUNTIME.name}-service"),
        "spec": {
            "clusterIP": "None",
            "selector": SELECTOR,
            "ports": [{"name": "service", "port": 7716, "targetPort": 7716, "protocol": "TCP"}],
        },
    }


def test_the_stateful_set_has_a_pod_for_each_partition() -> None:
    made, meta = render.stateful_set(OWNER, RUNTIME, SPEC, CONFIG, 2), metadata(RUNTIME.name)
    digest = render.template_digest(made["spec"]["template"])
    meta["annotations"] = {**meta["annotations"], "paddlepaddle.org/template": digest}
    assert made == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": meta,
        "spec": {
            "replicas": 2,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "serviceName": f"{RUNTIME.name}-service",
            "selector": {"matchLabels": SELECTOR},
            "template": {
                "metadata": {
                    "labels": {
                        "app.kubernetes.io/managed-by": "dataset-controller",
                        "app.kubernetes.io/component": "cache-runtime",
                        "paddlepaddle.org/sampleset": "team-a.digits",
                        **SELECTOR,
                    },
                    "annotations": ANNOTATIONS,
                },
                "spec": pod_of(SPEC, CONFIG),
            },
        },
    }


PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
AT_HOME = {
    "weight": 100,
    "preference": {
        "matchExpressions": [{"key": "paddlepaddle.org/home-team-a.digits", "operator": "Exists"}]
    },
}


def pod_of(spec: SetSpec, config: RuntimeConfig) -> dict[str, Any]:
    template = render.stateful_set(OWNER, RUNTIME, spec, config, 1)["spec"]["template"]
    return dict(template["spec"])


ONE_PER_NODE = {
    "requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": SELECTOR}, "topologyKey": "kubernetes.io/hostname"}
    ]
}


def test_a_runtime_pod_is_not_killed_while_its_client_flushes_and_unmounts() -> None:
    """And where it has used all its time to upload, it still tells that nothing is left."""
    assert (
        CLIENT_LEAVE_TIMEOUT_SECONDS + CLIENT_FLUSH_TIMEOUT_SECONDS < timing.RUNTIME_TERMINATION_GRACE_SECONDS
    )
    grace = pod_of(SPEC, CONFIG)["terminationGracePeriodSeconds"]
    assert grace >= UPLOAD_SECONDS + UNMOUNT_SECONDS + LAST_WORD_SECONDS


def test_a_runtime_pod_mounts_the_set_its_keys_and_its_caches() -> None:
    pod = pod_of(SPEC, CONFIG)
    [container] = pod.pop("containers")
    assert pod == {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 740,
        "affinity": {"podAntiAffinity": ONE_PER_NODE, "nodeAffinity": {PREFERRED: [AT_HOME]}},
        "tolerations": [],
        "volumes": [
            {"name": "mnt", "hostPath": {"path": MNT, "type": "DirectoryOrCreate"}},
            {"name": "state", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}},
            {"name": "secrets", "secret": {"secretName": RUNTIME.name, "defaultMode": 0o400}},
            {"name": CACHES, "hostPath": {"path": "/ssd", "type": "DirectoryOrCreate"}},
        ],
    }
    environment = container.pop("env")
    assert container == {
        "name": "runtime",
        "image": "runtime:1",
        "imagePullPolicy": "Always",
        "securityContext": {"privileged": True},
        "ports": [{"name": "service", "containerPort": 7716, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": 7716},
            "periodSeconds": 2,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": 7716},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "volumeMounts": [
            {"name": "mnt", "mountPath": MNT, "mountPropagation": "Bidirectional"},
            {"name": "state", "mountPath": "/run/paddlewheel"},
            {"name": "secrets", "mountPath": "/etc/paddlewheel/secrets", "readOnly": True},
            {"name": CACHES, "mountPath": "/ssd/a/team-a/uid-1", "subPath": "a/team-a/uid-1"},
            {"name": CACHES, "mountPath": "/ssd/b/team-a/uid-1", "subPath": "b/team-a/uid-1"},
        ],
    }
    assert environment == [
        {"name": "CACHE_RUNTIME_LOG_LEVEL", "value": "debug"},
        {"name": "CACHE_RUNTIME_NATS_URL", "value": "nats://bus:4222"},
        {"name": "CACHE_RUNTIME_SET_NAMESPACE", "value": "team-a"},
        {"name": "CACHE_RUNTIME_SET_NAME", "value": "digits"},
        {"name": "CACHE_RUNTIME_SET_UID", "value": "uid-1"},
        {"name": "CACHE_RUNTIME_MOUNT_PATH", "value": f"{MNT}/view/data"},
        {"name": "CACHE_RUNTIME_CACHE_DIRS", "value": "/ssd/a/team-a/uid-1:/ssd/b/team-a/uid-1"},
        {"name": "CACHE_RUNTIME_CACHE_ROOTS", "value": '["/ssd"]'},
        {"name": "CACHE_RUNTIME_LOCAL_SOURCES", "value": "[]"},
        {"name": "CACHE_RUNTIME_CACHE_SIZE_MIB", "value": "4096"},
        {
            "name": "CACHE_RUNTIME_MOUNT_OPTIONS",
            "value": '{"free-space-ratio": "0.2", "buffer-size": "300", "writeback": "true"}',
        },
        {"name": "CACHE_RUNTIME_SECRETS_DIR", "value": "/etc/paddlewheel/secrets"},
        {"name": "CACHE_RUNTIME_FLUSH_WAIT", "value": "600"},
        {"name": "CACHE_RUNTIME_STATE_DIR", "value": "/run/paddlewheel"},
        {"name": "CACHE_RUNTIME_HTTP_PORT", "value": "7716"},
        {
            "name": "CACHE_RUNTIME_POD_NAME",
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
        },
        {
            "name": "CACHE_RUNTIME_NODE_NAME",
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}},
        },
    ]


def test_a_runtime_pod_is_scheduled_as_its_set_says() -> None:
    mine = {"weight": 1, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}
    affinity: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {}, PREFERRED: [mine]}
    tolerations = ({"key": "gpu", "operator": "Exists"},)
    pod = pod_of(replace(SPEC, node_affinity=affinity, tolerations=tolerations), CONFIG)
    assert pod["affinity"] == {
        "podAntiAffinity": ONE_PER_NODE,
        "nodeAffinity": {**affinity, PREFERRED: [mine, AT_HOME]},
    }
    assert pod["tolerations"] == list(tolerations)


def test_a_runtime_pod_runs_where_and_as_the_operator_says() -> None:
    settings = Settings.model_validate(
        {
            "runtime_service_account": "cache-runtime",
            "runtime_node_selector": {"pool": "gpu"},
            "runtime_tolerations": [{"key": "gpu", "operator": "Exists"}],
            "runtime_free_space_ratio": "0.3",
        }
    )
    mine = replace(SPEC, tolerations=({"key": "mine", "operator": "Exists"},))
    pod = pod_of(mine, settings.runtime)
    assert pod["serviceAccountName"] == "cache-runtime"
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert [each["key"] for each in pod["tolerations"]] == ["gpu", "mine"]
    assert free_space(pod) == "0.3"


def test_the_free_space_of_a_set_comes_before_that_of_the_operator() -> None:
    own = replace(SPEC, mount_options=(("free-space-ratio", "0.05"),))
    assert free_space(pod_of(own, CONFIG)) == "0.05"


def free_space(pod: dict[str, Any]) -> str:
    env = {each["name"]: each.get("value", "") for each in pod["containers"][0]["env"]}
    return str(json.loads(env["CACHE_RUNTIME_MOUNT_OPTIONS"])["free-space-ratio"])


@pytest.mark.parametrize("ratio", ["1", "-0.1", "20%", ""])
def test_a_free_space_that_is_no_share_is_refused(ratio: str) -> None:
    with pytest.raises(ValidationError, match="runtime_free_space_ratio"):
        Settings.model_validate({"runtime_free_space_ratio": ratio})


LONG = "n" * 63, "s" * SET_NAME_MAX


@pytest.mark.parametrize(
    ("namespace", "name", "runtime", "label"),
    [
        ("paddle-system", "digits", "digits-runtime", "paddle-system.digits"),
        ("paddle-demo", "digits", "digits-paddle-demo-84051a3064-runtime", "paddle-demo.digits"),
        ("1st", "digits", "digits-1st-29ae71af67-runtime", "1st.digits"),
        (*LONG, f"{'s' * 33}-2e99343675-runtime", f"ns.73dcf99641.{'s' * 44}"),
    ],
)
def test_a_runtimes_names_are_readable_and_fit(namespace: str, name: str, runtime: str, label: str) -> None:
    found = runtime_name(namespace, name, "paddle-system")
    assert (found, set_reference(namespace, name)) == (runtime, label)
    # The StatefulSet's revision label appends 11 characters, its Service 8.
    assert len(found) <= 52
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", found), "also a valid name of a Service"
    assert len(label) <= 63


def test_sets_whose_names_join_to_the_same_text_have_different_runtimes() -> None:
    joined = [("c", "a-b"), ("b-c", "a"), ("c-d", "a-b"), ("d", "a-b-c")]
    assert len({runtime_name(namespace, name, "home") for namespace, name in joined}) == len(joined)


def test_every_root_has_a_valid_volume_name_of_its_own() -> None:
    roots = ("/disk/A_b.c", "/disk/a_b.c", "/ssd/" + "x" * 200)
    directories = tuple(CacheDirectory(root, root, f"{root}/ns/u") for root in roots)
    config = replace(CONFIG, places=Places(("/srv/Data_1",)))
    pod = pod_of(replace(SPEC, cache=CacheSpec(directories, 5)), config)
    names = [volume["name"] for volume in pod["volumes"]]
    assert len(set(names)) == 7
    assert [name for name in names if not re.fullmatch("[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name)] == []


def test_a_lent_directory_that_a_node_lacks_does_not_become_an_empty_one() -> None:
    lent = replace(CONFIG, places=Places(local_sources=("/srv/datasets",)))
    name = render.volume_name("source", "/srv/datasets")
    pod = pod_of(SPEC, lent)
    assert {"name": name, "hostPath": {"path": "/srv/datasets", "type": "Directory"}} in pod["volumes"]
    assert {
        "name": name,
        "mountPath": "/srv/datasets",
        "readOnly": True,
        "mountPropagation": "HostToContainer",
    } in pod["containers"][0]["volumeMounts"]


def test_runtime_pods_ask_for_what_the_operator_says() -> None:
    wanted = {"requests": {"memory": "1Gi"}, "limits": {"memory": "4Gi"}}
    settings = Settings.model_validate({"runtime_resources": wanted})
    template = render.pod_template(OWNER, RUNTIME, SPEC, settings.runtime)
    [container] = template["spec"]["containers"]
    assert container["resources"] == wanted
    assert Settings().runtime.resources == {"requests": {"cpu": "50m", "memory": "128Mi"}}
    with pytest.raises(ValidationError, match=r"runtime_resources\.limit\b"):
        Settings.model_validate({"runtime_resources": {"limit": {"memory": "4Gi"}}})
