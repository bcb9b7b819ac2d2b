"""The template language: Jinja2's immutable sandbox, narrowed to plain data and to work that is bounded.

Guarantees: a template reaches the values it is given, the filters, tests and globals listed here, and files
that the loader lets through – no attribute of any other object, no method that is not listed. What is undefined
or null is an error wherever it is used, also in lists, assignments and filters; only text, numbers and
booleans print. A name in an error comes from the template's source, never from a value.

How: before a template is compiled, `tighten` rewrites its syntax tree, so that what it does calls the methods here.
Nothing is evaluated while compiling.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, nodes, pass_context
from jinja2.environment import TemplateModule
from jinja2.loaders import BaseLoader
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, TemplateReference, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, missing

from promptkit._render import _filters
from promptkit._render._limits import Budget, TemplateFaultError
from promptkit._render._rewrite import tighten
from promptkit._render._whitespace import without_tag_lines

# ruff: noqa: SIM905 - these lists are read as words
TESTS: Final = frozenset(
    "!= < <= == > >= boolean defined divisibleby eq equalto even false filter float ge greaterthan gt in integer "
    "iterable le lessthan lower lt mapping ne none number odd sameas sequence string test true undefined upper".split()
)
GLOBALS: Final = ("dict", "namespace", "range")

_LIST_METHODS: Final = frozenset("count index".split())
_MAPPING_METHODS: Final = frozenset("get items keys values".split())
_TEXT_METHODS: Final = frozenset(
    "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit islower isnumeric "
    "isspace istitle isupper lower lstrip partition removeprefix removesuffix rfind rindex rpartition rsplit rstrip "
    "split splitlines startswith strip swapcase title upper".split()
)
_LOOP_NAMES: Final = frozenset(
    "changed cycle depth depth0 first index index0 last length nextitem previtem revindex revindex0".split()
)
_CURES: Final = {
    "format": "write '%.2f'|format(x) instead",
    "append": "inputs cannot be changed; build a list with + or collect in a namespace()",
}
"""What to do instead of methods that people try."""


class _Undefined(StrictUndefined):
    """A name that stands for nothing; its message speaks of the name as the template writes it."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        return self._undefined_hint or f"{self._undefined_name} is undefined"


class _Template(Template):
    def _get_default_module(self, ctx: Context | None = None) -> TemplateModule:  # noqa: ARG002 - Jinja's signature
        # Jinja keeps the module of an imported file; a namespace in it would carry one run's data into the next
        return self.make_module()


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one renderer. Thread-safe: what a rendering counts is kept per thread."""

    template_class = _Template
    intercepted_binops = frozenset(["*", "**", "%", "+"])

    def __init__(self, loader: BaseLoader) -> None:
        super().__init__(
            loader=loader,
            undefined=_Undefined,
            autoescape=False,
            keep_trailing_newline=True,
            optimized=False,  # constants are not folded while compiling, where nothing is charged
            cache_size=0,  # the loader keeps what it gives
        )
        self.budget = Budget()
        self.filters: dict[str, Callable[..., Any]] = {
            **_filters.table(self.budget),
            " text": self._print,
            " concat": self._concat,
            " given": given,
            " attribute": self._attribute,
            " item": self._item,
            " file": _file_name,
            " tick": self._tick,
        }
        self.tests = {name: test for name, test in self.tests.items() if name in TESTS}
        self.globals = {name: self.globals[name] for name in GLOBALS}

    # ------------------------------------------------------------------------------------------- compiling

    def tree(self, source: str, name: str) -> nodes.Template:
        """Return the syntax tree of ``source``. Raises `TemplateSyntaxError` with the line in ``source``."""
        try:
            return self.parse(without_tag_lines(source), name)
        except TemplateSyntaxError:
            self.parse(source, name)  # reports the line before any newline was moved into a tag
            raise

    def build(self, tree: nodes.Template, name: str) -> Template:
        """Return the template of a tree that has been found right; the tree is used up."""
        return _Template.from_code(self, self.compile(tighten(tree), name, name), self.make_globals(None))

    # ------------------------------------------------------------------------------------- values and names

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Look up an item for Jinja's own filters (``map(attribute=…)`` and the like)."""
        return self._item(obj, argument, None)

    def _attribute(self, value: Any, name: str, path: str | None) -> Any:
        """Return ``value.name``: a key of a mapping, or one of the listed methods and loop variables."""
        if isinstance(value, dict):
            if name in value:
                return value[name]
            if name in _MAPPING_METHODS:
                return getattr(value, name)
        elif isinstance(value, str):
            if name in _TEXT_METHODS:
                self.budget.spend(1, len(value))
                return getattr(value, name)
            if name in _filters.TEXT_METHODS:
                return functools.partial(_filters.TEXT_METHODS[name], self.budget, value)
        elif isinstance(value, (list, tuple)):
            if name in _LIST_METHODS or (name in ("grouper", "list") and hasattr(value, name)):
                return getattr(value, name)
        elif isinstance(value, LoopContext):
            if name in _LOOP_NAMES:
                return getattr(value, name)
        elif isinstance(value, Undefined):
            given(value)  # raises
        elif isinstance(value, _HOLDERS) and not name.startswith("_"):
            found = _own(value, name)
            if found is not missing:
                return found
        cure = f"; {_CURES[name]}" if name in _CURES else ""
        return self.undefined(f"{path or 'an item'} has no attribute {name}{cure}", name=name)

    def _item(self, value: Any, key: Any, path: str | None) -> Any:
        """Return ``value[key]``."""
        if isinstance(value, Undefined):
            given(value)  # raises
        if isinstance(value, (dict, list, tuple, str)):
            try:
                return value[key]
            except (LookupError, TypeError):
                pass
        elif isinstance(key, str):
            return self._attribute(value, key, path)
        what = f"{path} is undefined" if path else "an item has no such key"
        return self.undefined(what)

    def _text(self, value: Any, path: str) -> str:
        """Return what ``{{ value }}`` prints."""
        if type(value) is not str:
            value = _filters.printable(value, path)
        self.budget.spend(0, len(value))
        return value  # type: ignore[no-any-return]  # a str by now

    @pass_context  # Jinja works out no constant through a filter that wants the context
    def _print(self, _context: Context, value: Any, path: str) -> str:
        return self._text(value, path)

    def _concat(self, values: list[Any], paths: tuple[str, ...]) -> str:
        return "".join([self._text(value, path) for value, path in zip(values, paths, strict=True)])

    def _tick(self, chars: int, steps: int) -> str:
        self.budget.spend(steps, chars)
        return ""

    # ------------------------------------------------------------------------------------------- operators

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute ``left operator right`` within bounds."""
        for side in (left, right):
            given(side)
        if operator == "%" and isinstance(left, str):
            raise TemplateFaultError("% does not format text here; write '%d items'|format(n)")
        if operator == "*":
            self._check_product(left, right)
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            self.budget.spend(1, len(left) + len(right))
        elif operator == "+" and isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            self.budget.spend(1 + len(left) + len(right))
        elif operator == "**" and not (_is_small(left, 10**6) and _is_small(right, 64)):
            raise TemplateFaultError("** takes numbers up to 1000000 and exponents up to 64")
        return super().call_binop(context, operator, left, right)

    def _check_product(self, left: Any, right: Any) -> None:
        if isinstance(right, (str, list, tuple)):
            left, right = right, left
        if isinstance(left, (str, list, tuple)):
            times = right if isinstance(right, int) and right > 0 else 0
            if isinstance(left, str):
                self.budget.spend(1, len(left) * times)
            else:
                self.budget.spend(1 + len(left) * times)
        elif not (_is_small(left, 10**200) and _is_small(right, 10**200)):
            raise TemplateFaultError("* takes numbers up to 1e200")


def _is_small(number: Any, bound: int) -> bool:
    return isinstance(number, (int, float)) and -bound <= number <= bound


_HOLDERS: Final = (Namespace, TemplateModule, TemplateReference, BlockReference, Macro)


def _own(value: Any, name: str) -> Any:
    """Return what one of Jinja's own objects has under ``name``, or ``missing``."""
    if isinstance(value, TemplateReference):
        try:
            return value[name]
        except KeyError:
            return missing
    if isinstance(value, BlockReference):
        return value.super if name == "super" else missing
    if isinstance(value, Macro):
        return value.name if name == "name" else missing
    if isinstance(value, TemplateModule):
        return vars(value).get(name, missing)
    return getattr(value, name, missing)


def given(value: Any) -> Any:
    """Return ``value``, unless it is undefined: then raise, where Jinja would carry it on in silence."""
    if isinstance(value, Undefined):
        str(value)  # raises
    return value


def _file_name(value: Any) -> Any:
    """Return the name or names of a file to include that a template has computed."""
    names = given(value) if isinstance(value, (list, tuple)) else [given(value)]
    if names and all(isinstance(name, str) for name in names):
        return value
    raise TemplateFaultError("the name of an included file must be a string, or a list of strings")
