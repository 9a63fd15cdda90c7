"""The meaning of Kafka's error codes; the only table of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kio.schema.errors import ErrorCode

from twinshore.config.errors import KafkaError

Code = ErrorCode
UNKNOWN_ERROR = Code.unknown_server_error.value  # as brokers call an error without a name


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """`retriable`: the request may succeed later, perhaps at another leader."""

    name: str
    retriable: bool
    sentence: str
    hint: str = ""


DETAIL_MAX = 240
_FIELDS = re.compile(r"(?<=\w)[(\[]\w+=")
_OBJECT = re.compile(r"(?<=\w)[(\[][^()\[\]]*[)\]]")
_IDENTITY = re.compile(r"@[0-9a-f]{4,8}\b")
_TWICE = re.compile(r"\b(\w+) \1\b")

# Where Twinshore judges otherwise than Kafka's own clients.
_RETRIABLE = {-1: True, 2: False, 60: True, 100: False, 103: False}


@cache
def _texts() -> dict[str, list[str]]:
    """By code: the sentence, and mostly no hint."""
    text = resources.files(__package__).joinpath("error_texts.json").read_text(encoding="utf-8")
    texts: dict[str, list[str]] = json.loads(text)
    return texts


@cache
def error_kind(code: int) -> ErrorKind:
    """Returns what `code` means; unknown codes get a generic kind."""
    try:
        known = Code(code)
    except ValueError:
        return ErrorKind(f"UNKNOWN_CODE_{code}", True, "an error that this version of Twinshore does not know")
    sentence, *hint = _texts().get(str(code), [known.name.replace("_", " ")])
    retriable = _RETRIABLE.get(code, known.retriable)
    return ErrorKind(known.name.upper(), retriable, sentence, *hint)


def shorten_broker_message(said: str) -> str:
    """Remove Java objects, as in "Request(processor=2, session=Session@45e1b9e2)", which tell an operator nothing and
    always differ.
    """
    if _FIELDS.search(said):
        while (shorter := _OBJECT.sub("", said)) != said:
            said = shorter
        said = _TWICE.sub(r"\1", _FIELDS.split(said)[0])
    said = _IDENTITY.sub("", said)
    return said if len(said) <= DETAIL_MAX else f"{said[:DETAIL_MAX]} ..."


def kafka_error(code: int, place: str, *, detail: str = "", right: str = "") -> KafkaError:
    """Returns the error for `code`. `place`: the sentence's subject, such as "east: orders-3". `right`: what to grant
    if the request was not authorized.
    """
    kind = error_kind(code)
    detail = shorten_broker_message(detail)
    told = f": {detail}" if detail and detail.lower().rstrip(".") != kind.sentence else ""
    message = f"{place}: {kind.sentence} ({kind.name}, code {code}){told}"
    hint = f"grant {right}" if right and kind.name.endswith("AUTHORIZATION_FAILED") else kind.hint
    return KafkaError(message, code=code, retriable=kind.retriable, hint=hint)
