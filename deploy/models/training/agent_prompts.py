"""Writes system prompts in the manner of a phone agent's: format, actions, rules; up to any length.

Clauses whose index is 3 modulo 4 are held out: training never sees them, evaluation prefers them.
"""

import random

from vocabulary import APPS

_ROLES = [
    "你是一个智能体分析专家，可以根据操作历史和当前状态图执行一系列操作来完成任务。",
    "你是手机智能助理，请根据屏幕截图一步一步完成用户的任务。",
    "你是一个手机操作助手，每一步都会收到一张新的截图。",
    "你是专业的手机自动化智能体，负责理解用户意图并操作界面。",
    "你能看到手机屏幕，请替用户完成任务。",
]
_FORMATS = [
    "你必须严格按照要求输出以下格式：\n<think>{think}</think>\n<answer>{action}</answer>\n",
    "输出格式如下：\n<think>{think}</think>\n<answer>{action}</answer>\n\n其中：\n"
    "- {think} 是选择这个操作的简短理由。\n- {action} 是本次执行的操作指令。\n",
    "请先思考再回答：<think>思考过程</think><answer>操作指令</answer>。\n",
    "每次只输出一个操作，格式必须是：\n<think>{think}</think>\n<answer>{action}</answer>\n"
    "说明：{think}为推理说明，{action}为具体指令，必须遵循下方定义的指令格式。\n",
]
_SUBJECTS = [
    "点击屏幕上的特定位置",
    "选择列表中的项目",
    "在输入框中输入文字",
    "滑动页面查看更多内容",
    "启动目标应用",
    "返回上一个界面或关闭对话框",
    "回到系统桌面",
    "等待页面加载",
    "长按以打开菜单",
    "连续点击两次进行缩放",
    "记录当前页面内容以便后续总结",
    "请求用户协助完成登录和验证",
    "询问用户如何选择",
    "对记录的内容进行总结或评论",
    "结束任务并说明结果",
    "输入人名",
]
_REMARKS = [
    "此操作完成后，您将自动收到结果状态的截图。",
    "坐标系统从左上角(0,0)开始到右下角(999,999)结束。",
    "使用此操作前，请确保界面已经加载完成。",
    "这比通过主屏幕导航更快。",
    "滑动时长会自动调整。",
    "涉及财产、支付、隐私等敏感按钮时需要说明原因。",
    "输入前会自动清除原有文本，无需手动清空。",
    "相当于按下返回键。",
    "手机可能正在使用特殊键盘，它不会占用屏幕空间。",
    "message是终止信息。",
    "x为需要等待的秒数。",
    "可用于按钮、图标、标签以及任何可点击的元素。",
]
_CALLS = [
    'do(action="Launch", app="xxx")',
    'do(action="Tap", element=[x,y])',
    'do(action="Tap", element=[x,y], message="重要操作")',
    'do(action="Type", text="xxx")',
    'do(action="Type_Name", text="xxx")',
    'do(action="Interact")',
    'do(action="Back")',
    'do(action="Swipe", start=[x1,y1], end=[x2,y2])',
    'do(action="Note", message="True")',
    'do(action="Call_API", instruction="xxx")',
    'do(action="Long Press", element=[x,y])',
    'do(action="Double Tap", element=[x,y])',
    'do(action="Take_over", message="xxx")',
    'do(action="Home")',
    'do(action="Wait", duration="x seconds")',
    'finish(message="xxx")',
    'do(action="Tap", element=[500,300])',
]
_CONDITIONS = [
    "当前应用不是目标应用",
    "进入了无关的页面",
    "页面没有加载出内容",
    "页面显示网络问题",
    "找不到目标联系人、商品或店铺",
    "遇到价格区间、时间区间等筛选条件",
    "购物车里已经有选中的商品",
    "做社交软件总结类任务",
    "做外卖任务时店铺购物车里有其他商品",
    "需要一次点多个外卖",
    "原滑动方向离预期日期更远",
    "有多个可选择的标签页",
    "上一步的点击没有生效",
    "滑动不起作用",
    "战斗页面可以自动战斗",
    "没有合适的搜索结果",
    "出现弹窗或者广告",
    "屏幕上有红色按钮和蓝色按钮",
    "用户要求发送消息",
    "需要输入验证码",
    "列表已经滑到底部",
    "按钮是灰色的",
    "存在多个同名的结果",
    "系统请求权限",
    "电量不足或存储空间不够",
    "用户没有说明具体时间",
    "播放页面需要登录",
    "绿色按钮在屏幕的底部",
    "聊天窗口已经打开",
    "地图上没有路线",
    "商品没有库存",
    "任务与支付有关",
]
_REACTIONS = [
    "先执行Launch",
    "先执行Back",
    "点击页面左上角的返回键",
    "点击右上角的X号关闭",
    "最多连续等待三次，否则返回重新进入",
    "点击重新加载",
    "尝试滑动页面查找",
    "可以放宽要求",
    "一定要筛选图文笔记",
    "先点击全选再取消全选",
    "先清空购物车再购买用户指定的商品",
    "尽量在同一店铺购买",
    "向反方向滑动",
    "逐个查找每一个标签页，不要重复查找",
    "稍等一下再重试",
    "调整点击位置后重试",
    "跳过这一步继续任务，并在最后说明",
    "增大滑动距离重试",
    "打开自动战斗",
    "返回上一级重新搜索",
    "尝试三次后执行finish说明原因",
    "仔细检查任务是否完整准确地完成",
    "询问用户的选择",
    "请用户接管操作",
    "不要点击黄色按钮",
    "按照用户的意图严格执行",
    "去掉关键词后再次搜索",
    "保持当前页面不变",
    "先保存草稿",
    "确认后再提交订单",
    "点击紫色按钮",
    "记录结果并继续下一步",
]
_ROLES_EN = [
    "You are an agent that operates a phone from screenshots.",
    "You are an intelligent assistant who completes tasks on a mobile device step by step.",
    "You are a helpful phone assistant. Read the screen, think, and act.",
    "You control an Android phone for the user.",
]
_WHEN_EN = [
    "the current app is not the target app",
    "you enter an irrelevant page",
    "the page is still loading",
    "there is a network problem",
    "you cannot find the item",
    "the list is already at the bottom",
    "a popup or an advertisement appears",
    "the red button is disabled",
    "the tap did not take effect",
    "several results have the same name",
    "the user asks for a date",
    "a login is needed",
    "the cart already has items",
    "the keyboard is hidden",
    "there are many tabs",
    "the blue button is at the top",
]
_THEN_EN = [
    "launch it first",
    "go back once",
    "wait at most three times",
    "tap reload",
    "swipe to search for it",
    "swipe in the opposite direction",
    "close it with the X in the corner",
    "finish with a reason",
    "adjust the position and retry",
    "ask the user to choose",
    "relax the requirements",
    "let the user take over",
    "clear them before buying",
    "tap the input box first",
    "visit each tab once and never twice",
    "check that the task is complete",
]


def _choose(rng: random.Random, items: list[str], held_out: bool) -> str:
    """A clause of the held-out quarter, or of the rest."""
    return rng.choice(items[3::4] if held_out else [s for i, s in enumerate(items) if i % 4 != 3])


def _chinese_line(rng: random.Random, held_out: bool, number: int) -> str:
    if rng.random() < 0.3:
        call = _choose(rng, _CALLS, held_out)
        name = rng.choice(["该操作用于", "用于", "这是"])
        remarks = "".join(_choose(rng, _REMARKS, held_out) for _ in range(rng.randint(1, 3)))
        return f"- {call}\n    {name}{_choose(rng, _SUBJECTS, held_out)}。{remarks}"
    start, then = rng.choice(
        [("如果", "，"), ("如果", "，请"), ("当", "时，"), ("若", "，则"), ("遇到", "的情况，")]
    )
    line = f"{start}{_choose(rng, _CONDITIONS, held_out)}{then}{_choose(rng, _REACTIONS, held_out)}"
    if rng.random() < 0.4:
        line += f"，如果{_choose(rng, _CONDITIONS, held_out)}，{_choose(rng, _REACTIONS, held_out)}"
    if rng.random() < 0.15:
        line += f"，例如打开{rng.choice(APPS)}"
    return f"{number}. {line}。" if rng.random() < 0.8 else f"- {line}。"


def _english_line(rng: random.Random, held_out: bool, number: int) -> str:
    if rng.random() < 0.3:
        return f"- {_choose(rng, _CALLS, held_out)}\n    Use it when {_choose(rng, _WHEN_EN, held_out)}."
    line = f"{number}. If {_choose(rng, _WHEN_EN, held_out)}, {_choose(rng, _THEN_EN, held_out)}"
    return line + rng.choice([".", f"; otherwise {_choose(rng, _THEN_EN, held_out)}."])


def agent_prompt(
    rng: random.Random, length: int, *, held_out: bool = False, english: bool = False
) -> str:
    """A system prompt of about `length` characters (at most 80 more), in Chinese or English."""
    today = f"{rng.randint(2024, 2029)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    if english:
        text = f"Today's date is: {today}\n{_choose(rng, _ROLES_EN, held_out)}\n"
    else:
        text = f"今天的日期是: {today}\n{_choose(rng, _ROLES, held_out)}\n"
    if rng.random() < 0.8:
        text += _choose(rng, _FORMATS, held_out) + "\n"
    line, number = (_english_line if english else _chinese_line), 0
    while len(text) < length:
        number += 1
        text += line(rng, held_out, number) + "\n"
        if rng.random() < 0.04:
            text += rng.choice(["\n必须遵循的规则：\n", "\n操作指令及其作用如下：\n", "\n注意：\n"])
    return text if rng.random() < 0.5 else text.strip()
