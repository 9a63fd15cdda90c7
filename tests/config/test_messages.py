"""Each error of an operator has a code, and the catalogue has its text."""

from __future__ import annotations

import ast
import copy
import pickle
import string
from collections.abc import Iterator
from pathlib import Path

from twinshore.config.errors import KafkaError, RefusedError, messages

SRC = Path(__file__).resolve().parents[2] / "src" / "twinshore"
CODED = {"CodedError", "ConfigError", "RefusedError", "UnsupportedError", "StoreError", "StoreVersionError", "LabError"}


def calls() -> Iterator[tuple[Path, ast.Call]]:
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name | ast.Attribute):
                name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if name in CODED:
                    yield path, node


def code_of(call: ast.Call) -> str:
    first = call.args[0]
    return (
        first.value
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and " " not in first.value
        else ""
    )


def fields(text: str) -> set[str]:
    return {name.split(".")[0].split("[")[0] for _, name, _, _ in string.Formatter().parse(text) if name}


def test_each_error_gives_the_values_of_its_text() -> None:
    wrong = []
    for path, call in calls():
        code, given = code_of(call), {word.arg for word in call.keywords}
        if not code:
            continue
        known = messages().get(code)
        needed = fields(known.text) | fields(known.hint) if known else None
        if needed is None or (None not in given and given - {"hint"} != needed):
            wrong.append(f"{path.relative_to(SRC)}:{call.lineno} {code}: gives {given}, the text needs {needed}")
    assert not wrong, "\n".join(wrong)


def test_each_code_is_raised() -> None:
    strings = {
        node.value
        for path in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert not set(messages()) - strings


def test_no_sentence_is_raised_without_a_code() -> None:
    wrong = [
        f"{path.relative_to(SRC)}:{call.lineno}"
        for path, call in calls()
        if isinstance(call.args[0], ast.JoinedStr | ast.Constant) and not code_of(call)
    ]
    assert not wrong, wrong


def test_an_error_survives_pickling_and_copying() -> None:
    error = RefusedError("runtime.lease-taken", thing="link a", holder="b")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (str(again), again.code, again.values, again.args) == (str(error), error.code, error.values, error.args)


def test_an_error_of_a_cluster_keeps_its_code_when_pickled() -> None:
    error = pickle.loads(pickle.dumps(KafkaError("no leader", code=5, retriable=True)))
    assert (str(error), error.code, error.retriable) == ("no leader", 5, True)
