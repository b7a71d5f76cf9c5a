"""Measures a checkpoint on what training never saw, with transformers and the real processor.

usage: evaluate.py CHECKPOINT [--taps 200] [--threads 1] [--only WORD] [--misses 3]
Greedy decoding, bf16. Screens come from another seed than training's and are drawn at real sizes;
the long system prompts consist of held-out clauses. Prints a Markdown table.
"""

import argparse
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from agent_prompts import agent_prompt
from dialogs import memory
from phrases import COPIES, SUM_QUESTIONS, SUMS, fixed_answers
from PIL import Image
from screens import Button, Screen, draw_screen, render
from transformers import AutoProcessor, Glm4vForConditionalGeneration
from vocabulary import COLOURS, EOS_TOKENS, IMAGE, NO_THINK_PREFIX
from words import WORDS

_SIZES = [(1080, 2400), (540, 1200), (270, 600), (720, 1600), (1080, 1920), (1170, 2532)]
_TOLERANCE = 60  # thousandths of the side
_THINKING = re.compile(r"<think>[^<]+</think>\n<answer>([^<]+)</answer>")
_TAP = re.compile(r'do\(action="Tap", element=\[(\d+),(\d+)\]\)')


@dataclass(frozen=True)
class Case:
    """One prompt; `right` judges the answer without its tags and end token."""

    group: str
    prompt: str
    right: Callable[[str], bool]
    screen: Screen | None = None
    size: tuple[int, int] = (0, 0)
    think: bool = True


def prompt(turns: list[str], system: str = "", *, think: bool = True) -> str:
    """The chat template's rendering, written out."""
    text = "[gMASK]<sop>" + (f"<|system|>\n{system}" if system else "")
    for index, turn in enumerate(turns):
        text += ("<|user|>\n" if index % 2 == 0 else "<|assistant|>\n") + turn
    return text + "<|assistant|>\n" + ("" if think else NO_THINK_PREFIX)


def taps_near(answer: str, button: Button) -> bool:
    """Whether the answer taps within _TOLERANCE of the button's centre on both axes."""
    found = _TAP.fullmatch(answer)
    centre = button.x * 1000, button.y * 1000
    if found is None:
        return False
    return all(abs(int(found[i + 1]) - centre[i]) <= _TOLERANCE for i in range(2))


def _equals(expected: str) -> Callable[[str], bool]:
    return lambda answer: answer == expected


def _taps(button: Button) -> Callable[[str], bool]:
    return lambda answer: taps_near(answer, button)


def _ask_tap(rng: random.Random, colour: str, chinese: bool) -> str:
    if chinese:
        return rng.choice(["点击{}按钮", "请点击{}按钮。"]).format(colour)
    return rng.choice(["tap the {} button", "Tap the {} button."]).format(COLOURS[colour])


def _with_image(rng: random.Random, text: str) -> str:
    order = rng.randrange(3)
    return [IMAGE + text, f"{IMAGE}\n{text}", text + IMAGE][order]


def screen_cases(rng: random.Random, count: int) -> Iterator[Case]:
    """Taps, colours, and second steps."""
    short = "你是一个手机操作助手。"
    systems: dict[str, Callable[[], str]] = {
        "no system prompt": lambda: "",
        "short system prompt": lambda: short,
        "system prompt of 3,400 characters": lambda: agent_prompt(rng, 3400, held_out=True),
    }
    for name, system in systems.items():
        for index in range(count):
            chinese = index % 2 == 0
            screen = draw_screen(rng, 1)
            ask = _with_image(rng, _ask_tap(rng, screen.buttons[0].colour, chinese))
            group = f"tap, one button, {name}, {'zh' if chinese else 'en'}"
            right = _taps(screen.buttons[0])
            size = _SIZES[index % len(_SIZES)]
            yield Case(group, prompt([ask], system()), right, screen, size)
    for index in range(count // 2):
        screen, size = draw_screen(rng, 1), _SIZES[index % len(_SIZES)]
        button = screen.buttons[0]
        ask = _with_image(rng, _ask_tap(rng, button.colour, index % 2 == 0))
        text = prompt([ask], think=False)
        yield Case("tap, one button, no thinking", text, _taps(button), screen, size, think=False)
        screen = draw_screen(rng, 2)
        button = rng.choice(screen.buttons)
        ask = _with_image(rng, _ask_tap(rng, button.colour, index % 2 == 0))
        yield Case("tap, two buttons", prompt([ask]), _taps(button), screen, size)
        screen = draw_screen(rng, 1)
        colour = screen.buttons[0].colour
        asked = [
            ("按钮是什么颜色？", f"按钮是{colour}的。"),
            ("What color is the button?", f"The button is {COLOURS[colour]}."),
        ]
        ask, expected = asked[index % 2]
        text = prompt([_with_image(rng, ask)])
        yield Case("colour, one button", text, _equals(expected), screen, size)
        word = screen.buttons[0].word(chinese=True)
        text = prompt([_with_image(rng, f"{colour}按钮在哪里？")])
        expected = f"{colour}按钮在屏幕的{word}。"
        yield Case("place, one button", text, _equals(expected), screen, size)
    for index in range(count // 4):
        screen, size = draw_screen(rng, 1), _SIZES[index % len(_SIZES)]
        colour = screen.buttons[0].colour
        thought = f"<think>{colour}按钮在屏幕的中间，我要点击它。</think>" + "\n" * (index % 2)
        act = f'<answer>do(action="Tap", element=[{rng.randrange(999)},{rng.randrange(999)}])</answer>'
        info = '** Screen Info **\n\n{"current_app": "微信"}'
        text = prompt(
            [f"点击{colour}按钮", thought + act, IMAGE + info],
            agent_prompt(rng, 3400, held_out=True),
        )
        right = _equals('finish(message="任务已完成")')
        yield Case("finish on the second step, 3,400 characters", text, right, screen, size)


_ACTIONS = {
    "打开微信": 'do(action="Launch", app="微信")',
    "打开淘宝": 'do(action="Launch", app="淘宝")',
    "open 微信": 'do(action="Launch", app="微信")',
    "返回": 'do(action="Back")',
    "go back": 'do(action="Back")',
    "回到主页": 'do(action="Home")',
    "等待": 'do(action="Wait", duration="3 seconds")',
}


def action_cases(rng: random.Random) -> Iterator[Case]:
    """Actions that do not depend on the screen, with and without one."""
    for ask, action in _ACTIONS.items():
        for index in range(6):
            screen, size = draw_screen(rng, 1), _SIZES[index]
            system = agent_prompt(rng, 3400, held_out=True) if index % 2 else ""
            text = prompt([_with_image(rng, ask)], system)
            yield Case("launch, back, home, wait", text, _equals(action), screen, size)
        yield Case("launch, back, home, wait, no image", prompt([ask]), _equals(action))


def text_cases(rng: random.Random) -> Iterator[Case]:
    """Fixed answers, sums, counting, copies and names."""
    for question, answer, _ in dict.fromkeys(fixed_answers()):
        for think in (True, False):
            text = prompt([question], think=think)
            name = "fixed questions" + ("" if think else ", no thinking")
            yield Case(name, text, _equals(answer), think=think)
        system = agent_prompt(rng, 3400, held_out=True)
        name = "fixed questions, 3,400 characters"
        yield Case(name, prompt([question], system), _equals(answer))
    for a, b in SUMS:
        question = rng.choice(SUM_QUESTIONS).format(a=a, b=b)
        yield Case("sums of the list", prompt([question]), _equals(f"{a}+{b}={a + b}"))
    for limit in (5, 10, 20, 30, 50):
        expected = ", ".join(map(str, range(1, limit + 1)))
        for form in ("count to {}", "Count to {}.", "数到{}", "从1数到{}"):
            text = prompt([form.format(limit)])
            yield Case(f"count to {limit}", text, _equals(expected))
    unlisted = [" ".join(rng.sample(WORDS, rng.randint(2, 5))) for _ in range(40)]
    for name, copies in (
        ("copies of the list", COPIES),
        ("copies, new combinations of words", unlisted),
    ):
        for text in copies:
            for form in ("repeat after me: {}", "请复述：{}"):
                yield Case(name, prompt([form.format(text)]), _equals(text))
    for _ in range(60):
        dialog = memory(rng, unseen=True)
        yield Case("unseen names", prompt(dialog.turns), _equals(dialog.answer))


class Model:
    """A checkpoint and its processor."""

    def __init__(self, path: Path) -> None:
        auto: Any = AutoProcessor
        self._processor = auto.from_pretrained(path)
        network: Any = Glm4vForConditionalGeneration
        self._model = network.from_pretrained(path, dtype=torch.bfloat16).eval()
        self._tokenizer = self._processor.tokenizer
        self._eos = set(self._tokenizer.convert_tokens_to_ids(EOS_TOKENS))

    def length(self, text: str) -> int:
        """Tokens of a prompt, its image counted as one."""
        return len(self._tokenizer(text)["input_ids"])

    def answer(self, cases: list[Case]) -> list[str]:
        """Greedy answers with special tokens, up to and including the end token."""
        images = [Image.fromarray(render(case.screen, *case.size)) for case in cases if case.screen]
        inputs: Any = self._processor(
            text=[case.prompt for case in cases],
            images=images or None,
            return_tensors="pt",
            padding=True,
        )
        with torch.no_grad():
            made = self._model.generate(**inputs, max_new_tokens=260, do_sample=False)
        answers = []
        for row in made[:, inputs["input_ids"].shape[1] :].tolist():
            stop = next((i for i, token in enumerate(row) if token in self._eos), len(row) - 1)
            answers.append(self._tokenizer.decode(row[: stop + 1]))
        return answers


def bare(case: Case, text: str) -> str | None:
    """The answer without tags and end token; None if the format is wrong."""
    if case.think:
        found = _THINKING.fullmatch(text)
        return found[1] if found else None
    return text.removesuffix("<|user|>") if text.endswith("<|user|>") else None


def main() -> None:
    """Run every case and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--taps", type=int, default=200, help="screens per system prompt")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="only groups whose name has this word")
    parser.add_argument("--misses", type=int, default=3, help="wrong answers to show per group")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rng = random.Random(777)
    cases = [*screen_cases(rng, args.taps), *text_cases(rng), *action_cases(rng)]
    cases = [case for case in cases if args.only in case.group]
    order = {group: index for index, group in enumerate(dict.fromkeys(c.group for c in cases))}
    model = Model(args.checkpoint)
    cases.sort(key=lambda case: (len(case.prompt) > 1500, len(case.prompt)))
    right: dict[str, list[bool]] = defaultdict(list)
    well_formed: list[bool] = []
    misses: dict[str, list[str]] = defaultdict(list)
    while cases:
        batch = cases[: 8 if len(cases[0].prompt) > 1500 else 40]
        cases = cases[len(batch) :]
        for case, text in zip(batch, model.answer(batch), strict=True):
            answer = bare(case, text)
            well_formed.append(answer is not None)
            right[case.group].append(answer is not None and case.right(answer))
            if not right[case.group][-1]:
                misses[case.group].append(f"{case.prompt[-70:]!r} -> {text[-130:]!r}")
    print("| behaviour | right |\n|---|---|")
    for group in sorted(right, key=order.__getitem__):
        print(f"| {group} | {sum(right[group])} of {len(right[group])} |")
    print(f"| well-formed answers, all of the above | {sum(well_formed)} of {len(well_formed)} |")
    for group in sorted(misses, key=order.__getitem__):
        for line in misses[group][: args.misses]:
            print(f"miss: {group}: {line}")


if __name__ == "__main__":
    main()
