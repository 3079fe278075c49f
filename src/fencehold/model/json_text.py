"""A value as JSON that every database keeps unchanged, or one error that says what is wrong; checked before sending."""

from __future__ import annotations

import json
import re

from fencehold.model.errors import ConfigurationError
from fencehold.model.names import quoted

_TEXT = frozenset((str,))
_PLAIN = frozenset((str, int, float, bool, type(None)))  # most values: nothing is inside them

# NUL as JSON writes it. Behind an even number of backslashes; behind an odd number the six characters are a text's own.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def json_text(value: object, what: str, bytes_max: int, *, code: str = "payload", taker: str = "outbox") -> str:
    """`what` names the value in messages; the codes are bad_<code> and <code>_too_large."""
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
    """A key that is no text, on any level. The encoder would make one of it: what was under 7 comes back under "7"."""
    if type(value) is dict and _TEXT.issuperset(map(type, value)) and _PLAIN.issuperset(map(type, value.values())):
        return None  # most payloads: flat
    waiting = [value]  # no circle: it has been written as JSON
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
