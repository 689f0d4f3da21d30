# SPDX-License-Identifier: BSD-2-Clause
"""What make break, answers, starter and show say: one table for each language. LAB_LANG=zh, or
LANG=zh_…, chooses; a sentence that a language has not is said in English. What machines read never changes."""
import errno
import os
import re
import sys
import textwrap
import unicodedata

ENGLISH = {
    "answers head": "Your answers, for make handin. Write behind the colons, as many lines as you like. Keep the lines\n"
    "that begin with ##: your answers are found by them. Lines with > repeat what is asked.",
    "starter made": "{path} is yours to complete:",
    "starter todo": "  line {line}, TODO {number}: {what}",
    "no sample": "starter: LAB='{lab}' is no sample's number (01 to 15)",
    "not beside": "starter: DIR is a new directory beside the samples, such as my{lab}",
    "exists": "starter: {directory} exists already, and is not changed",
    "was the sample": "starter: the starter of lab {lab} was its sample itself, and you have written in there; "
    "another one is in the archive that you were given",
    "todo comment": "TODO {number}: {what}.",
    "todo right": " Right: {right}.",
    "todo see": " See {see}.",
    "todo stub": "{name} is not written yet (TODO {number}): ",
    "no room": "{path} cannot be written ({reason}). Work in a copy of the project that is yours, or make room.",
    "field prediction": "prediction:",
    "field seen": "seen:",
    "field reason": "reason:",
    "field answer": "answer:",
    "answers made": "{path} is new: each question has a place for your answer there.",
    "no marks": "answers: the marks of make answers are missing, so it is not known which are unanswered",
    "unanswered": "answers: {number} of {most} given; missing: {which}",
    "answers complete": "answers: all {most} given",
    "which step": "make break STEP=07: which step of the handout's Break it?",
    "no step": "There are the steps 1 to {last}.",
    "not here": "Step {step} is not in this release: its patch would show a solution. Make the change by hand,\n"
    "in your own program, and write into answers.txt what you saw.",
    "starter": "{sample} is a starter here, without the code that step {step} changes. Make the change by hand,\n"
    "in your own program, and write into answers.txt what you saw.",
    "break changed": "The change does not fit {file}: has that file been changed already? Undo it first\n"
    "(git checkout {file}).",
    "no git": "git is missing: it applies the change.",
    "break not built": "The changed program could not be built.",
    "not run": "The pair did not run (make doctor says what this machine lacks). Nothing was written.",
    "step": "Step {number}, {name}: a copy of {sample} with this change",
    "line": "  line {number}:",
    "read-only": "{file} cannot be written here. Inside make shell's VM? Run make break outside: it starts a VM itself.",
    "arguments client": "(The client runs with {arguments}.)",
    "arguments server": "(The server runs with {arguments}.)",
    "choose": "Your prediction (a number, or a line in your own words): ",
    "no such choice": "The numbers are 1 to {last}.",
    "no prediction": "No prediction (a number from the list, or a line in your own words): nothing was run.",
    "running": "Running the pair …",
    "packets": "The packets (PSNs count from each side's first):",
    "more packets": "… and {number} lines more: ",
    "came true": "Your prediction came true.",
    "not true": "Your prediction did not come true. What happened: {outcome}",
    "own words": "Compare your own words with what happened: {outcome}",
    "other device": "This device or kernel does something else than the handout names: see its table\n"
    '"The same mistake on other devices".',
    "the reason": "What the handout says: {outcome}",
    "role client": "client",
    "role server": "server",
    "look status": "Look at what the {role} printed. What is the status (its number) of the completion? ",
    "look errno": "Look at what the {role} printed. What is the number in brackets behind the error? ",
    "look byte": "Look at what the {role} printed. Which byte (its number) is the first that is wrong? ",
    "look what": "Look at what the {role} printed. It waited for the completion of what? ",
    "look number": "Look at what the {role} printed. Which number did it get? ",
    "look message": "Look at what the {role} printed. Which message (its number) was to come? ",
    "look digest": "Look at the RESULT line of the {role}. What are the first four characters of the digest? ",
    "not seen": "That is not what was printed.",
    "reason": "Why? One line, before you read what the handout says (Enter: later, in answers.txt): ",
    "lacks": "It still lacks: {fields}. Write that into the file.",
    "written": "{file} holds your answer to step {step}.",
    "replaced": "{file} holds your answer to step {step}, instead of an earlier one.",
    "show running": "Running the pair …",
    "show what": "show.py: LAB={lab} is no sample's number, or DIR={directory} has no Makefile",
    "show failed": "show.py: the pair did not run",
    "show made": "The run, step by step: {page} (open it in a browser). What it printed: {printed}",
    "outcome pass": "Both sides pass: nothing is noticed.",
    "outcome data": "No request fails, but a check in a program finds something wrong in the end.",
    "outcome silent": "No error: a side waits for a completion that does not come, until its time is over.",
    "outcome modify": "ibv_modify_qp fails.",
    "outcome post": "ibv_post_send refuses the request: Invalid argument.",
    "outcome full": "ibv_post_send refuses a request: Cannot allocate memory.",
    "outcome overrun": "A completion queue is full, and completions are lost (CQ error).",
    "outcome twice": "A message comes a second time, and the receiver notices it.",
    "outcome lost": "Messages are missing, and the receiver notices it.",
    "outcome destroy": "A call that gives something back fails (ibv_dereg_mr, ibv_destroy_…).",
    "outcome refused": "The server refuses the client before there is a connection.",
    "outcome other": "something that the handout does not name",
    "outcome status": "A completion says: {name} (status {number}).",
}
CHINESE = {
    "answers head": "你的答案，make handin 会一并上交。写在冒号后面，行数不限。请保留以 ## 开头的行：程序靠它们找到你的\n答案。以 > 开头的行重复题目。",
    "starter made": "{path} 由你来完成：",
    "starter todo": "  第 {line} 行，TODO {number}：{what}",
    "no sample": "starter：LAB='{lab}' 不是实验的编号（01 到 15）",
    "not beside": "starter：DIR 必须是与示例并列的新目录，例如 my{lab}",
    "exists": "starter：{directory} 已经存在，没有改动它",
    "was the sample": "starter：实验 {lab} 的程序框架就是示例文件本身，你已经在里面写了代码；发给你的压缩包里还有一份",
    "todo comment": "TODO {number}：{what}。",
    "todo right": "写对时：{right}。",
    "todo see": "参见 {see}。",
    "todo stub": "{name}尚未编写 (TODO {number})：",
    "no room": "无法写入 {path}（{reason}）。请在自己有写权限的项目副本中操作，或腾出磁盘空间。",
    "field prediction": "prediction 预测：",
    "field seen": "seen 看到的：",
    "field reason": "reason 原因：",
    "field answer": "answer 答：",
    "answers made": "已生成 {path}：每个问题都有写答案的位置。",
    "no marks": "答案：没有 make answers 写的标记，所以不知道还缺哪些",
    "unanswered": "答案：应有 {most} 个，已写 {number} 个；还缺（## 后面的名字）：{which}",
    "answers complete": "答案：{most} 个全部已写",
    "which step": "make break STEP=07：要做讲义“破坏实验”中的哪一步？",
    "no step": "步骤的编号是 1 到 {last}。",
    "not here": "这个版本里没有第 {step} 步：它的补丁会泄露答案。请在你自己的程序里手工修改，并把看到的写进 answers.txt。",
    "starter": "这里的 {sample} 是程序框架，没有第 {step} 步要改的代码。请在你自己的程序里手工修改，\n并把看到的写进 answers.txt。",
    "break changed": "补丁与 {file} 不符：这个文件是否已被改过？请先还原（git checkout {file}）。",
    "no git": "缺少 git：要用它来打补丁。",
    "break not built": "修改后的程序编译失败。",
    "not run": "这一对程序没有运行起来（make doctor 会说明缺什么）。没有写入任何内容。",
    "step": "第 {number} 步，{name}：{sample} 的一份副本，改动如下",
    "line": "  第 {number} 行：",
    "read-only": "这里无法写入 {file}。是在 make shell 的虚拟机里吗？请在外面运行 make break，它会自己启动虚拟机。",
    "arguments client": "（客户端的参数：{arguments}）",
    "arguments server": "（服务端的参数：{arguments}）",
    "choose": "你的预测（输入编号，或用自己的话写一行）：",
    "no such choice": "编号是 1 到 {last}。",
    "no prediction": "没有预测（列表中的编号，或自己的一句话）：什么也没有运行。",
    "running": "正在运行这一对程序……",
    "packets": "线路上的包（PSN 从每一端的第一个包开始数）：",
    "more packets": "……还有 {number} 行：",
    "came true": "你的预测对了。",
    "not true": "你的预测不对。实际发生的是：{outcome}",
    "own words": "请把你自己的话与实际发生的对比：{outcome}",
    "other device": "这台设备或内核的表现与讲义所写的不同：见讲义中“同一个错误在其他设备上”一节的表格。",
    "the reason": "讲义的说明：{outcome}",
    "role client": "客户端",
    "role server": "服务端",
    "look status": "请看{role}的输出。CQE 的状态编号是多少？",
    "look errno": "请看{role}的输出。错误信息后面括号里的数是多少？",
    "look byte": "请看{role}的输出。第一个出错的字节的编号是多少？",
    "look what": "请看{role}的输出。它在等待什么操作的 CQE（输出里的英文）？",
    "look number": "请看{role}的输出。它收到的数是多少？",
    "look message": "请看{role}的输出。本该到达的是哪一条消息（编号）？",
    "look digest": "请看{role}的 RESULT 行。digest 开头的四个字符是什么？",
    "not seen": "输出里不是这样。",
    "reason": "为什么？在看讲义的说明之前写一行（直接回车：以后再写进 answers.txt）：",
    "lacks": "其中还缺：{fields}。请写进这个文件。",
    "written": "第 {step} 步的答案已写入 {file}。",
    "replaced": "第 {step} 步的答案已写入 {file}，替换了以前的。",
    "show running": "正在运行这一对程序……",
    "show what": "show.py：LAB={lab} 不是实验的编号，或者 DIR={directory} 里没有 Makefile",
    "show failed": "show.py：这一对程序没有运行起来",
    "show made": "可以一步一步查看的运行：{page}（用浏览器打开）。程序的输出：{printed}",
    "outcome pass": "两端都通过（PASS）：什么也没察觉。",
    "outcome data": "没有请求失败，但程序自己的检查最后发现有错。",
    "outcome silent": "没有错误：有一端一直等待不会到来的 CQE，直到超时。",
    "outcome modify": "ibv_modify_qp 失败。",
    "outcome post": "ibv_post_send 拒绝该请求：Invalid argument。",
    "outcome full": "ibv_post_send 拒绝某个请求：Cannot allocate memory。",
    "outcome overrun": "完成队列满了，CQE 丢失（CQ error）。",
    "outcome twice": "某条消息第二次到达，接收方察觉了。",
    "outcome lost": "少了消息，接收方察觉了。",
    "outcome destroy": "释放资源的调用失败（ibv_dereg_mr、ibv_destroy_……）。",
    "outcome refused": "连接建立之前，服务端就拒绝了客户端。",
    "outcome other": "讲义没有提到的情况",
    "outcome status": "某个 CQE 的状态是：{name} (status {number})。",
}
TABLES = {"en": ENGLISH, "zh": CHINESE}


def language():
    """en or zh"""
    names = (os.environ.get(name) for name in ("LAB_LANG", "LC_ALL", "LC_MESSAGES", "LANG"))
    return "zh" if next(filter(None, names), "").lower().startswith("zh") else "en"


def wrapped(text, lead=""):
    """A paragraph in lines, each with lead in front. Chinese has no blanks to break it at: a terminal does it."""
    if language() == "zh":
        return lead + text
    return textwrap.fill(
        text, 100, initial_indent=lead, subsequent_indent=lead, break_on_hyphens=False
    )


def columns(text):
    """A Chinese character takes two columns of a terminal."""
    return len(text) + sum(unicodedata.east_asian_width(each) in "WF" for each in text)


def padded(text, width):
    return text + " " * (width - columns(text))


def folded(text, width):
    """In lines of so many columns, which put together are the text. It is broken at blanks, and between Chinese
    characters; no line begins with a full stop or ends with an opening bracket."""
    lines = [""]
    for piece in re.findall("[（“]*(?:[!-~]+|[^!-~（“ ])[，。；：、）”]* *", text):
        if columns((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return lines


def writing(main, *arguments):
    """Calls main. What cannot be written is told in a sentence."""
    try:
        return main(*arguments)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
            raise
        return sys.exit(say("no room", path=error.filename or os.getcwd(), reason=error.strerror))


def say(key, **values):
    """The sentence of that key, with values in it."""
    return (TABLES[language()].get(key) or ENGLISH[key]).format(**values)
