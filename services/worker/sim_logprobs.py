"""Log-probabilities that the simulator makes up: they follow from its tokens, and are such as could be true."""

import hashlib
import math
from collections.abc import Sequence

from services.worker.engine import Logprob, PositionLogprobs

_STRIDE = 7919
"""Between the ids of the likeliest tokens; prime, so that they differ in any vocabulary that it does not divide."""


def made_up_logprobs(
    token_ids: Sequence[int], position: int, vocabulary_size: int, count: int
) -> list[PositionLogprobs]:
    """One for each id: what was sampled is the likeliest, and each next one has half of the probability that is left.

    Args:
        position: of the first id in the output; the same id at another place has another probability.
        count: likeliest tokens at each place, the sampled one among them.
    """
    return [
        _position(token_id, place, vocabulary_size, count)
        for place, token_id in enumerate(token_ids, position)
    ]


def _position(token_id: int, place: int, vocabulary_size: int, count: int) -> PositionLogprobs:
    digest = hashlib.blake2b(f"{place}/{token_id}".encode(), digest_size=4).digest()
    share = 0.5 + int.from_bytes(digest, "big") / 2**33  # from 0.5 to 1, less than 1
    sampled = Logprob(token_id, math.log(share))
    top = [sampled] if count else []
    for rank in range(1, min(count, vocabulary_size)):
        probability = (1 - share) / 2**rank
        top.append(Logprob((token_id + rank * _STRIDE) % vocabulary_size, math.log(probability)))
    return PositionLogprobs(sampled, top)
