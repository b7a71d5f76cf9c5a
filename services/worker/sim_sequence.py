"""One choice of a generation inside the simulator: what of it is computed, and the blocks that it holds."""

from collections.abc import Callable, Iterable, Iterator

from services.worker.engine import Job, PlacedFeature
from services.worker.sim_blocks import block_name, root_name
from services.worker.sim_tokens import Output


class PromptNames:
    """The names of a prompt's full blocks, shared by all choices of a generation."""

    def __init__(self, job: Job, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.root = root_name(job.prompt.cache_salt)
        ids = job.prompt.token_ids
        parent, self.names = self.root, list[bytes]()
        for begin in range(0, len(ids) - block_tokens + 1, block_tokens):
            end = begin + block_tokens
            seen = (f.placement.digest for f in features_in(job.prompt.features, begin, end))
            parent = block_name(parent, ids[begin:end], seen)
            self.names.append(parent)


def features_in(features: Iterable[PlacedFeature], begin: int, end: int) -> Iterator[PlacedFeature]:
    """The features that have placeholders in [begin, end)."""
    for feature in features:
        placement = feature.placement
        if placement.offset < end and placement.offset + placement.length > begin:
            yield feature


class SimSequence:
    """Changed by the scheduler alone."""

    __slots__ = (
        "arrival",
        "arrival_s",
        "blocks",
        "cached_tokens",
        "chain",
        "computed",
        "encoded",
        "held",
        "job",
        "order",
        "output",
        "produced",
        "prompt",
        "ready_s",
        "running",
        "tell",
        "total",
        "work",
    )

    def __init__(
        self, job: Job, output: Output, prompt: PromptNames, arrival: int, arrival_s: float
    ) -> None:
        self.job, self.output, self.prompt = job, output, prompt
        self.arrival_s = arrival_s
        self.order = (job.priority, arrival)
        """Lower first; the highest is the first to be preempted."""
        self.chain = list(prompt.names)
        """Names of all full blocks whose ids are known."""
        self.total = len(job.prompt.token_ids)
        """Ids known: the prompt and what was sampled."""
        self.produced = 0
        """Ids sampled; never fewer after a preemption."""
        self.computed = 0
        """Ids whose KV is held."""
        self.blocks = 0
        self.held: list[bytes] = []
        """Names of those of its blocks that have one."""
        self.encoded: set[bytes] = set()
        """Features that this run of it has paid for."""
        self.cached_tokens = -1
        """Prompt tokens found in the cache when it first ran; -1 before."""
        self.running = False
        self.work: object | None = None
        """The step it is in."""
        self.ready_s = arrival_s
        """When it was admitted, or its last step ended."""
        self.tell: Callable[[], None] | None = None
        """Called after each new token."""

    def ids(self, begin: int, end: int) -> list[int]:
        """Ids by their position in prompt and output together."""
        prompt = self.job.prompt.token_ids
        count = len(prompt)
        return [*prompt[begin:end], *self.output.ids[max(0, begin - count) : max(0, end - count)]]
