"""The types of a payload, its metadata and a document, for type checkers. `json_text` checks the values at run time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    #: The type of a payload or document as it is read: Any, unless a program gives one (`Event[Order]`, `Item[Deal]`).
    J = TypeVar("J", default=Any)
else:
    from typing import TypeVar

    J = TypeVar("J")

T_co = TypeVar("T_co", covariant=True)


class JsonArray(Protocol[T_co]):
    """A list or a tuple of JSON values. A text or bytes do not match, although they are sequences too."""

    def __iter__(self) -> Iterator[T_co]: ...

    def __contains__(self, value: object, /) -> bool: ...

    def __mul__(self, times: int, /) -> object: ...


class JsonRecord(Protocol):
    """A TypedDict. The types of its fields are not checked: no type can express JSON values only."""

    __required_keys__: ClassVar[frozenset[str]]
    __optional_keys__: ClassVar[frozenset[str]]


class JsonMixed(Protocol):
    """A dict that mypy infers as `dict[str, object]`, such as `{"id": 7, "name": "x"}` assigned to a variable first.

    The types of its values are not checked. A dict whose values are all dates does not match.
    """

    def __setitem__(self, key: str, value: object, /) -> None: ...

    def clear(self) -> None: ...


if TYPE_CHECKING:
    #: What can be given as a payload, as a value of metadata, or as a document. What is read back is Any: programs
    #: would have to narrow a union of all these types before every `event.payload["id"]`.
    Json: TypeAlias = "Mapping[str, Json] | JsonArray[Json] | JsonRecord | JsonMixed | str | int | float | bool | None"
    #: Metadata.
    JsonMapping: TypeAlias = "Mapping[str, Json] | JsonMixed"
else:
    JsonMapping = Any
    Json = Any  # typing.get_type_hints cannot resolve a recursive type from another module
