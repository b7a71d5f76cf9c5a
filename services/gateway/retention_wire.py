"""How long a native request wants its generation kept."""

import asyncio
import time

from hotline.v1 import inference_pb2

from services.gateway.fingerprint import fingerprint
from services.gateway.interfaces import GenerationRequest
from services.gateway.rest_form import RestForm
from services.gateway.retention import Retention, RetentionLimits
from services.runtime.errors import InvalidArgumentError

OFF_LOOP_BYTES = 64 * 1024
"""Larger requests are digested in a thread."""


async def native_retention(
    request: inference_pb2.GenerateRequest, generation: GenerationRequest, limits: RetentionLimits
) -> Retention | None:
    """None where the server names the generation and its reader's going ends it: nobody could come back to it.

    Raises InvalidArgumentError for more seconds than this gateway allows.
    """
    policy = request.disconnect.WhichOneof("policy")
    if policy == "keep_s":
        keep_s = float(request.disconnect.keep_s)
        check_keep("disconnect.keep_s", keep_s, limits)
    elif not request.generation_id:
        return None
    else:
        keep_s = 0.0 if policy == "cancel" else limits.default_keep_s
    digest = b""
    if request.generation_id:
        digest = await _digest(request)
    form = RestForm(
        is_chat=True,
        generation_id=generation.generation_id,
        created_s=int(time.time()),
        model=generation.model,
        choice_count=generation.choice_count,
    )
    return Retention(digest, keep_s, keep_s or limits.default_keep_s, form)


def check_keep(field: str, keep_s: float, limits: RetentionLimits) -> None:
    """Raises InvalidArgumentError for fewer or more seconds than a request may ask for."""
    if not 1 <= keep_s <= limits.max_keep_s:
        raise InvalidArgumentError(field, f"{keep_s:g}", f"1 to {limits.max_keep_s:g}")


async def _digest(request: inference_pb2.GenerateRequest) -> bytes:
    if request.ByteSize() > OFF_LOOP_BYTES:
        return await asyncio.to_thread(fingerprint, request)
    return fingerprint(request)
