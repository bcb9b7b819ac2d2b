"""The filters that templates may use: Jinja's, with bounds, and without its silent ways.

Guarantees: a filter's input and output are charged to the budget, generators become lists; null and undefined
are refused except by ``default``; text filters take what would print and nothing else; ``tojson`` writes plain
UTF-8 JSON; ``int`` and ``float`` say when they cannot read a value. Left out: what is random (``random``), what
marks text as HTML (``safe``, ``forceescape``, ``striptags``, ``urlize``, ``xmlattr``), what shows Python's
own spelling (``pprint``), and ``attr``.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from jinja2 import Undefined, pass_environment
from jinja2.filters import FILTERS

from promptkit._fields import describe
from promptkit._render._limits import MAX_DEPTH, MAX_WIDTH, Budget, TemplateFaultError

# ruff: noqa: SIM905 - these lists are read as words
_PLAIN: Final = (
    "abs batch count dictsort filesizeformat first groupby items last length list map max min reject rejectattr "
    "reverse round select selectattr slice sort unique".split()
)
_TEXT: Final = "capitalize center lower title trim truncate upper urlencode wordcount wordwrap".split()
_MAX_WRAPPED_CHARS: Final = 100_000  # wrapping one long word is quadratic


def printable(value: Any, path: str = "an item") -> str:
    """Return the text that ``value`` prints as; raise for what has none. ``path`` names it in the error."""
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise TemplateFaultError(f"{path} is not a finite number")
    if isinstance(value, (int, float)):
        return str(value)
    if value is None:
        raise TemplateFaultError(f"{path} is null; give it a value with |default('…'), or test it with 'is none'")
    if isinstance(value, Undefined):
        str(value)  # raises
    if isinstance(value, (list, tuple, Mapping, range)):
        raise TemplateFaultError(f"{path} is {describe(value)}, which does not print; use |join(', ') or |tojson")
    if callable(value):
        raise TemplateFaultError(f"{path} is a function, which does not print; call it with ()")
    raise TemplateFaultError(f"{path} is no text or number, and does not print; use |join(', ') or |tojson")


def table(budget: Budget) -> dict[str, Callable[..., Any]]:
    """Return the filters by name, charging to ``budget``."""
    filters: dict[str, Callable[..., Any]] = {}
    for name in _PLAIN:
        filters[name] = _bounded(name, FILTERS[name], budget)
    for name in _TEXT:
        filters[name] = _text(name, FILTERS[name], budget)
    for name, function in _OWN.items():
        filters[name] = functools.partial(function, budget)
    filters["string"] = _text("string", _same, budget)
    filters["escape"] = filters["e"] = _text("escape", _escape, budget)
    filters["default"] = filters["d"] = _default
    for name, function in (("join", _join), ("sum", _sum)):
        filters[name] = pass_environment(functools.partial(function, budget))
    return filters


def _size(value: Any) -> int:
    try:
        return len(value)
    except TypeError:
        return 1


def _charge(budget: Budget, value: Any) -> None:
    if isinstance(value, str):
        budget.spend(1, len(value))
    else:
        budget.spend(1 + _size(value))


def _present(name: str, value: Any) -> None:
    if value is None:
        raise TemplateFaultError(f"|{name} was given null; put |default(…) before it, or test with 'is none'")
    if isinstance(value, Undefined):
        str(value)  # raises


def _bounded(name: str, function: Callable[..., Any], budget: Budget) -> Callable[..., Any]:
    """Return ``function`` as a filter of any value, charged for what goes in and what comes out."""
    at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        value = args[at]
        _present(name, value)
        _charge(budget, value)
        _check_numbers(name, args[at + 1 :], kwargs)
        result = _called(name, function, args, kwargs)
        if isinstance(result, Iterator):
            result = list(result)
            for item in result:
                if isinstance(item, Undefined):
                    str(item)  # raises
        _charge(budget, result)
        return result

    return bounded


def _text(name: str, function: Callable[..., Any], budget: Budget) -> Callable[..., Any]:
    """Return ``function`` as a filter of text: its input is what the value prints as."""
    at = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def text(*args: Any, **kwargs: Any) -> Any:
        _present(name, args[at])
        value = printable(args[at], f"what |{name} was given")
        budget.spend(1, len(value))
        _check_numbers(name, args[at + 1 :], kwargs)
        if name == "wordwrap" and len(value) > _MAX_WRAPPED_CHARS:
            raise TemplateFaultError(f"|wordwrap takes at most {_MAX_WRAPPED_CHARS} characters")
        result = _called(name, function, (*args[:at], value, *args[at + 1 :]), kwargs)
        _charge(budget, result)
        return result

    return text


def _called(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, ValueError) as exc:
        # the error's own text may hold a value
        raise TemplateFaultError(f"|{name} cannot do this with what it was given ({type(exc).__name__})") from None


def _check_numbers(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse widths, counts and paddings that make a small template work for minutes."""
    bound = _BOUNDS.get(name)
    if bound is None:
        return
    for value in (*args, *kwargs.values()):
        if isinstance(value, int) and abs(value) > bound:
            raise TemplateFaultError(f"|{name} takes numbers up to {bound}")
        if isinstance(value, str) and len(value) > _MAX_PADDING_CHARS:
            raise TemplateFaultError(f"|{name} takes texts up to {_MAX_PADDING_CHARS} characters")


_BOUNDS: Final = {"batch": 10_000, "center": MAX_WIDTH, "round": 30, "slice": 10_000, "wordwrap": MAX_WIDTH}
_MAX_PADDING_CHARS: Final = 100


# ------------------------------------------------------------------------------------------- our own filters


def _same(value: str) -> str:
    return value


_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def _escape(value: str) -> str:
    """Return what ``html.escape`` returns; that module brings a table of two thousand entities with it."""
    return value.translate(_ENTITIES)


def _default(value: Any, default_value: Any = "", boolean: bool = False) -> Any:  # noqa: FBT001, FBT002 - Jinja's
    """Return the default for what is undefined or null, and with ``boolean`` for what is empty or zero."""
    if isinstance(value, Undefined) or value is None or (boolean and not value):
        return default_value
    return value


def _join(budget: Budget, environment: Any, value: Any, d: Any = "", attribute: str | int | None = None) -> str:
    """Return the items' texts with ``d`` between them."""
    _present("join", value)
    between = printable(d, "the separator of |join")
    budget.spend(1 + _size(value))
    texts = [printable(item, "an item of |join") for item in _items(environment, value, attribute)]
    budget.spend(1, sum(map(len, texts)) + len(between) * len(texts))
    return between.join(texts)


def _sum(budget: Budget, environment: Any, value: Any, attribute: str | int | None = None, start: Any = 0) -> Any:
    """Return the sum of the items, or of one attribute of each, and ``start``."""
    _present("sum", value)
    _charge(budget, value)
    numbers = [start, *_items(environment, value, attribute)]
    for number in numbers:
        if not isinstance(number, (int, float)):
            _present("sum", number)
            raise TemplateFaultError(f"|sum adds numbers, and was given {describe(number)}")
    return sum(numbers)


def _items(environment: Any, value: Any, attribute: str | int | None) -> list[Any]:
    items = list(value)
    if attribute is not None:
        for part in str(attribute).split("."):
            key: Any = int(part) if part.isdigit() else part
            items = [environment.getitem(item, key) for item in items]
    return items


def _indent(budget: Budget, value: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:  # noqa: FBT001, FBT002
    """Return the text with its lines indented; the first one and blank ones on request."""
    _present("indent", value)
    text = printable(value)
    prefix = " " * min(width, MAX_WIDTH + 1) if isinstance(width, int) else printable(width, "the width of |indent")
    if len(prefix) > MAX_WIDTH:
        raise TemplateFaultError(f"|indent takes widths up to {MAX_WIDTH}")
    lines = text.split("\n")
    budget.spend(1, len(text) + len(lines) * len(prefix))
    indented = [prefix + line if line.strip() or blank else line for line in lines]
    if not first:
        indented[0] = lines[0]
    return "\n".join(indented)


def _replace(budget: Budget, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    """Return the text with ``old`` replaced by ``new``, everywhere or the first ``count`` times."""
    _present("replace", value)
    text, old, new = printable(value), printable(old), printable(new)
    times = text.count(old) if count is None or count < 0 else min(count, text.count(old))
    budget.spend(1, len(text) + times * max(0, len(new) - len(old)))
    return text.replace(old, new, times)


_SPEC: Final = re.compile(r"%(?:\(\w*\))?[#0\- +]*(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?(?P<kind>.)", re.DOTALL)


def _format(budget: Budget, value: Any, *args: Any, **kwargs: Any) -> str:
    """Fill ``%s``, ``%d``, ``%.2f`` … of a text, from arguments or, as ``%(name)s``, from keywords."""
    _present("format", value)
    text = printable(value)
    for spec in _SPEC.finditer(text):
        for number in (spec["width"], spec["precision"] or ""):
            if number == "*" or (number and int(number[:9]) > MAX_WIDTH):
                raise TemplateFaultError(f"|format takes written widths up to {MAX_WIDTH}")
        if spec["kind"] not in "diouxXeEfFgGs%":
            raise TemplateFaultError(f"|format does not know %{spec['kind']}; it knows %s %d %i %x %o %e %f %g")
    filled = [*args, *kwargs.values()]
    for item in filled:
        if isinstance(item, (bool, str)) or not isinstance(item, (int, float)):
            printable(item, "an argument of |format")
    budget.spend(1, len(text) + sum(len(item) for item in filled if isinstance(item, str)) * max(1, text.count("%")))
    return text % (kwargs or args)


_MISSING: Final = object()


def _integer(budget: Budget, value: Any, default: Any = _MISSING, base: int = 10) -> Any:
    """Return ``value`` as an integer; ``default``, where given, for what is none."""
    _present("int", value)
    _charge(budget, value)
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return int(value, base) if isinstance(value, str) else int(value)
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return int(float(value))
    return _fall_back("int", "an integer", default)


def _float(budget: Budget, value: Any, default: Any = _MISSING) -> Any:
    """Return ``value`` as a number; ``default``, where given, for what is none."""
    _present("float", value)
    _charge(budget, value)
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return float(value)
    return _fall_back("float", "a number", default)


def _fall_back(name: str, wanted: str, default: Any) -> Any:
    # not in an except clause: Python's own error, which shows the value, would be told as the context of this one
    if default is _MISSING:
        raise TemplateFaultError(f"|{name} was given what is not {wanted}; say what to use then, as in |{name}(0)")
    return default


_MAX_JSON_INDENT: Final = 16
_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode


def _tojson(budget: Budget, value: Any, indent: int | None = None) -> str:
    """Return ``value`` as JSON in plain UTF-8: no HTML escapes, keys in their own order."""
    _check_json(budget, value, MAX_DEPTH)
    if indent is None:
        return _to_json(value)
    if type(indent) is not int or not 0 <= indent <= _MAX_JSON_INDENT:
        raise TemplateFaultError(f"|tojson takes an indent from 0 to {_MAX_JSON_INDENT}")
    return json.dumps(value, ensure_ascii=False, allow_nan=False, check_circular=False, indent=indent)


def _check_json(budget: Budget, value: Any, depth: int) -> None:
    """Charge for every part of ``value``, and refuse what JSON has no form for."""
    if isinstance(value, str):
        budget.spend(1, len(value) + 2)
    elif isinstance(value, Undefined):
        str(value)  # raises
    elif isinstance(value, float) and not math.isfinite(value):
        raise TemplateFaultError("|tojson was given a number that is not finite")
    elif value is None or isinstance(value, (int, float)):
        budget.spend(1, 8)
    elif depth == 0:
        raise TemplateFaultError(f"|tojson was given what nests deeper than {MAX_DEPTH} levels")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TemplateFaultError(f"|tojson was given a key that is {describe(key)}, not a string")
            budget.spend(1, len(key) + 4)
            _check_json(budget, item, depth - 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_json(budget, item, depth - 1)
        budget.spend(1, 2 * len(value) + 2)
    else:
        raise TemplateFaultError("|tojson was given what is not data")


_OWN: Final[dict[str, Callable[..., Any]]] = {
    "float": _float,
    "format": _format,
    "indent": _indent,
    "int": _integer,
    "replace": _replace,
    "tojson": _tojson,
}


# ------------------------------------------------------------------- methods of text that can make it longer


def _padded(method: Callable[..., str]) -> Callable[..., str]:
    def padded(budget: Budget, value: str, width: int, *fill: str) -> str:
        if type(width) is not int or width > MAX_WIDTH:
            raise TemplateFaultError(f"{method.__name__}() takes widths up to {MAX_WIDTH}")
        budget.spend(1, max(len(value), width))
        return method(value, width, *fill)

    return padded


def _joined(budget: Budget, value: str, items: Any) -> str:
    _present("join", items)
    return _join(budget, None, items, value)


TEXT_METHODS: Final[dict[str, Callable[..., str]]] = {
    "center": _padded(str.center),
    "join": _joined,
    "ljust": _padded(str.ljust),
    "replace": _replace,
    "rjust": _padded(str.rjust),
    "zfill": _padded(str.zfill),
}
