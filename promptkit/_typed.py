"""Validated output as an object of the application's own class.

Guarantees: data is taken as it is, nothing is coerced: what the class's own schema (`json_schema_of`) would not
allow is a `ConfigError` with every place, before an object is built. ``cattrs`` (extra ``typed``) builds it, and is
imported on first use, here alone.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from promptkit._class_schemas import fields_of, json_schema_of, mismatches, type_test
from promptkit._fields import Json
from promptkit.errors import ConfigError

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")

_SHOWN = 5
_MAX_TEXT = 300


def structure(data: Json, cls: type[T], *, converter: Converter | None = None) -> T:
    """Return ``data`` as an object of ``cls``: an attrs class, a dataclass or a TypedDict.

    ``converter`` is a ``cattrs`` converter of your own, for types that JSON does not have (dates, decimals); it
    alone then decides what fits. Raises `ConfigError` where ``data`` does not fit the class (its schema and the
    class have drifted apart), where the class has a field without a JSON form, and when ``cattrs`` is missing.
    """
    build = (converter or _converter()).structure
    if converter is None:
        found = [f"{pointer or '(root)'}: {message}" for pointer, message in mismatches(data, json_schema_of(cls))]
        if found:
            raise _unfit(cls, found)
    try:
        return build(data, cls)
    except Exception as exc:  # validators and constructors of the class are somebody else's code
        raise _unfit(cls, list(_reasons(exc, ""))) from exc


@functools.cache
def _converter() -> Converter:
    try:
        from cattrs import Converter  # noqa: PLC0415  # an extra
    except ImportError as exc:
        raise ConfigError("structure() needs cattrs: pip install promptkit[typed]") from exc
    converter = Converter()

    def for_union(kind: Any) -> Callable[[Json, Any], Any]:
        """Return the hook that takes a union's first member that the value fits."""
        tests = [(member, type_test(member)) for member in typing.get_args(kind)]

        def hook(value: Json, _: Any) -> Any:
            member = next(member for member, is_fit in tests if is_fit(value))
            return None if value is None else converter.structure(value, member)

        return hook

    def for_typed_dict(kind: Any) -> Callable[[Json, Any], Any]:
        """Return the hook for a TypedDict; cattrs takes the keys of one whose annotations are text for required."""
        keys = fields_of(kind) or {}
        return lambda value, _: {name: converter.structure(item, keys[name].type) for name, item in value.items()}

    converter.register_structure_hook_factory(_is_union, for_union)
    converter.register_structure_hook_factory(typing.is_typeddict, for_typed_dict)
    return converter


def _is_union(kind: Any) -> bool:
    origin: Any = typing.get_origin(kind)
    return origin is typing.Union or origin is types.UnionType


def _unfit(cls: type, reasons: list[str]) -> ConfigError:
    more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
    return ConfigError(
        f"the data does not fit {cls.__qualname__}: {'; '.join(reasons[:_SHOWN])}{more} "
        "(promptkit check tells where a schema and its class differ)"
    )


def _reasons(error: BaseException, pointer: str) -> list[str]:
    """Return the innermost errors of a group, each with the pointer that cattrs' notes lead to."""
    if not isinstance(error, BaseExceptionGroup):
        text = f"{type(error).__name__}: {error}"
        return [f"{pointer or '(root)'}: {text[:_MAX_TEXT]}"]
    reasons: list[str] = []
    for inner in error.exceptions:
        step: Any = ""
        for note in getattr(inner, "__notes__", ()):
            step = getattr(note, "name", getattr(note, "index", step))
        reasons += _reasons(inner, f"{pointer}/{step}" if step != "" else pointer)
    return reasons
