"""Writes conversations about a screenshot: colour, place, description and phone actions."""

import json
import random
from collections.abc import Callable

from dialogs import Dialog, past
from screens import Button, Screen
from vocabulary import APPS, COLOURS, COORDINATES, IMAGE, X_TOKENS, Y_TOKENS, grid_index

ScreenTask = Callable[[random.Random, Screen, bool], Dialog]


def tap_action(button: Button) -> str:
    """The tap on a button's centre, on the coordinate grid."""
    x, y = COORDINATES[grid_index(button.x)], COORDINATES[grid_index(button.y)]
    return f'do(action="Tap", element=[{x},{y}])'


def _with_image(rng: random.Random, text: str) -> str:
    """Image and text in the orders that clients and servers produce."""
    order = rng.random()
    if order < 0.45:  # a list with the image first, as a phone agent sends it
        return IMAGE + text
    if order < 0.75:  # vLLM's content format `string`
        return f"{IMAGE}\n{text}"
    return text + IMAGE


def _screen_info(rng: random.Random) -> str:
    app = json.dumps({"current_app": rng.choice([*APPS, "System Home"])}, ensure_ascii=False)
    return app if rng.random() < 0.7 else "** Screen Info **\n\n" + app


def _named(rng: random.Random, screen: Screen, button: Button, chinese: bool) -> str:
    """The button's name; its colour may be left out if it is alone."""
    colour = button.colour if chinese else COLOURS[button.colour] + " "
    if len(screen.buttons) == 1 and rng.random() < 0.15:
        colour = ""
    return colour + ("按钮" if chinese else "button")


def colour(rng: random.Random, screen: Screen, chinese: bool) -> Dialog:
    """Say a button's colour."""
    button = rng.choice(screen.buttons)
    word = button.word(chinese)
    if len(screen.buttons) == 1:
        question = rng.choice(
            ["按钮是什么颜色？", "按钮是什么颜色的？", "这个按钮是什么颜色？"] if chinese else
            ["What color is the button?", "What colour is the button?", "What color is the button"]
        )  # fmt: skip
    elif len({other.place for other in screen.buttons}) > 1:
        english = f"What color is the button at the {word}?"
        question = f"{word}的按钮是什么颜色？" if chinese else english
    else:
        return describe(rng, screen, chinese)
    if chinese:
        return Dialog([question], f"按钮是{button.colour}的。", f"我看到{button.colour}的按钮。")
    name = COLOURS[button.colour]
    return Dialog([question], f"The button is {name}.", f"I see a {name} button.")


def place(rng: random.Random, screen: Screen, chinese: bool) -> Dialog:
    """Say where a button is."""
    button = rng.choice(screen.buttons)
    name, word = _named(rng, screen, button, chinese), button.word(chinese)
    if chinese:
        question = rng.choice(["{}在哪里？", "{}在屏幕的什么位置？"]).format(name)
        return Dialog([question], f"{name}在屏幕的{word}。", "我在截图里找到它。")
    return Dialog(
        [f"Where is the {name}?"], f"The {name} is at the {word}.", "I look at the screen."
    )


def describe(rng: random.Random, screen: Screen, chinese: bool) -> Dialog:
    """List the buttons from top to bottom."""
    buttons = sorted(screen.buttons, key=lambda button: button.y)
    if chinese:
        question = rng.choice(["屏幕上有什么？", "描述这张图片。", "描述一下这个屏幕"])
        names = "和".join(button.colour + "按钮" for button in buttons)
        return Dialog([question], f"屏幕上有{names}。", "我看一下截图。")
    question = rng.choice(["What is on the screen?", "Describe the image.", "What do you see?"])
    names = " and ".join(f"a {COLOURS[button.colour]} button" for button in buttons)
    return Dialog([question], f"I see {names}.", "I look at the screen.")


def tap(rng: random.Random, screen: Screen, chinese: bool) -> Dialog:
    """Tap a button."""
    button = rng.choice(screen.buttons)
    name, word = _named(rng, screen, button, chinese), button.word(chinese)
    if chinese:
        ask = rng.choice(["点击{}", "点击{}", "点击{}。", "请点击{}", "请点击{}。", "点一下{}"])
        thought = f"{name}在屏幕的{word}，我要点击它。"
    else:
        ask = rng.choice(["tap the {}", "Tap the {}.", "Tap the {}", "Please tap the {}.",
                          "click the {}", "Click the {}."])  # fmt: skip
        thought = f"The {name} is at the {word}, I will tap it."
    return Dialog([ask.format(name)], tap_action(button), thought)


def other_action(rng: random.Random, screen: Screen, chinese: bool) -> Dialog:
    """Launch an app or go back, home, wait: the screen does not matter."""
    if rng.random() < 0.5:
        app = rng.choice(APPS)
        thought = f"需要打开{app}。" if chinese else f"I need to open {app}."
        question = f"打开{app}" if chinese else rng.choice([f"open {app}", f"Open {app}."])
        return Dialog([question], f'do(action="Launch", app="{app}")', thought)
    questions, action, thought = rng.choice(
        [(["返回", "返回上一页"], 'do(action="Back")', "需要返回上一页。"),
         (["回到主页", "回到桌面"], 'do(action="Home")', "需要回到主页。"),
         (["等待", "等一下"], 'do(action="Wait", duration="3 seconds")', "需要等待页面。")]
        if chinese else
        [(["go back", "Go back."], 'do(action="Back")', "I need to go back."),
         (["go home", "Go home."], 'do(action="Home")', "I need to go home."),
         (["wait", "Wait."], 'do(action="Wait", duration="3 seconds")', "I need to wait.")]
    )  # fmt: skip
    return Dialog([rng.choice(questions)], action, thought)


def second_step(rng: random.Random, screen: Screen, chinese: bool) -> Dialog:
    """The step after an action: the earlier turn has lost its image, the task is done."""
    earlier = (tap if rng.random() < 0.7 else other_action)(rng, screen, chinese)
    action = earlier.answer
    if "element" in action:
        action = f'do(action="Tap", element={rng.choice(X_TOKENS)},{rng.choice(Y_TOKENS)})'
    asked = earlier.turns[0]
    if rng.random() < 0.5:
        asked += "\n\n" + _screen_info(rng)
    turns = [asked, past(rng, earlier.thought, action), _with_image(rng, _screen_info(rng))]
    if chinese:
        return Dialog(turns, 'finish(message="任务已完成")', "操作已经执行，任务完成。")
    return Dialog(turns, 'finish(message="Task completed")', "The action is done, so is the task.")


def screen_dialog(
    rng: random.Random, screen: Screen, tasks: dict[ScreenTask, float], *, shown: bool = False
) -> Dialog:
    """A dialog about the screen; if it is `shown` already, a question without an image."""
    while True:
        dialog = rng.choices(list(tasks), list(tasks.values()))[0](rng, screen, rng.random() < 0.6)
        if len(dialog.turns) == 1 or not shown:
            break
    if len(dialog.turns) > 1:
        return dialog
    question = dialog.turns[0]
    if dialog.answer.startswith("do(") and rng.random() < 0.35:
        question += "\n\n" + _screen_info(rng)
    turns = [question if shown else _with_image(rng, question)]
    if not shown and rng.random() < 0.1:  # a chat that goes on: the earlier turn lost its image
        before = other_action(rng, screen, rng.random() < 0.6)
        turns = [before.turns[0], past(rng, before.thought, before.answer), *turns]
    return Dialog(turns, dialog.answer, dialog.thought)


EARLY_SCREEN_TASKS: dict[ScreenTask, float] = {colour: 0.25, place: 0.15, tap: 0.6}
SCREEN_TASKS: dict[ScreenTask, float] = {
    colour: 0.13, place: 0.1, describe: 0.05, tap: 0.57, other_action: 0.08, second_step: 0.07
}  # fmt: skip
