"""The name of a generation on a worker, where the generations of all owners and gateways meet."""

import hashlib

MAX_LENGTH = 128
"""The contract's bound on a generation id, the worker's too."""


def worker_generation_id(owner: str, generation_id: str) -> str:
    """`<owner>:<id>` of [A-Za-z0-9._:-], the owner as 20 hex digits of SHA-256, so that owners cannot meet by any choice of ids.

    An id too long for that is hashed as well: `<owner>.<hash>`. Every gateway makes the same name, so any of them can
    abort what another one runs.
    """
    prefix = hashlib.sha256(owner.encode()).hexdigest()[:20]
    name = f"{prefix}:{generation_id}"
    if len(name) <= MAX_LENGTH:
        return name
    return f"{prefix}.{hashlib.sha256(generation_id.encode()).hexdigest()}"
