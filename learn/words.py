# SPDX-License-Identifier: BSD-2-Clause
"""What the programs in here say, in English and in Chinese. LAB_LANG=zh, or a Chinese locale, selects Chinese.
What the samples and libibverbs print stays as it is."""
import os
import textwrap

# key: (English, Chinese)
WORDS = {
    # answers.py
    "answers head": (
        "Your answers, for make handin. Write behind the colons, as many lines as you like. Keep the lines\n"
        "that begin with ##: your answers are found by them. Lines with > repeat what is asked.",
        "你的答案，make handin 会一并提交。写在冒号后面，行数不限。请保留以 ## 开头的行：程序靠它们找到你的\n"
        "答案。以 > 开头的行重复题目。"),
    "field prediction": ("prediction:", "prediction 预测："),
    "field seen": ("seen:", "seen 看到的："),
    "field reason": ("reason:", "reason 原因："),
    "field answer": ("answer:", "answer 答："),
    "answers made": ("{path} is new: each question has a place for your answer there.",
                     "已生成 {path}：每个问题都有写答案的位置。"),
    "answers complete": ("every question has an answer", "所有问题都已回答"),
    # break.py
    "which step": ("make break STEP=07: which step of the handout's Break it?",
                   "make break STEP=07：要做讲义 Break it 中的哪一步？"),
    "no step": ("There are the steps 1 to {last}.", "步骤编号为 1 到 {last}。"),
    "not here": ("Step {step} is not in this release: its patch would show a solution. Make the change by hand,\n"
                 "in your own program, and write into answers.txt what you saw.",
                 "本发行版没有步骤 {step}：它的补丁会泄露答案。请在你自己的程序里手工修改，并把看到的写进 answers.txt。"),
    "starter": ("{sample} is a starter here, without the code that step {step} changes. Make the change by hand,\n"
                "in your own program, and write into answers.txt what you saw.",
                "这里的 {sample} 是待完成的框架，没有步骤 {step} 要改的代码。请在你自己的程序里手工修改，\n"
                "并把看到的写进 answers.txt。"),
    "changed": ("The change does not fit {file}: has that file been changed already? Undo it first\n"
                "(git checkout {file}).",
                "补丁与 {file} 不符：这个文件是否已被改过？请先还原（git checkout {file}）。"),
    "no git": ("git is missing: it applies the change.", "缺少 git：要用它来打补丁。"),
    "not built": ("The changed program could not be built.", "修改后的程序编译失败。"),
    "not run": ("The pair did not run (make doctor says what this machine lacks). Nothing was written.",
                "这一对程序没有运行起来（make doctor 会说明缺什么）。没有写入任何内容。"),
    "step": ("Step {number}, {name}: a copy of {sample} with this change",
             "步骤 {number}，{name}：{sample} 的一份副本，改动如下"),
    "arguments client": ("(The client runs with {arguments}.)", "（客户端的参数：{arguments}）"),
    "arguments server": ("(The server runs with {arguments}.)", "（服务器的参数：{arguments}）"),
    "choose": ("Your prediction (a number, or a line in your own words): ",
               "你的预测（输入编号，或用自己的话写一行）："),
    "no prediction": ("No prediction (a number from the list, or a line in your own words): nothing was run.",
                      "没有预测（列表中的编号，或自己的一句话）：什么也没有运行。"),
    "running": ("Running the pair …", "正在运行这一对程序……"),
    "packets": ("The packets (PSNs count from each side's first):", "线路上的数据包（PSN 从各方的第一个开始数）："),
    "more packets": ("… and {number} lines more: ", "……还有 {number} 行："),
    "came true": ("Your prediction came true.", "你的预测对了。"),
    "not true": ("Your prediction did not come true. What happened: {outcome}",
                 "你的预测没有成真。实际发生的是：{outcome}"),
    "own words": ("Compare your own words with what happened: {outcome}",
                  "请把你自己的话与实际发生的对比：{outcome}"),
    "other device": ("This device or kernel does something else than the handout names: see its table\n"
                     "\"The same mistake on other devices\".",
                     "这台设备或内核的表现与讲义所写的不同：见讲义中“同样的错误在其他设备上”一节的表格。"),
    "the reason": ("What the handout says: {outcome}", "讲义的说明：{outcome}"),
    "reason": ("Why? One line (Enter: you write it into answers.txt later): ",
               "为什么？写一行（直接回车：以后再写进 answers.txt）："),
    "written": ("{file} holds your answer to step {step}.", "步骤 {step} 的答案已写入 {file}。"),
    "replaced": ("{file} holds your answer to step {step}, instead of an earlier one.",
                 "步骤 {step} 的答案已写入 {file}，替换了以前的。"),
    # what can happen
    "outcome pass": ("Both sides pass: nothing is noticed.", "双方都通过（PASS）：什么也没察觉。"),
    "outcome data": ("No request fails, but a check of one's own finds something wrong in the end.",
                     "没有请求失败，但程序自己的检查最后发现有错。"),
    "outcome silent": ("No error: a side waits for a completion that does not come, until its time is over.",
                       "没有错误：有一方一直等待不会到来的完成，直到超时。"),
    "outcome modify": ("ibv_modify_qp fails.", "ibv_modify_qp 失败。"),
    "outcome post": ("ibv_post_send refuses the request: Invalid argument.",
                     "ibv_post_send 拒绝该请求：Invalid argument。"),
    "outcome full": ("ibv_post_send refuses a request: Cannot allocate memory.",
                     "ibv_post_send 拒绝某个请求：Cannot allocate memory。"),
    "outcome destroy": ("A call that gives something back fails (ibv_dereg_mr, ibv_destroy_…).",
                        "释放资源的调用失败（ibv_dereg_mr、ibv_destroy_……）。"),
    "outcome refused": ("The server refuses the client before there is a connection.",
                        "连接建立之前，服务器就拒绝了客户端。"),
    "outcome other": ("something that the handout does not name", "讲义没有提到的情况"),
    "outcome status": ("A completion says: {name} (status {number}).", "某个完成的状态是：{name} (status {number})。"),
}


def language():
    """en or zh"""
    names = (os.environ.get(name) for name in ("LAB_LANG", "LC_ALL", "LC_MESSAGES", "LANG"))
    return "zh" if next(filter(None, names), "").lower().startswith("zh") else "en"


def wrapped(text, lead=""):
    """A paragraph in lines, each with lead in front. Chinese has no blanks to break it at: a terminal does it."""
    if language() == "zh":
        return lead + text
    return textwrap.fill(text, 100, initial_indent=lead, subsequent_indent=lead, break_on_hyphens=False)


def say(key, **values):
    """The words of that key, with values in them."""
    return WORDS[key][language() == "zh"].format(**values)
