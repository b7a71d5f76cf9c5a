"""Which sequences are in the next step of the simulated device. No clock: it is told the time and says what the step costs.

The rules are vLLM's: running sequences first, then waiting ones by priority and arrival; long prompts in chunks, within
a budget of tokens for each step; where no KV block is free, the running sequence of the lowest priority that came last
gives back all of its blocks, waits, and is computed again, without any change to its tokens.
"""

from bisect import insort
from collections.abc import Iterable
from operator import attrgetter

from services.worker.sim_blocks import BlockPool, EncoderCache, block_name
from services.worker.sim_costs import SimLimits
from services.worker.sim_sequence import SimSequence, features_in

_ORDER = attrgetter("order")


class Work:
    """What one step does."""

    __slots__ = ("due_s", "images", "prefill_tokens", "shares")

    def __init__(self) -> None:
        self.shares: list[tuple[SimSequence, int, int]] = []
        """SimSequence, tokens to compute for it, and how many of them are prefill."""
        self.prefill_tokens = 0
        self.images = 0
        """That the encoder has to see."""
        self.due_s = 0.0


class Scheduler:
    """Bounded by its limits in what runs; what waits is bounded by who adds it."""

    def __init__(self, limits: SimLimits, largest_image_tokens: int = 0) -> None:
        self._limits = limits
        self._pool = BlockPool(limits.blocks)
        self._encoder = EncoderCache(max(limits.batched_tokens, largest_image_tokens))
        self.running: list[SimSequence] = []
        self.waiting: list[SimSequence] = []
        """By priority, then arrival."""
        self.preemption_count = 0

    @property
    def kv_usage_ratio(self) -> float:
        """Share of the blocks that running sequences hold."""
        return self._pool.used / self._pool.capacity

    def add(self, sequence: SimSequence) -> None:
        """Let a sequence wait for its turn."""
        insort(self.waiting, sequence, key=_ORDER)

    def remove(self, sequence: SimSequence) -> None:
        """Forget a sequence, wherever it is; its blocks are free at once."""
        if sequence.running:
            self.running.remove(sequence)
            self._release(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def schedule(self, begin_s: float, together: bool = True) -> list[Work]:
        """The next steps of all sequences that are in none; empty where there are none.

        Args:
            begin_s: when the steps begin; what arrived later is not in them.
            together: one step for all, as a device does it; False: a step for each.
        """
        plan = _Plan(self._limits.batched_tokens, together)
        preempted = self._continue_running(plan)
        if not preempted:  # else there is no room anyway
            self._admit_waiting(plan, begin_s)
        return [work for work in plan.works if work.shares]

    def finish(self, work: Work) -> list[SimSequence]:
        """A step is done. Returns the sequences that have one more token, the ended ones (which run no more) included."""
        produced = []
        caching, block_tokens = self._limits.prefix_caching, self._limits.block_tokens
        for sequence, count, _ in work.shares:
            if sequence.work is not work:
                continue  # removed or preempted meanwhile
            sequence.work = None
            before = sequence.computed
            sequence.computed = now = before + count
            if caching and now // block_tokens != before // block_tokens:
                self._name_blocks(sequence, before // block_tokens, now // block_tokens)
            if now == sequence.total:
                produced.append(sequence)
                sequence.produced += 1
                sequence.total += 1
                output = sequence.output
                if sequence.produced > len(output.ids):
                    output.grow()
                if output.finished is not None and sequence.produced == len(output.ids):
                    self.remove(sequence)
        return produced

    def _continue_running(self, plan: "_Plan") -> bool:
        preempted, block_tokens = False, self._limits.block_tokens
        for sequence in tuple(self.running):
            if not plan.budget:
                break
            if sequence.work is not None or not sequence.running:
                continue
            count = min(sequence.total - sequence.computed, plan.budget)
            more = -(-(sequence.computed + count) // block_tokens) - sequence.blocks
            while more > 0 and not self._pool.take((), more):
                victim = max(self.running, key=_ORDER)
                self._preempt(victim, plan)
                preempted = True
                if victim is sequence:
                    break
            else:
                sequence.blocks += max(0, more)
                self._put(plan, sequence, count)
        return preempted

    def _admit_waiting(self, plan: "_Plan", begin_s: float) -> None:
        block_tokens = self._limits.block_tokens
        while self.waiting and plan.budget and len(self.running) < self._limits.sequences:
            sequence = self.waiting[0]
            if sequence.arrival_s > begin_s:
                return
            # The last token is always computed: a step needs something to sample from.
            names = sequence.chain[: (sequence.total - 1) // block_tokens]
            found = self._pool.hit(names) if self._limits.prefix_caching else 0
            computed = found * block_tokens
            count = min(sequence.total - computed, plan.budget)
            blocks = -(-(computed + count) // block_tokens)
            if not self._pool.take(names[:found], blocks - found):
                return
            del self.waiting[0]
            self.running.append(sequence)
            sequence.running, sequence.ready_s = True, begin_s
            sequence.held, sequence.blocks, sequence.computed = names[:found], blocks, computed
            if sequence.cached_tokens < 0:
                sequence.cached_tokens = computed
            self._put(plan, sequence, count)

    def _put(self, plan: "_Plan", sequence: SimSequence, count: int) -> None:
        prefill = count if count > 1 or not sequence.produced else 0
        images = self._images(sequence, count) if prefill and sequence.job.prompt.features else 0
        plan.put(sequence, count, prefill, images)

    def _images(self, sequence: SimSequence, count: int) -> int:
        """How many images the encoder has to see for the next `count` tokens."""
        prompt, begin, images = sequence.job.prompt, sequence.computed, 0
        for feature in features_in(prompt.features, begin, begin + count):
            placement = feature.placement
            if placement.digest not in sequence.encoded:
                sequence.encoded.add(placement.digest)
                images += not self._encoder.see(
                    prompt.cache_salt, placement.digest, placement.length
                )
        return images

    def _preempt(self, sequence: SimSequence, plan: "_Plan") -> None:
        plan.drop(sequence)
        self.running.remove(sequence)
        self._release(sequence)
        self.preemption_count += 1
        self.add(sequence)

    def _release(self, sequence: SimSequence) -> None:
        self._pool.release(sequence.held, sequence.blocks - len(sequence.held))
        sequence.held, sequence.blocks, sequence.computed = [], 0, 0
        sequence.encoded.clear()
        sequence.running, sequence.work = False, None

    def _name_blocks(self, sequence: SimSequence, begin: int, end: int) -> None:
        chain, block_tokens = sequence.chain, self._limits.block_tokens
        for index in range(begin, end):
            if index == len(chain):  # the first block with output in it, or a later one
                parent = chain[-1] if chain else sequence.prompt.root
                first, last = index * block_tokens, (index + 1) * block_tokens
                features: Iterable[bytes] = (
                    feature.placement.digest
                    for feature in features_in(sequence.job.prompt.features, first, last)
                )
                chain.append(block_name(parent, sequence.ids(first, last), features))
            if self._pool.give_name(chain[index]):
                sequence.held.append(chain[index])


class _Plan:
    """Steps being made up."""

    def __init__(self, budget: int, together: bool) -> None:
        self.budget, self._together = budget, together
        self.works = [Work()] if together else list[Work]()

    def put(self, sequence: SimSequence, count: int, prefill: int, images: int) -> None:
        if not self._together:
            self.works.append(Work())
        work = self.works[-1]
        work.shares.append((sequence, count, prefill))
        work.prefill_tokens += prefill
        work.images += images
        sequence.work = work
        self.budget -= count

    def drop(self, sequence: SimSequence) -> None:
        """Take a sequence out again, where it is in."""
        for work in self.works:
            if sequence.work is work:
                share = next(share for share in work.shares if share[0] is sequence)
                work.shares.remove(share)
                work.prefill_tokens -= share[2]
                self.budget += share[1]
