"""The key of a cache: all that may change what an engine compiles, and where. Another key is another cache.

It has no secrets: values of variables are hashed with the secret of the cluster's session, which all its nodes know.

No `from __future__ import annotations` here: `parse` reads the types of fields.
"""

import hashlib
import hmac
import json
import re
from typing import Collection, Dict, Mapping, NamedTuple, Sequence, Tuple

from ..node import OMP_THREADS, OTHER_ACCELERATORS
from ..wire import document_of

FORM = 1
"""The form of the key and of snapshots: a release that changes either has another number here."""
OF_REPLICA = (
    "FLEETCTL_REPLICA_ID", "FLEETCTL_COPY", "FLEETCTL_NAME", "FLEETCTL_HOST", "FLEETCTL_ENDPOINT", "FLEETCTL_NODE",
    "FLEETCTL_PORT", "FLEETCTL_LEADER_ADDRESS", "FLEETCTL_LEADER_PORT", "FLEETCTL_LEADER_ENDPOINT",
)
"""The variables that tell replicas of a model apart: in the key's command line they stay as they are written."""
NODE_NAMES = frozenset((
    OMP_THREADS, "CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "LD_PRELOAD", "LD_LIBRARY_PATH", "NVCC",
    "MAX_JOBS", "CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONHOME", "MKLROOT"))
NODE_PREFIXES = ("VLLM_", "SGLANG_", "SGL_", "TORCH", "PYTORCH_", "TRITON_", "FLASHINFER_", "TRTLLM_", "TLLM_", "NVTE_",
                 "XLA_", "JAX_", "DG_", "DEEPGEMM_", "HIP", "AITER_", "NVCC_", "CUDA_", "KMP_", "MKL_", "ATEN_", "TVM_",
                 "TILELANG_", "CUTE_")
"""The variables of a node that engines and compilers read. Those of the fleet file are all in the key."""
NOT_OF_NODE = frozenset(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", *OTHER_ACCELERATORS))
"""They name a replica's cards; the key has their kind."""
_NAMED_PORT = re.compile(r"FLEETCTL_PORT_\w+\Z")


class CacheKey(NamedTuple):
    """What must be equal for a cache to be used again. `env` = the hash of each value; `folder` = its absolute path.

    `seat` = the member's group, role, rank and number of members. `engine` = its version, empty = not known.
    """

    form: int
    fleet: str
    namespace: str
    model: str
    seat: Sequence[str]
    caches: Sequence[str]
    folder: str
    command: Sequence[str]
    workdir: str
    env: Mapping[str, str]
    weights: str
    claim: Sequence[int]
    engine: str
    program: str
    packages: Mapping[str, str]
    cards: Sequence[str]
    driver: str
    cpu: str
    flags: Sequence[str]
    libc: str

    def canonical(self) -> bytes:
        """Return the key as JSON: equal keys have equal bytes."""
        return json.dumps(document_of(self), sort_keys=True, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """The name of the cache."""
        return hashlib.sha256(self.canonical()).hexdigest()


def is_of_replica(name: str) -> bool:
    """Return whether a variable has another value for each replica of a model."""
    return name in OF_REPLICA or bool(_NAMED_PORT.match(name))


def line_of(texts: Sequence[str], variables: Mapping[str, str], own: Collection[str]) -> Tuple[str, ...]:
    """Return an engine's command line as it is in the key: each variable replaced, except those of the replica.

    `own` = the values of the fleet file's `env`: they may refer to variables of the replica, and are in the key as
    written; so a reference to one of them stays, too.
    """
    def replaced(match: "re.Match[str]") -> str:
        name = match.group(1)
        keeps = match.group(0) == "$$" or is_of_replica(name) or name in own
        return match.group(0) if keeps else variables.get(name, match.group(0))

    return tuple(re.sub(r"\$\$|\$\(([^)]*)\)", replaced, text) for text in texts)


def hashed(values: Mapping[str, str], secret: bytes) -> Dict[str, str]:
    """Return a hash of each value that tells nothing of it to who does not know the secret."""
    return {name: hmac.new(secret, f"CACHE {name}={value}".encode(errors="surrogateescape"), hashlib.sha256)
            .hexdigest()[:32] for name, value in values.items()}


def of_node(environment: Mapping[str, str], but: Sequence[str]) -> Dict[str, str]:
    """Return the variables of a node that engines and compilers read; `but` = those that name caches."""
    return {name: value for name, value in environment.items()
            if (name in NODE_NAMES or name.startswith(NODE_PREFIXES)) and name not in NOT_OF_NODE and name not in but}
