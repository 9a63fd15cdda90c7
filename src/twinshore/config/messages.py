"""The texts of errors that an operator meets: `messages.json` has them by code. `{name}` is a value of the error.

A code is `package.what-is-wrong`, and its entry is the text, and mostly a hint. Codes are public: programs compare
them, so a code keeps its meaning.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from itertools import groupby
from typing import NamedTuple


class Message(NamedTuple):
    """What happened and where; and what to do."""

    text: str
    hint: str = ""


@cache
def messages() -> dict[str, Message]:
    """Each message by its code. The first error reads the file."""
    text = resources.files(__package__).joinpath("messages.json").read_text(encoding="utf-8")
    return {code: Message(*said) for code, said in json.loads(text).items()}


ERRORS_PAGE_HEAD = """\
# Errors

Written from the code by `make docs`. An error that an operator meets has a code, values and mostly a remedy. The
command prints `error: TEXT [CODE]` and `  try: REMEDY`; with `--json` it prints one JSON object on stderr, with
`error`, `hint`, `code` and `values`. Programs compare codes: a code keeps its meaning, and texts may change. Below,
`{name}` is a value. Errors of a cluster have Kafka's own codes instead. [Troubleshooting](troubleshooting.md) goes by
symptom.
"""


def render_errors_page() -> str:
    """docs/errors.md: each code with its text and remedy, by package."""
    lines = [ERRORS_PAGE_HEAD]
    for package, codes in groupby(sorted(messages()), key=lambda code: code.partition(".")[0]):
        lines += [f"## {package}", "", "```text"]
        for code in codes:
            text, hint = (re.sub(r"{(\w+)[^}]*}", r"{\1}", said) for said in messages()[code])
            lines += [code, *(f"    {line}" for line in text.split("\n")), *([f"    try: {hint}"] if hint else [])]
        lines += ["```", ""]
    return "\n".join(lines)
