"""The bus's certificates are made once, kept, and issued again when they no longer fit."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.verification import PolicyBuilder, Store
from typing_extensions import override

from bus_auth.certificates import MADE_BY, Certificates
from paddlewheel.bus.callout.keys import CalloutKey, PublicKeys
from paddlewheel.contracts.keys import Key
from paddlewheel.core.errors import NotFound, Permanent
from paddlewheel.kube.ports import CONFIG_MAPS, SECRETS, Object, Resource
from paddlewheel.testkit.clock import ManualClock
from paddlewheel.testkit.memory_cluster import MemoryCluster

HOME = "paddle-system"
NAMES = ("nats", "nats.paddle-system.svc")
SECRET_NAMES = ("nats-ca", "nats-tls-server", "bus-auth-key")


@pytest.fixture
async def cluster() -> MemoryCluster:
    """It has the empty objects that the chart creates."""
    return await with_objects(MemoryCluster())


async def with_objects(made: MemoryCluster) -> MemoryCluster:
    for name in SECRET_NAMES:
        await made.create(SECRETS, {"metadata": {"name": name, "namespace": HOME}, "type": "Opaque"})
    await made.create(CONFIG_MAPS, {"metadata": {"name": "bus-ca", "namespace": HOME}})
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def certificates(
    cluster: MemoryCluster, folder: Path, clock: ManualClock, names: tuple[str, ...] = NAMES
) -> Certificates:
    return Certificates(cluster, HOME, names, folder, clock)


async def data_of(cluster: MemoryCluster) -> dict[str, dict[str, bytes]]:
    found: dict[str, Any] = {name: await cluster.get(SECRETS, Key(HOME, name)) for name in SECRET_NAMES}
    return {
        name: {file: base64.b64decode(text) for file, text in secret["data"].items()}
        for name, secret in found.items()
    }


def alternatives(certificate: bytes) -> list[str]:
    made = x509.load_pem_x509_certificate(certificate)
    found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return found.get_values_for_type(x509.DNSName)


async def test_empty_secrets_are_filled(cluster: MemoryCluster, tmp_path: Path, clock: ManualClock) -> None:
    await certificates(cluster, tmp_path / "bus", clock).begin()

    made = await data_of(cluster)
    authority = x509.load_pem_x509_certificate(made["nats-ca"]["tls.crt"])
    server = made["nats-tls-server"]
    x509.load_pem_x509_certificate(server["tls.crt"]).verify_directly_issued_by(authority)
    assert server["ca.crt"] == made["nats-ca"]["tls.crt"]
    assert alternatives(server["tls.crt"]) == list(NAMES)
    published = await cluster.get(CONFIG_MAPS, Key(HOME, "bus-ca"))
    assert published["data"] == {"ca.crt": server["ca.crt"].decode()}
    assert published["metadata"]["annotations"] == {MADE_BY: "bus-auth"}
    assert (tmp_path / "bus" / "ca.crt").read_bytes() == server["ca.crt"]
    (tmp_path / "tls.crt").write_bytes(made["bus-auth-key"]["tls.crt"])
    mine = CalloutKey(tmp_path / "bus" / "tls.key").public
    assert mine.user == PublicKeys.of_certificate(tmp_path / "tls.crt").user


async def test_what_is_there_is_kept(cluster: MemoryCluster, tmp_path: Path, clock: ManualClock) -> None:
    await certificates(cluster, tmp_path, clock).begin()
    before = await data_of(cluster)

    await certificates(cluster, tmp_path / "restarted", clock).begin()

    assert await data_of(cluster) == before


async def test_replicas_that_start_together_agree(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock
) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    await asyncio.gather(*(certificates(cluster, folder, clock).begin() for folder in folders))

    made = await data_of(cluster)
    assert {(folder / "tls.key").read_bytes() for folder in folders} == {made["bus-auth-key"]["tls.key"]}
    assert {(folder / "ca.crt").read_bytes() for folder in folders} == {made["nats-ca"]["tls.crt"]}
    assert made["nats-tls-server"]["ca.crt"] == made["nats-ca"]["tls.crt"]


class Together(MemoryCluster):
    """The first two who ask for `bus-ca` get their answers at once, before either has filled it."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0
        self._both = asyncio.Event()

    @override
    async def get(self, resource: Resource, key: Key) -> Object:
        found = await super().get(resource, key)
        if key.name == "bus-ca":
            self._asked += 1
            if self._asked >= 2:
                self._both.set()
            await self._both.wait()
        return found


async def test_replicas_that_publish_the_authority_together_agree(tmp_path: Path, clock: ManualClock) -> None:
    cluster = await with_objects(Together())
    folders = [tmp_path / str(number) for number in range(2)]

    await asyncio.gather(*(certificates(cluster, folder, clock).begin() for folder in folders))

    published = await cluster.get(CONFIG_MAPS, Key(HOME, "bus-ca"))
    assert {(folder / "ca.crt").read_text() for folder in folders} == {published["data"]["ca.crt"]}


@pytest.mark.parametrize("file", ["tls.crt", "ca.crt"])
async def test_an_unreadable_certificate_of_the_servers_is_replaced(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock, file: str
) -> None:
    await certificates(cluster, tmp_path, clock).begin()
    await put(cluster, "nats-tls-server", file)

    await certificates(cluster, tmp_path, clock).begin()

    made = await data_of(cluster)
    assert made["nats-tls-server"]["ca.crt"] == made["nats-ca"]["tls.crt"]
    assert alternatives(made["nats-tls-server"]["tls.crt"]) == list(NAMES)


@pytest.mark.parametrize(
    ("secret", "file"), [("nats-ca", "tls.crt"), ("nats-ca", "tls.key"), ("bus-auth-key", "tls.key")]
)
async def test_an_unreadable_key_is_named_and_the_files_before_are_used(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock, secret: str, file: str
) -> None:
    await certificates(cluster, tmp_path, clock).begin()
    before = (tmp_path / "tls.key").read_bytes(), (tmp_path / "ca.crt").read_bytes()
    await put(cluster, secret, file)

    await certificates(cluster, tmp_path, clock, (*NAMES, "bus.example")).begin()
    assert ((tmp_path / "tls.key").read_bytes(), (tmp_path / "ca.crt").read_bytes()) == before

    with pytest.raises(Permanent, match=f"Secret {HOME}/{secret}"):
        await certificates(cluster, tmp_path / "new", clock, (*NAMES, "bus.example")).begin()


async def test_replicas_with_different_names_agree_on_a_certificate(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock
) -> None:
    """During an update. The next renewal removes the other names."""
    older, newer = ((*NAMES, name) for name in ("before.example", "after.example"))
    made = []
    for number, names in enumerate((older, newer) * 3):
        await certificates(cluster, tmp_path / str(number), clock, names).begin()
        made.append((await data_of(cluster))["nats-tls-server"]["tls.crt"])

    assert set(alternatives(made[-1])) == {*older, *newer}
    assert made[1:] == made[1:2] * 5

    await clock.advance(timedelta(days=320).total_seconds())
    await certificates(cluster, tmp_path / "renewed", clock, newer).begin()
    assert set(alternatives((await data_of(cluster))["nats-tls-server"]["tls.crt"])) == set(newer)


async def put(cluster: MemoryCluster, secret: str, file: str) -> None:
    """Something that is no PEM."""
    junk = base64.b64encode(b"junk").decode()
    await cluster.patch(SECRETS, Key(HOME, secret), {"data": {file: junk}})


async def test_other_names_and_a_near_end_renew_the_servers_certificate_alone(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock
) -> None:
    await certificates(cluster, tmp_path, clock).begin()
    first = await data_of(cluster)

    await certificates(cluster, tmp_path, clock, (*NAMES, "bus.example")).begin()
    second = await data_of(cluster)
    assert {name for name in first if first[name] != second[name]} == {"nats-tls-server"}
    assert "bus.example" in alternatives(second["nats-tls-server"]["tls.crt"])

    await clock.advance(timedelta(days=320).total_seconds())
    await certificates(cluster, tmp_path, clock, (*NAMES, "bus.example")).begin()
    third = await data_of(cluster)
    assert {name for name in first if second[name] != third[name]} == {"nats-tls-server"}


async def test_the_authority_is_renewed_with_its_key_two_years_before_its_end(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock
) -> None:
    await certificates(cluster, tmp_path, clock).begin()
    first = await data_of(cluster)
    await clock.advance(timedelta(days=3650 - 731).total_seconds())
    await certificates(cluster, tmp_path, clock).begin()
    second = await data_of(cluster)
    assert second["nats-ca"] == first["nats-ca"]

    await clock.advance(timedelta(days=2).total_seconds())
    folders = [tmp_path / str(number) for number in range(2)]
    await asyncio.gather(*(certificates(cluster, folder, clock).begin() for folder in folders))

    third = await data_of(cluster)
    old, new = (x509.load_pem_x509_certificate(made["nats-ca"]["tls.crt"]) for made in (first, third))
    assert new.not_valid_after_utc == old.not_valid_after_utc + timedelta(days=3650 - 729)
    assert new.subject == old.subject
    assert third["nats-ca"]["tls.key"] == first["nats-ca"]["tls.key"]
    published = await cluster.get(CONFIG_MAPS, Key(HOME, "bus-ca"))
    assert published["data"]["ca.crt"].encode() == third["nats-ca"]["tls.crt"]
    assert {(folder / "ca.crt").read_bytes() for folder in folders} == {third["nats-ca"]["tls.crt"]}
    # Clients with the certificate before, and servers with theirs before, go on.
    for authority in (old, new):
        for made in (second, third):
            assert is_accepted(made["nats-tls-server"]["tls.crt"], authority, clock)


class Emptied(MemoryCluster):
    """The data of the authority's Secret are removed after the first look at them."""

    looks = 0

    @override
    async def get(self, resource: Resource, key: Key) -> Object:
        found = await super().get(resource, key)
        if key.name == "nats-ca":
            self.looks += 1
            if self.looks == 1:
                await self.patch(SECRETS, key, {"data": None})
        return found


async def test_an_authority_that_is_emptied_during_its_renewal_is_filled_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    await with_objects(cluster := Emptied())
    cluster.looks = 2
    await certificates(cluster, tmp_path, clock).begin()
    first = await data_of(cluster)
    await clock.advance(timedelta(days=3000).total_seconds())
    cluster.looks = 0
    await certificates(cluster, tmp_path, clock).begin()

    made = await data_of(cluster)
    assert made["nats-ca"]["tls.key"] == first["nats-ca"]["tls.key"]
    authority = x509.load_pem_x509_certificate(made["nats-ca"]["tls.crt"])
    assert authority.not_valid_after_utc > clock.now() + timedelta(days=3000)
    assert is_accepted(made["nats-tls-server"]["tls.crt"], authority, clock)


@pytest.mark.parametrize("days", [0, 3000])
async def test_an_authority_with_a_key_of_another_kind_ends_with_a_message(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock, days: int
) -> None:
    """An RSA key, for example: a ValueError would end the task that checks all Secrets."""
    await certificates(cluster, tmp_path, clock).begin()
    made = await data_of(cluster)
    files = {"tls.crt": made["nats-ca"]["tls.crt"], "tls.key": made["bus-auth-key"]["tls.key"]}
    encoded = {file: base64.b64encode(content).decode() for file, content in files.items()}
    await cluster.patch(SECRETS, Key(HOME, "nats-ca"), {"data": encoded})
    await cluster.patch(SECRETS, Key(HOME, "nats-tls-server"), {"data": None})
    await clock.advance(timedelta(days=days).total_seconds())

    with pytest.raises(Permanent, match="Secret paddle-system/nats-ca: the authority's key is not an EC key"):
        await certificates(cluster, tmp_path / "new", clock).begin()


async def test_an_authority_that_has_ended_is_renewed(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock
) -> None:
    await certificates(cluster, tmp_path, clock).begin()
    await clock.advance(timedelta(days=3651).total_seconds())
    await certificates(cluster, tmp_path, clock).begin()

    made = await data_of(cluster)
    authority = x509.load_pem_x509_certificate(made["nats-ca"]["tls.crt"])
    assert is_accepted(made["nats-tls-server"]["tls.crt"], authority, clock)


def is_accepted(server: bytes, authority: x509.Certificate, clock: ManualClock) -> bool:
    """Whether a client that knows the authority accepts the certificate."""
    builder = PolicyBuilder().store(Store([authority])).time(clock.now())
    verifier = builder.build_server_verifier(x509.DNSName(NAMES[0]))
    return bool(verifier.verify(x509.load_pem_x509_certificate(server), []))


async def with_authority_of_helm(cluster: MemoryCluster, clock: ManualClock) -> x509.SubjectKeyIdentifier:
    """An authority as Helm makes it, with an identifier that other programs compute otherwise."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "paddlewheel-bus")])
    identifier = x509.SubjectKeyIdentifier(bytes(range(20)))
    usage = dict.fromkeys(
        ("content_commitment", "data_encipherment", "key_agreement", "crl_sign", "encipher_only"), False
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(5)
        .not_valid_before(clock.now())
        .not_valid_after(clock.now() + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_encipherment=True,
                key_cert_sign=True,
                decipher_only=False,
                **usage,
            ),
            critical=True,
        )
        .add_extension(identifier, critical=False)
        .sign(key, SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    data = {"tls.crt": made.public_bytes(Encoding.PEM), "tls.key": pem}
    encoded = {file: base64.b64encode(content).decode() for file, content in data.items()}
    await cluster.patch(SECRETS, Key(HOME, "nats-ca"), {"data": encoded})
    return identifier


def named_authority(certificate: bytes) -> bytes | None:
    """The key identifier of the authority in a certificate."""
    made = x509.load_pem_x509_certificate(certificate)
    return made.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier


async def test_the_servers_certificate_names_the_authority_as_the_authority_names_itself(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock
) -> None:
    identifier = await with_authority_of_helm(cluster, clock)

    await certificates(cluster, tmp_path, clock).begin()
    made = await data_of(cluster)
    assert named_authority(made["nats-tls-server"]["tls.crt"]) == identifier.digest

    await clock.advance(timedelta(days=3000).total_seconds())
    await certificates(cluster, tmp_path, clock).begin()
    renewed = await data_of(cluster)
    authority = x509.load_pem_x509_certificate(renewed["nats-ca"]["tls.crt"])
    assert authority != x509.load_pem_x509_certificate(made["nats-ca"]["tls.crt"])
    assert authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value == identifier


async def test_a_certificate_that_names_another_authority_is_replaced(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock
) -> None:
    await certificates(cluster, tmp_path, clock).begin()
    identifier = await with_authority_of_helm(cluster, clock)
    signed = await data_of(cluster)
    authority = base64.b64encode(signed["nats-ca"]["tls.crt"]).decode()
    await cluster.patch(SECRETS, Key(HOME, "nats-tls-server"), {"data": {"ca.crt": authority}})

    await certificates(cluster, tmp_path, clock).begin()

    made = await data_of(cluster)
    assert named_authority(made["nats-tls-server"]["tls.crt"]) == identifier.digest


async def test_data_that_a_chart_rendered_before_get_no_mark(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock
) -> None:
    """The chart goes on rendering them: Helm takes away what it does not render again."""
    await certificates(cluster, tmp_path, clock).begin()
    for name in SECRET_NAMES:
        await cluster.patch(SECRETS, Key(HOME, name), {"metadata": {"annotations": None}})

    await certificates(cluster, tmp_path, clock, ("bus.example",)).begin()

    found = await cluster.get(SECRETS, Key(HOME, "nats-tls-server"))
    assert not found["metadata"].get("annotations")


async def test_a_start_without_the_api_server_uses_the_files_before(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock
) -> None:
    await cluster.delete(SECRETS, Key(HOME, "nats-ca"))
    with pytest.raises(NotFound):
        await certificates(cluster, tmp_path, clock).begin()

    (tmp_path / "tls.key").write_text("as before")
    await certificates(cluster, tmp_path, clock).begin()


async def test_clients_that_check_strictly_accept_the_servers_certificate(
    cluster: MemoryCluster, tmp_path: Path, clock: ManualClock
) -> None:
    await certificates(cluster, tmp_path, clock).begin()

    made = await data_of(cluster)
    authority = x509.load_pem_x509_certificate(made["nats-ca"]["tls.crt"])
    assert is_accepted(made["nats-tls-server"]["tls.crt"], authority, clock)
