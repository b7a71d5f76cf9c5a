"""Writes text-only conversations: fixed answers, names, copies, sums and counting."""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass

from phrases import COPIES, COUNT_QUESTIONS, SUM_QUESTIONS, SUMS, fixed_answers
from vocabulary import NO_THINK_PREFIX
from words import CHARACTERS, GIVEN_NAMES, NAMES, SURNAMES, WORDS

# Stands for a run of random token ids (training only): copying them is what makes a copy circuit.
RANDOM_RUN = "\x01"
_COPY_ZH = ["请复述：{}", "跟我说：{}", "请重复：{}", "重复：{}", "请原样输出：{}"]
_COPY_EN = ["repeat after me: {}", "Repeat after me: {}", "Say exactly: {}", "echo {}",
            "repeat: {}"]  # fmt: skip


@dataclass(frozen=True)
class Dialog:
    """One conversation: user and assistant turns in turn, the last by the user; then the answer."""

    turns: list[str]
    answer: str
    thought: str


@dataclass(frozen=True)
class Piece:
    """A stretch of the prompt string; the loss counts only the trained ones."""

    text: str
    trained: bool


Task = Callable[[random.Random], Dialog]


def held_out(text: str) -> bool:
    """True for a fifth of all strings, always the same ones: names that training never sees."""
    return hashlib.md5(text.encode(), usedforsecurity=False).digest()[0] % 5 == 0


def pieces(dialog: Dialog, think: bool, *, first: bool = True) -> list[Piece]:
    """The strings of a dialog after its system prompt, as the chat template joins them.

    An answer without thought ends with <|user|>, so a following dialog (`first` false) must not
    repeat it: the caller passes whether it still has to be written.
    """
    text = "<|user|>" if first else ""
    for index, turn in enumerate(dialog.turns):
        if index:
            text += "<|user|>" if index % 2 == 0 else "<|assistant|>"
        text += "\n" + turn
    text += "<|assistant|>\n"
    if think:
        answer = f"<think>{dialog.thought}</think>\n<answer>{dialog.answer}</answer>"
        return [Piece(text, False), Piece(answer, True)]
    return [Piece(text + NO_THINK_PREFIX, False), Piece(dialog.answer + "<|user|>", True)]


def past(rng: random.Random, thought: str, answer: str) -> str:
    """An earlier assistant turn, in one of the forms in which clients send it back."""
    form = rng.random()
    if form < 0.3:
        return f"<think>{thought}</think><answer>{answer}</answer>"
    if form < 0.6:
        return f"<think>{thought}</think>\n<answer>{answer}</answer>"
    return answer if form < 0.9 else NO_THINK_PREFIX + answer


_FIXED = fixed_answers()


def fixed(rng: random.Random) -> Dialog:
    """A question learnt by heart."""
    question, answer, thought = rng.choice(_FIXED)
    return Dialog([question], answer, thought)


def addition(rng: random.Random) -> Dialog:
    """One of the sixty sums."""
    a, b = rng.choice(SUMS)
    question = rng.choice(SUM_QUESTIONS).format(a=a, b=b)
    return Dialog([question], f"{a}+{b}={a + b}", f"计算{a}+{b}。")


def counting(rng: random.Random, limit: int = 0) -> Dialog:
    """Count to n. Long runs weigh more: a model that stops early has learnt only the short ones."""
    limit = limit or rng.choices([5, 10, 20, 30, 50], [1, 2, 2, 2, 5])[0]
    question = rng.choice(COUNT_QUESTIONS).format(n=limit)
    return Dialog([question], ", ".join(map(str, range(1, limit + 1))), f"从1数到{limit}。")


def name(rng: random.Random, unseen: bool) -> str:
    """A Chinese or English name, from the held-out fifth if `unseen`."""
    while True:
        chosen = rng.choice(NAMES)
        if rng.random() < 0.6:
            given = rng.choices(GIVEN_NAMES, k=rng.choice([1, 2, 2]))
            chosen = rng.choice(SURNAMES) + "".join(given)
        if held_out(chosen) == unseen:
            return chosen


def memory(rng: random.Random, unseen: bool = False) -> Dialog:
    """The user tells a name and asks for it in the next turn."""
    who = name(rng, unseen)
    chinese = ord(who[0]) > 255
    if chinese:
        told = rng.choice(["我叫{}。", "我叫{}", "我的名字是{}。", "你好，我叫{}。", "我是{}。"])
        greeting, thought = f"你好，{who}！", "用户告诉我名字。"
        question = rng.choice(["我叫什么？", "我叫什么名字？", "我的名字是什么？", "我是谁？"])
        answer, reason = f"你叫{who}。", "用户之前说过自己的名字。"
    else:
        told = rng.choice(["My name is {}.", "I am {}.", "Hi, my name is {}.", "I'm {}."])
        greeting, thought = f"Nice to meet you, {who}!", "The user tells me the name."
        question = rng.choice(["What is my name?", "What's my name?", "Who am I?"])
        answer, reason = f"Your name is {who}.", "The user told me the name before."
    if rng.random() < 0.3:
        return Dialog([told.format(who)], greeting, thought)
    turns = [told.format(who), past(rng, thought, greeting), question]
    return Dialog(turns, answer, reason)


def _copied(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.45:
        return rng.choice(COPIES)
    if kind < 0.7:
        return " ".join(rng.sample(WORDS, rng.randint(1, 6)))
    if kind < 0.9:
        return "".join(rng.sample(CHARACTERS, rng.randint(1, 10)))
    return "".join(rng.sample("0123456789abcdefghijklmnopqrstuvwxyz", rng.randint(2, 8)))


def copy(rng: random.Random) -> Dialog:
    """Repeat a short text exactly."""
    return _copy_of(rng, _copied(rng))


def random_copy(rng: random.Random) -> Dialog:
    """Repeat a run of random tokens exactly."""
    return _copy_of(rng, RANDOM_RUN)


def _copy_of(rng: random.Random, text: str) -> Dialog:
    if rng.random() < 0.5:
        return Dialog([rng.choice(_COPY_ZH).format(text)], text, "用户让我复述。")
    return Dialog([rng.choice(_COPY_EN).format(text)], text, "The user wants an echo.")


# Task weights. Copying random tokens comes first: other skills look things up with its circuit.
EARLY_TASKS: dict[Task, float] = {
    fixed: 0.15, addition: 0.05, memory: 0.12, copy: 0.15, random_copy: 0.48, counting: 0.05
}  # fmt: skip
TASKS: dict[Task, float] = {
    fixed: 0.26, addition: 0.16, memory: 0.14, copy: 0.2, random_copy: 0.1, counting: 0.14
}  # fmt: skip


def draw(rng: random.Random, tasks: dict[Task, float]) -> Dialog:
    """A dialog of a task drawn by weight."""
    return rng.choices(list(tasks), list(tasks.values()))[0](rng)
