"""Settings, read once from PADDLE_RUNTIME_*."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import SettingsConfigDict

from paddle_runtime.domain.files import DIGEST
from paddlewheel.core.settings import ProcessSettings

Device = Literal["auto", "cpu", "gpu"]
_MIB = 1024 * 1024


def _digest(value: str) -> str:
    if value and not DIGEST.fullmatch(value):
        raise ValueError("must be sha256: and 64 hexadecimal digits in lower case")
    return value


class PaddleRuntimeSettings(ProcessSettings):
    """Settings of one replica."""

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", env_prefix="PADDLE_RUNTIME_", protected_namespaces=()
    )

    # The model

    model_uri: str = Field(min_length=1)
    """Directory of the model: absolute path, s3://BUCKET.ENDPOINT/PREFIX, minio://HOST:PORT/BUCKET/PREFIX."""
    model_name: str = Field(
        default="model", pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=253
    )
    model_version: str = Field(
        default="1", pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=253
    )
    model_digest: Annotated[str, AfterValidator(_digest)] = ""
    """Digest that the files must have, `sha256:...`; "" accepts any."""
    store_endpoint: str = Field(default="", pattern=r"^(https?://[^/@]+/?)?$")
    """URL of the object store, where the address does not contain it, as `s3://BUCKET/PREFIX` does not."""
    store_region: str = "us-east-1"
    store_access_key: SecretStr = SecretStr("")
    store_secret_key: SecretStr = SecretStr("")
    """Without keys: those of the node or the service account, as Amazon's own clients find them."""
    store_anonymous: bool = False
    """The bucket is public: requests are not signed."""
    cache_dir: Path = Path("/var/cache/paddle-runtime")
    """Folder of fetched models; replicas on a node may share it."""
    cache_mib: int = Field(default=20 * 1024, ge=1)
    """Models that no replica uses are removed beyond this, the oldest first, before another is fetched."""
    fetch_timeout: float = Field(default=900.0, gt=0)
    """Seconds until a store that sends nothing is given up, or another replica that fetches the model."""

    # The engine

    device: Device = "auto"
    """`auto`: the GPU if Paddle was built for one and finds it."""
    gpu_memory_mib: int = Field(default=256, ge=1)
    """Memory that Paddle takes at first; it takes more when needed."""
    workers: int = Field(default=1, ge=1, le=64)
    """Processes that run the model, each with weights of its own."""
    math_threads: int = Field(default=0, ge=0, le=256)
    """Threads of one run on a CPU. 0: the container's CPU limit, divided by the number of workers."""
    warmup_shapes: dict[str, list[Annotated[int, Field(ge=1)]]] = Field(default_factory=dict)
    """JSON: shape of each input's dummy in the warm-up; every free dimension is 1 without it."""
    run_timeout: float = Field(default=300.0, gt=0)
    """Seconds that one run may take; then the process that runs the model is killed, and this one ends."""

    # Requests

    http_port: int = Field(default=8080, ge=0, le=65535)
    """Port of the protocols, open while the model is served. 0 selects a free port."""
    metrics_port: int = Field(default=0, ge=0, le=65535)
    """Port of /healthz, /readyz and /metrics, which routes do not lead to. 0: 8081, or 8082 when `http_port`
    is 8081."""
    batching: bool = True
    """Whether requests are joined where the model allows it."""
    max_batch_rows: int = Field(default=32, ge=1)
    """Maximum number of rows of joined requests; 1 joins none."""
    max_queue: int = Field(default=256, ge=1)
    """Requests that wait; beyond this the answer is 503."""
    max_body_mib: int = Field(default=64, ge=1)
    max_json_mib: int = Field(default=16, ge=1)
    """Size of a body without binary tensors, or of its JSON part. Decoded JSON takes many times its size."""
    max_pending_mib: int = Field(default=256, ge=1)
    """Memory of all requests: bodies, then tensors, then answers. Beyond this, new requests get 503."""
    body_timeout: float = Field(default=30.0, gt=0)
    """Seconds in which a client must have sent its body."""
    answer_timeout: float = Field(default=60.0, gt=0)
    """Seconds in which a client must have read its answer."""
    idle_timeout: float = Field(default=120.0, gt=0)
    """Seconds in which the head of a connection's next request must have arrived."""
    max_connections: int = Field(default=1000, ge=1)
    """Open at once; further ones get 503 and are closed."""
    drain_delay: float = Field(default=5.0, ge=0)
    """Seconds after SIGTERM in which requests are still accepted, until the routes have lost this replica."""
    drain_timeout: float = Field(default=30.0, ge=0)
    """Seconds that running requests get after that."""
    fault_delay: float = Field(default=2.0, ge=0)
    """Seconds in which /readyz reports why the model cannot be served, before the process exits."""
    termination_log: Path = Path("/dev/termination-log")
    """File for the reason of the exit; written only if it exists."""

    @field_validator("metrics_port")
    @classmethod
    def _differs(cls, value: int, info: ValidationInfo) -> int:
        if value and value == info.data.get("http_port"):
            raise ValueError("must differ from PADDLE_RUNTIME_HTTP_PORT")
        return value

    @field_validator("max_pending_mib")
    @classmethod
    def _has_room_for_a_body(cls, value: int, info: ValidationInfo) -> int:
        """Otherwise clients with the largest bodies would always get 503 and try again."""
        if value < (largest := info.data.get("max_body_mib", value)):
            raise ValueError(f"must be at least PADDLE_RUNTIME_MAX_BODY_MIB, {largest}")
        return value

    @property
    def own_port(self) -> int:
        """The port of /healthz, /readyz and /metrics."""
        return self.metrics_port or (8082 if self.http_port == 8081 else 8081)

    def threads_of_a_run(self, cpu_limit: float) -> int:
        """Threads of one run on a CPU, by the container's limit in cores."""
        return self.math_threads or max(1, int(cpu_limit) // self.workers)

    @property
    def max_cache(self) -> int:
        """Bytes."""
        return self.cache_mib * _MIB

    @property
    def max_body(self) -> int:
        """Bytes."""
        return self.max_body_mib * _MIB

    @property
    def max_json(self) -> int:
        """Bytes."""
        return min(self.max_json_mib, self.max_body_mib) * _MIB

    @property
    def max_pending(self) -> int:
        """Bytes."""
        return self.max_pending_mib * _MIB
