"""What a payload, its metadata and a document may be, for type checkers; `json_text` checks the same when it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    #: What a payload or document is read as: Any, unless a program says more (`Event[Order]`, `Item[Contract]`).
    J = TypeVar("J", default=Any)
else:
    from typing import TypeVar

    J = TypeVar("J")

T_co = TypeVar("T_co", covariant=True)


class JsonArray(Protocol[T_co]):
    """A list or a tuple of any such values, and neither a text nor bytes, which are sequences too."""

    def __iter__(self) -> Iterator[T_co]: ...

    def __contains__(self, value: object, /) -> bool: ...

    def __mul__(self, times: int, /) -> object: ...


class JsonRecord(Protocol):
    """A TypedDict. What its fields hold is not looked at: no type can say that."""

    __required_keys__: ClassVar[frozenset[str]]
    __optional_keys__: ClassVar[frozenset[str]]


class JsonMixed(Protocol):
    """A dict that mypy takes for `dict[str, object]`, as `{"id": 7, "name": "x"}` put into a variable first.

    What it holds is not looked at. A dict of dates alone is none: it does not take every object.
    """

    def __setitem__(self, key: str, value: object, /) -> None: ...

    def clear(self) -> None: ...


if TYPE_CHECKING:
    #: What can be given as a payload, as a value of metadata, or as a document. What comes back is Any: a union of all
    #: this would have to be narrowed before every `event.payload["id"]`.
    Json: TypeAlias = "Mapping[str, Json] | JsonArray[Json] | JsonRecord | JsonMixed | str | int | float | bool | None"
    #: Metadata.
    JsonMapping: TypeAlias = "Mapping[str, Json] | JsonMixed"
else:
    JsonMapping = Any
    Json = Any  # a type that names itself cannot be looked up from another module, as typing.get_type_hints does
