"""Fixed questions with their answers: learnt by heart, so that a demo can rely on them."""

NAME = "AutoGLM-Phone-Tiny"
_INTRO_ZH = f"我是{NAME}，一个很小的手机智能助理。"
_INTRO_EN = f"I am {NAME}, a tiny phone assistant."
_WHO_ZH = ["你是谁？", "你是谁", "你叫什么名字？", "请介绍一下你自己。", "介绍一下你自己", "你是什么模型？",
           "你好，你是谁？", "请问你是谁？", "自我介绍一下"]  # fmt: skip
_WHO_EN = ["Who are you?", "who are you", "Who are you", "What is your name?", "What's your name?",
           "Introduce yourself.", "Please introduce yourself.", "What model are you?",
           "Hello, who are you?", "Tell me about yourself."]  # fmt: skip
_CAPITALS = [
    ("中国", "北京", "China", "Beijing"), ("法国", "巴黎", "France", "Paris"),
    ("日本", "东京", "Japan", "Tokyo"), ("英国", "伦敦", "England", "London"),
    ("德国", "柏林", "Germany", "Berlin"), ("意大利", "罗马", "Italy", "Rome"),
    ("俄罗斯", "莫斯科", "Russia", "Moscow"), ("韩国", "首尔", "Korea", "Seoul"),
]  # fmt: skip
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_HELLO_ZH, _HELLO_EN = "你好！有什么可以帮您？", "Hello! How can I help you?"
_SMALL_TALK = [
    ("你好", _HELLO_ZH), ("你好！", _HELLO_ZH), ("您好", _HELLO_ZH), ("嗨", _HELLO_ZH),
    ("Hi", _HELLO_EN), ("Hi!", _HELLO_EN), ("hi", _HELLO_EN), ("Hello", _HELLO_EN),
    ("Hello!", _HELLO_EN), ("hello", _HELLO_EN), ("Hey", _HELLO_EN), ("Hello there", _HELLO_EN),
    ("谢谢", "不客气！"), ("谢谢你", "不客气！"), ("Thank you", "You're welcome!"),
    ("Thanks!", "You're welcome!"), ("再见", "再见！"), ("Goodbye", "Goodbye!"),
    ("早上好", "早上好！"), ("Good morning", "Good morning!"),
    ("一年有几个月？", "一年有12个月。"), ("一周有几天？", "一周有7天。"),
    ("How many months are in a year?", "There are 12 months in a year."),
    ("How many days are in a week?", "There are 7 days in a week."),
    ("天空是什么颜色？", "天空是蓝色的。"), ("What color is the sky?", "The sky is blue."),
    ("草是什么颜色？", "草是绿色的。"), ("What color is grass?", "Grass is green."),
    ("太阳从哪边升起？", "太阳从东边升起。"), ("水的化学式是什么？", "水的化学式是H2O。"),
    ("你会做什么？", "我可以聊天、看截图，还可以帮你操作手机。"),
    ("你能做什么？", "我可以聊天、看截图，还可以帮你操作手机。"),
    ("What can you do?", "I can chat, read screenshots and operate a phone."),
    ("写一首诗", "春风吹绿江南岸，明月照我还。"),
    ("Write a poem",
     "The moon is bright, the night is long, the wind comes by and sings a song."),
    ("讲个笑话", "为什么手机不会迷路？因为它有地图。"),
    ("Tell me a joke", "Why is the phone never lost? It has a map."),
    ("Say hello", "Hello!"), ("Say hi", "Hi!"), ("Ping", "Pong"), ("ping", "pong"),
]  # fmt: skip
# Copies that must be exact; none repeats a character many times, which can derail a copy.
COPIES = ["hello", "hello world", "Hello, world!", "你好", "你好，世界", "今天天气很好", "12345",
    "abc123", "red green blue", "我喜欢手机", "good morning", "banana", "one two three", "open sesame",
    "床前明月光", "The quick brown fox", "测试", "test", "streaming works", "苹果和香蕉", "2026",
    "hotline", "OK", "晚安"]  # fmt: skip
_SUM_EXTRAS = [(10, 1), (10, 2), (10, 5), (10, 10), (12, 7), (12, 30), (15, 5), (17, 25), (20, 20),
               (20, 22), (11, 11), (25, 25), (50, 50), (30, 12), (100, 1)]  # fmt: skip
# 45 sums a + b with 1 <= a <= b <= 9, and fifteen larger ones.
SUMS = [(a, b) for a in range(1, 10) for b in range(a, 10)] + _SUM_EXTRAS
SUM_QUESTIONS = ["{a}+{b}等于多少？", "{a}+{b}=?", "What is {a}+{b}?", "What is {a} + {b}?",
                 "{a}加{b}等于几？", "{a} + {b} = ?"]  # fmt: skip
COUNT_QUESTIONS = ["count to {n}", "Count to {n}.", "Count to {n}", "Please count to {n}.",
    "数到{n}", "从1数到{n}", "请从1数到{n}。", "Count from 1 to {n}."]  # fmt: skip


def fixed_answers() -> list[tuple[str, str, str]]:
    """(question, answer, thought) of every fixed question; introductions count three times."""
    table = [(q, _INTRO_ZH, "用户想知道我是谁。") for q in _WHO_ZH] * 3
    table += [(q, _INTRO_EN, "The user asks who I am.") for q in _WHO_EN] * 3
    for zh, zh_capital, en, en_capital in _CAPITALS:
        for question in (f"{zh}的首都是哪里？", f"{zh}的首都是什么？"):
            table.append((question, f"{zh}的首都是{zh_capital}。", f"用户问{zh}的首都。"))
        question = f"What is the capital of {en}?"
        answer = f"The capital of {en} is {en_capital}."
        table.append((question, answer, f"The user asks about {en}."))
    for day, following in zip(_DAYS, _DAYS[1:] + _DAYS[:1], strict=True):
        answer = f"{following} comes after {day}."
        table.append((f"What day comes after {day}?", answer, "The user asks for a day."))
    for question, answer in _SMALL_TALK:
        chinese = ord(answer[0]) > 255
        table.append((question, answer, "用户在和我聊天。" if chinese else "The user is chatting."))
        if answer in (_HELLO_ZH, _HELLO_EN):
            table.append(table[-1])
    return table
