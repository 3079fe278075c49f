"""Turns a value into JSON text that every database keeps unchanged. All problems raise one kind of error."""

from __future__ import annotations

import json
import re

from fencehold.model.errors import ConfigurationError
from fencehold.model.names import quoted

_TEXT = frozenset((str,))
_PLAIN = frozenset((str, int, float, bool, type(None)))  # most values; they hold no other values

# NUL as JSON writes it, after an even number of backslashes. After an odd number the six characters are ordinary text.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def json_text(value: object, what: str, bytes_max: int, *, code: str = "payload", taker: str = "outbox") -> str:
    """Return `value` as JSON text. Raises ConfigurationError (bad_<code>, <code>_too_large).

    For messages, `what` names the value and `taker` names what stores it.
    """
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"The {what} cannot be written as JSON: {error}; nothing was written.",
            hint="Use dicts, lists, texts, numbers, booleans and None; no NaN, no objects of your own.",
            code=f"bad_{code}",
        ) from None
    if type(value) not in _PLAIN and (stray := _stray_key(value)):
        raise _not_text(stray[0], what, code)
    if len(text) * 4 > bytes_max:  # four bytes are the most one character can take
        _check_size(text, what, bytes_max, code, taker)
    if "\\u0000" in text or not text.isprintable():
        _check_characters(text, what, code)
    return text


def _stray_key(value: object) -> tuple[object] | None:
    """Return a dict key, on any level of `value`, that is not a text; wrapped in a tuple. None: all keys are texts.

    The JSON encoder would turn such a key into a text: what was stored under 7 would come back under "7".
    """
    if type(value) is dict and _TEXT.issuperset(map(type, value)) and _PLAIN.issuperset(map(type, value.values())):
        return None  # most payloads: flat
    waiting = [value]  # not circular: the encoder has already written it as JSON
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            for key in one:
                if not isinstance(key, str):
                    return (key,)
            waiting += [inner for inner in one.values() if type(inner) not in _PLAIN]
        elif isinstance(one, (list, tuple)):
            waiting += [inner for inner in one if type(inner) not in _PLAIN]
    return None


def _not_text(key: object, what: str, code: str) -> ConfigurationError:
    return ConfigurationError(
        f"The {what} has a key that is no text: {quoted(key)}. JSON has no other keys: it would come back as a text. "
        "Nothing was written.",
        hint="Make a text of it yourself, str(key), or use a list of pairs.",
        code=f"bad_{code}",
    )


def _check_size(text: str, what: str, bytes_max: int, code: str, taker: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > bytes_max:
        raise ConfigurationError(
            f"The {what} has {size:,} bytes; this {taker} takes {bytes_max:,}. Nothing was written.",
            hint=f"Store the large part elsewhere and keep its address here, or raise {code}_bytes_max.",
            code=f"{code}_too_large",
        )


def _check_characters(text: str, what: str, code: str) -> None:
    if _NUL.search(text) or any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise ConfigurationError(
            f"The {what} holds a NUL character or half of a surrogate pair, which not every database can keep.",
            hint="Encode binary data, for example as base64.",
            code=f"bad_{code}",
        )
