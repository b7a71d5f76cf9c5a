"""The tokenizer service as a process."""

import time
from collections.abc import Sequence

from grpc import aio
from hotline.v1 import tokenizer_pb2, tokenizer_pb2_grpc

from services.runtime.lifecycle import Service
from services.runtime.logs import get_logger
from services.tokenizer.metrics import TokenizerMetrics
from services.tokenizer.model import Model, load_model
from services.tokenizer.servicer import TokenizerServicer
from services.tokenizer.settings import TokenizerSettings
from services.tokenizer.warm_up import warm_up

_log = get_logger()


class TokenizerApp(Service):
    """TokenizerService for one model."""

    def __init__(self, settings: TokenizerSettings) -> None:
        super().__init__()
        self._settings = settings
        self._servicer = TokenizerServicer(
            settings,
            self.require_serving,
            lambda: self.state,
            TokenizerMetrics(self.metrics.registry),
        )

    def register(self, server: aio.Server) -> Sequence[str]:
        """Add the servicer."""
        tokenizer_pb2_grpc.add_TokenizerServiceServicer_to_server(self._servicer, server)
        return (tokenizer_pb2.DESCRIPTOR.services_by_name["TokenizerService"].full_name,)

    async def warm(self) -> None:
        """Load the model's folder and use it once, in a thread. Raises ValueError or OSError where it is unusable."""
        start_s = time.monotonic()
        self._servicer.model = await self._servicer.pool.run(self._load)
        _log.info(
            "model ready",
            model=self._settings.model_name,
            roles=sorted(self._settings.roles),
            elapsed_s=round(time.monotonic() - start_s, 1),
            sessions_render=self._sessions_render(),
        )

    async def drain(self) -> None:
        """Let idle streams end."""
        self._servicer.drain()

    async def close(self) -> None:
        """Close channels and pools."""
        await self._servicer.close()

    def _sessions_render(self) -> str:
        """How much of a session's prompt is rendered in a turn: "turns", "whole", or "" where nothing is."""
        model = self._servicer.model
        if model is None or model.renderer is None:
            return ""
        return "turns" if model.renderer.goes_on else "whole"

    def _load(self) -> Model:
        model = load_model(self._settings)
        warm_up(model, self._settings.max_images)
        return model
