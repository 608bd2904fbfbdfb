"""Render docs/errors.md from the cases and from what the program said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from error_cases import Group

INTRO = {
    "en": """# Bad input

One rule for data: an unusable sample is skipped, counted, and named with its file and line; the run continues. It ends
with exit code 2 if no sample is usable, if more than `Global.max_unusable` (0.1: 10 %) of the samples of `Train` or of
`Eval` are unusable, or, with `--strict`, if one sample is. [Data](data.md#what-is-skipped) lists the reasons and how
to fix each.

Every other problem is reported before training starts, in one message that says how to fix it.

| exit code | means |
|---|---|
| 0 | done |
| 1 | done, and the result is bad |
| 2 | the job could not be done |
| 128 + n | signal n: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP. A training run has saved `latest` |
| 141 | the program that read the output has ended, such as `head`. A run that was training has saved `latest` |

An unexpected error is called `internal error`; `--debug` shows where it was raised.

Each message below was written by the program: `python tests/cli/write_error_pages.py` tries all inputs and writes
this page; a test checks that it is current. The word in brackets is the code: it stays when the wording changes.
""",
    "zh": """# 错误的输入

一条规则：用不了的数据行被剔除、计数，并连同文件名和行号报告出来，训练继续。出现以下情况时以退出码 2 结束：
没有一行可用；`Train` 或 `Eval` 中用不了的行超过 `Global.max_unusable`（默认 0.1，即十分之一）；
或者加了 `--strict` 而有任何一行用不了。原因和补救办法见[数据](data.md#哪些行会被剔除)。

其他做不了的事情都在训练开始前用一句话说明，并给出补救办法。

| 退出码 | 含义 |
|---|---|
| 0 | 完成 |
| 1 | 工具正常运行，结论是不合格 |
| 2 | 任务无法完成 |
| 128 + n | 信号 n：Ctrl-C 之后为 130，SIGTERM 之后为 143，SIGHUP 之后为 129。正在训练时会先保存 `latest` |
| 141 | 读取输出的程序（如 `head`）已结束。正在训练时会先保存 `latest` |

没有预料到的错误，句子里会这样说明；`--debug` 显示它在哪里发生。

下面的每条消息都由程序写出：`python tests/cli/write_error_pages.py` 逐一触发并写出本页，测试检查它是否最新。
方括号中的词是代码：措辞改变时它不变。
""",
}
HEAD = {"en": "| input | message | exit code |", "zh": "| 输入 | 消息 | 退出码 |"}


def render(groups: Sequence[Group], messages: Mapping[str, str], language: str) -> str:
    """Return the page in ``language``, ``"en"`` or ``"zh"``."""
    parts = [INTRO[language]]
    for group in groups:
        rows = [
            f"| {case.what[language]} | {_cell(messages[case.name])} | {case.code} |" for case in group.cases
        ]
        parts.append(
            "\n".join([f"## {group.title[language]}", "", HEAD[language], "|---|---|---|", *rows, ""])
        )
    return "\n".join(parts)


def _cell(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return "<br>".join(_code(line.replace("|", "\\|")) for line in lines)


def _code(line: str) -> str:
    """``line`` as code, also where it has backticks of its own."""
    return f"`` {line} ``" if "`" in line else f"`{line}`"
