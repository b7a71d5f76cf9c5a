"""The detokenisers of one model, for texts that look for one."""

from collections.abc import Sequence
from random import Random

from services.gateway.changes import Changes
from services.gateway.interfaces import Detokeniser
from services.gateway.placement import least_of_two
from services.gateway.tokenizer_client import TokenizerClient
from services.runtime.errors import UnavailableError

RETRY_DELAY_S = 1.0


class ModelDetokenisers:
    """See pinned_text.Detokenisers."""

    def __init__(
        self, tokenizers: Sequence[TokenizerClient], model: str, changes: Changes, random: Random
    ) -> None:
        self._tokenizers, self._model = tokenizers, model
        self._changes, self._random = changes, random

    def choose(self, avoid: Detokeniser | None = None) -> Detokeniser:
        """The one with fewer open texts of two; `avoid` only where it is the only one. Raises UnavailableError."""
        serving = [client for client in self._tokenizers if client.detokenises(self._model)]
        others = [client for client in serving if client is not avoid]
        if not serving:
            raise UnavailableError(
                f"No detokeniser is serving {self._model}.", retry_delay_s=RETRY_DELAY_S
            )
        return least_of_two(others or serving, lambda client: client.link.open_count, self._random)

    async def changed(self) -> None:
        """Return when a process behind the gateway has begun or ceased to serve."""
        await self._changes.wait()
