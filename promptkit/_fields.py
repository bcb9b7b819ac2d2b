"""Converters and validators shared by the records, and the two immutable containers they are made of.

Guarantees: a converter copies what it is given, so that a record never changes with its maker's objects;
a validator names the field, what was given by its type, and what would be right; bool is never a number.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, TypeVar

from promptkit.errors import ConfigError

Json = Any
"""A JSON value: None, bool, int, float, str, and lists and string-keyed mappings of these."""

CLASS_KEY: Final = "x-python-class"
"""The keyword by which a schema names its class, as ``module:Class``; an annotation, it judges nothing."""

_KeyT = TypeVar("_KeyT")
_ValueT = TypeVar("_ValueT")


def _refuse(self: object, *_args: object, **_kwargs: object) -> NoReturn:
    raise TypeError(f"a {type(self).__name__} cannot be changed; copy it with dict(...) or list(...)")


class FrozenDict(dict[_KeyT, _ValueT]):
    """A dict that cannot be changed; equal to a dict with the same items, picklable, JSON-serialisable."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def __copy__(self) -> FrozenDict[_KeyT, _ValueT]:
        return self

    def __deepcopy__(self, memo: object) -> FrozenDict[_KeyT, _ValueT]:
        return self


class FrozenList(list[_ValueT]):
    """A list that cannot be changed; equal to a list with the same items, picklable, JSON-serialisable."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self),)

    def __copy__(self) -> FrozenList[_ValueT]:
        return self

    def __deepcopy__(self, memo: object) -> FrozenList[_ValueT]:
        return self


def freeze(value: Json) -> Json:
    """Return ``value`` with every mapping, list and tuple in it replaced by an immutable copy.

    Anything else is returned as it is; what may stand in a JSON value is checked elsewhere.
    """
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool or value is None:
        return value
    if kind is FrozenDict or kind is FrozenList:
        return value
    if isinstance(value, Mapping):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return FrozenList([freeze(item) for item in value])
    return value


def thaw(value: Json) -> Json:
    """Return ``value`` with every mapping and list in it replaced by a plain, changeable copy."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


class Secret:
    """A credential, or a function that gives it; it does not show itself in repr, str, format or a pickle."""

    __slots__ = ("_source",)

    def __init__(self, source: str | Callable[[], str] | None) -> None:
        self._source = source

    def reveal(self) -> str:
        """Return the credential; calls the function, where one was given, each time.

        Raises `ConfigError` for one that came out of a pickle (it holds nothing), and where the function
        gives something else than a string. What the function raises is passed on.
        """
        if self._source is None:
            raise ConfigError("this credential went through a pickle, which does not carry it")
        value = self._source if isinstance(self._source, str) else self._source()
        if not isinstance(value, str):
            raise ConfigError(f"the api_key function must return a string, not {describe(value)}")
        return value

    def resolved(self) -> Secret:
        """Return a secret that holds the credential itself: this one, or what its function gives now."""
        return self if isinstance(self._source, str) else Secret(self.reveal())

    def known(self) -> str | None:
        """Return the credential if it is held here, without calling a function for it; None otherwise."""
        return self._source if isinstance(self._source, str) else None

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (None,)


# ---------------------------------------------------------------------------------------------- validators

MAX_NUMBER: Final = sys.maxsize
MAX_BITS: Final = 1024
"""The size of an integer in a JSON value; larger ones have no double beside them and, at some size, no text."""

MAX_DEPTH: Final = 64
"""How deep lists and mappings may be nested in a JSON value that code gives."""


def describe(value: object) -> str:
    """Say what kind of thing ``value`` is without showing it: ``"null"``, ``"a string"``, ``"a list"`` and so on."""
    if value is None:
        return "null"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "an infinite number"
    for kind, name in (
        (bool, "a boolean"),
        (int, "an integer"),
        (float, "a number"),
        (str, "a string"),
        (bytes, "bytes"),
        (Mapping, "a mapping"),
        ((list, tuple), "a list"),
    ):
        if isinstance(value, kind):
            return name
    name = type(value).__name__
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known name nearest to ``name``, or ``""`` when none is near.

    Names that differ in case alone are nearest of all.
    """
    folded = {option.casefold(): option for option in known}
    found = closest(name.casefold(), folded)
    return f"; did you mean {folded[found]!r}?" if found is not None else ""


def closest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the one of ``known`` that is most like ``word``, or None when none is as like as ``cutoff`` (0 to 1)."""
    from difflib import get_close_matches  # noqa: PLC0415 – for messages about mistakes alone

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def is_number(value: object) -> bool:
    """True for a finite int or float; False for bool, NaN, infinities and everything else."""
    return is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def is_seconds(value: object) -> bool:
    """True for a number that a clock can add to its time: one that is a float, or fits one."""
    return is_number(value) and abs(value) <= sys.float_info.max  # type: ignore[arg-type]  # it is a number


def is_integer(value: object) -> bool:
    """True for an int that is not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


Validator = Callable[[Any, Any, Any], None]


def optional_number(
    *, minimum: float | None = None, maximum: float | None = None, above: float | None = None, integer: bool = False
) -> Validator:
    """Return an attrs validator for a field that is None or a number in the given range (bounds included)."""
    kind = "an integer" if integer else "a number"
    parts = [f"above {above}"] if above is not None else []
    parts += [f"at least {minimum}"] if minimum is not None else []
    parts += [f"at most {maximum}"] if maximum is not None else []
    wanted = " ".join([kind, " and ".join(parts)]).strip()

    def validate(instance: object, attribute: Any, value: object) -> None:
        if value is None:
            return
        name = f"{type(instance).__name__}.{attribute.name}"
        if isinstance(value, int) and value.bit_length() > MAX_BITS:  # whose repr may fail, too
            raise ConfigError(f"{name} must be {wanted} or None, not an integer of {value.bit_length()} bits")
        if not (is_integer(value) if integer else is_number(value)):
            raise ConfigError(f"{name} must be {wanted} or None, not {describe(value)}")
        if (
            (above is not None and not value > above)  # type: ignore[operator]  # is_number says that it is one
            or (minimum is not None and value < minimum)  # type: ignore[operator]  # likewise
            or (maximum is not None and value > maximum)  # type: ignore[operator]  # likewise
        ):
            raise ConfigError(f"{name} must be {wanted} or None, not {value!r}")

    return validate


def optional_text(*, allow_empty: bool = False) -> Validator:
    """Return an attrs validator for a field that is None or a string, by default one that is not blank."""

    def validate(instance: object, attribute: Any, value: object) -> None:
        if value is None:
            return
        name = f"{type(instance).__name__}.{attribute.name}"
        if not isinstance(value, str):
            raise ConfigError(f"{name} must be a string or None, not {describe(value)}")
        if not allow_empty and not value.strip():
            raise ConfigError(f"{name} must not be blank; leave it out instead")
        if not is_unicode(value):
            raise ConfigError(f"{name} has half of a surrogate pair in it, which no encoding of Unicode takes")

    return validate


def is_unicode(text: str) -> bool:
    """True for text that UTF-8 can encode: without a lone half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def freeze_json(value: object, what: str, depth: int = MAX_DEPTH) -> Json:
    """Return an immutable copy of a JSON value; ``what`` names it in errors.

    Raises `ConfigError`, naming the place, for what JSON has no form for: other types, keys that are no
    strings, NaN and infinities, half of a surrogate pair, and for what is nested deeper than ``depth``
    levels or contains itself.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if not is_unicode(value):
            raise ConfigError(f"{what} has half of a surrogate pair in it, which no encoding of Unicode takes")
        return value
    if isinstance(value, (int, float)):
        if not is_number(value):
            raise ConfigError(f"{what} must be a finite number, not {value!r}")
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise ConfigError(f"{what} must be an integer of at most {MAX_BITS} bits, not of {value.bit_length()}")
        return value
    if not isinstance(value, (Mapping, list, tuple)):
        raise ConfigError(f"{what} must be a JSON value, not {describe(value)}")
    if depth == 0:
        raise ConfigError(f"{what} is nested deeper than {MAX_DEPTH} levels, or contains itself")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or not is_unicode(key):
                raise ConfigError(f"{what} must have strings for keys, not {describe(key)}")
        return FrozenDict({key: freeze_json(item, f"{what}.{key}", depth - 1) for key, item in value.items()})
    return FrozenList([freeze_json(item, f"{what}[{index}]", depth - 1) for index, item in enumerate(value)])


_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"|[!-~]|[!-~][ -~]*[!-~]")


_SECRET_NAME: Final = re.compile(
    r"(?:.*[-_.])?(?:(?:api|access|auth)?(?:key|token)|secret|sig|signature|password|passwd|credential|code)",
    re.IGNORECASE | re.DOTALL,
)


def names_a_secret(name: str) -> bool:
    """True for a name that a key or a password is given under: ``x-api-key``, ``access_token``, ``sig``."""
    return _SECRET_NAME.fullmatch(name) is not None


def without_query_values(endpoint: str) -> str:
    """Return an address with ``***`` for the values of its query, since some servers take a key there."""
    address, mark, query = endpoint.partition("?")
    names = [part.partition("=") for part in query.split("&")]
    return address + mark + "&".join(f"{name}=***" if equals else name and "***" for name, equals, _ in names)


def shown_endpoint(endpoint: str | None) -> str:
    """Return the repr of an address, without the values of its query."""
    return repr(endpoint if endpoint is None else without_query_values(endpoint))


_SECRET_HEADER: Final = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


def is_secret_header(name: str) -> bool:
    """True for a header that may hold a credential, going by its name; rather too often than not."""
    return _SECRET_HEADER.search(name) is not None


class Headers(FrozenDict[str, str]):
    """HTTP headers. Like a `Secret`, those that may hold a credential are shown by no repr and in no pickle."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr({name: "***" if is_secret_header(name) else text for name, text in self.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        return Headers, ({name: text for name, text in self.items() if not is_secret_header(name)},)


def freeze_headers(value: object, what: str) -> FrozenDict[str, str]:
    """Return an immutable copy of HTTP headers; ``what`` names them in errors, which never show a value.

    A name is a token and a value is one line of printable ASCII without outer blanks (RFC 9110, sections
    5.1 and 5.5, without its obsolete bytes). Raises `ConfigError`.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} must be a mapping of names to strings, not {describe(value)}")
    for name, text in value.items():
        if not isinstance(name, str):
            raise ConfigError(f"{what} must have strings for names, not {describe(name)}")
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"{what}: {name!r} is no header name; it takes letters, digits and - only")
        if not isinstance(text, str):
            raise ConfigError(f"{what}: the value of {name} must be a string, not {describe(text)}")
        if not _HEADER_VALUE.fullmatch(text):
            raise ConfigError(f"{what}: the value of {name} must be one line of ASCII without outer blanks")
    return Headers(value)


MAX_SESSION_CHARS: Final = 256


def session_fault(session_id: str) -> str | None:
    """Return what keeps a session id, without outer spaces, from being sent; None when nothing does."""
    if not session_id:
        return "is blank; leave session out, or give it something that tells sessions apart"
    if len(session_id) > MAX_SESSION_CHARS:
        return f"has {len(session_id)} characters, and at most {MAX_SESSION_CHARS} are allowed"
    if not session_id.isprintable():
        return "has a line break or another character that does not print"
    return None


def merge_headers(first: Mapping[str, str], later: Mapping[str, str]) -> FrozenDict[str, str]:
    """Return the headers of both; ``later`` wins where a name is the same, in whatever case it is written."""
    replaced = {name.lower() for name in later}
    return Headers({**{name: text for name, text in first.items() if name.lower() not in replaced}, **later})
