r"""ECMA-262 regular expressions, as JSON Schema means them, run by Python's ``re``: exactly, or refused.

Guarantees: a translated pattern matches what ECMA-262 with the ``u`` flag matches (``$`` is the very end,
``.`` stops at line terminators, ``\d \w \b`` are ASCII, ``\s`` is the standard's list, ``\p{...}`` takes
general categories); a construct without an exact translation is refused; a pattern whose backtracking can
grow exponentially is refused, and one that grows as a power of the text's length carries the length up to
which it is quick. What is emitted is built from parsed characters, never from the author's text.

Growth is read off the pattern's position automaton: it is exponential exactly when some loop can be walked in
two ways over one text (Weber and Seidl 1991, "On the degree of ambiguity of finite automata"), a power when
loops that can take the same text follow each other. Both tests may refuse too much, never too little, for
patterns without look-around; look-arounds are judged on their own and counted as one more loop.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from typing import Final

from attrs import frozen

from promptkit._loading import _ambiguity
from promptkit._loading._ambiguity import MAX_CODE, Alternatives, Assertion, Chars, Loop, Node, Ranges, Sequence

MAX_PATTERN: Final = 2_000
"""Longest pattern, in characters."""

_MAX_NESTING: Final = 30
_MAX_COUNT: Final = 10_000
_MAX_STEPS: Final = 1e8
_MAX_DEGREE: Final = 4

_DIGITS: Final[Ranges] = ((0x30, 0x39),)
_WORD: Final[Ranges] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Final[Ranges] = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
_LINE_ENDS: Final[Ranges] = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_CONTROLS: Final = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D}
_CATEGORIES: Final = {
    "Letter": "L", "Cased_Letter": "LC", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt", "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M", "Combining_Mark": "M",
    "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc", "Enclosing_Mark": "Me", "Number": "N", "Decimal_Number": "Nd",
    "digit": "Nd", "Letter_Number": "Nl", "Other_Number": "No", "Punctuation": "P", "punct": "P",
    "Connector_Punctuation": "Pc", "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps", "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi", "Final_Punctuation": "Pf", "Other_Punctuation": "Po", "Symbol": "S",
    "Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk", "Other_Symbol": "So",
    "Separator": "Z", "Space_Separator": "Zs", "Line_Separator": "Zl", "Paragraph_Separator": "Zp",
    "Other": "C", "Control": "Cc", "cntrl": "Cc", "Format": "Cf", "Surrogate": "Cs", "Private_Use": "Co",
    "Unassigned": "Cn",
}  # fmt: skip
_QUANTIFIERS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_COUNTED: Final = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_COUNT_LIKE: Final = re.compile(r"[0-9]*,?[0-9]*\}")
_WORD_EDGE: Final = "(?a:\\b)"
_HIGH_SURROGATES: Final = range(0xD800, 0xDC00)
_NO_WORD_EDGE: Final = "(?!(?a:\\b))"  # before 3.14 Python does not find \B in the empty text


class PatternFaultError(ValueError):
    """A pattern cannot be used; ``str()`` says why and what to write instead."""


@frozen(eq=False)
class Pattern:
    """A pattern ready to run.

    ``max_length``: longest text, in characters, that it is quick on; ``sys.maxsize`` when its time grows with
    the text's length alone.
    """

    source: str
    regex: re.Pattern[str]
    max_length: int

    def is_match(self, text: str) -> bool:
        """Tell whether the pattern occurs anywhere in ``text``; the caller has looked at ``max_length``."""
        return self.regex.search(text) is not None


@functools.lru_cache(maxsize=1024)
def translate(source: str) -> Pattern:
    """Return the pattern ready to run. Raises `PatternFaultError`. Pure; safe for any number of threads."""
    if len(source) > MAX_PATTERN:
        raise PatternFaultError(f"the pattern is longer than {MAX_PATTERN} characters")
    node = _Parser(source).parse()
    degree = _ambiguity.degree_of(node)
    if degree is None:
        raise PatternFaultError(
            "the pattern can take exponential time: a repeated part can match one text in several ways; "
            "write (a|b)+ or a+ instead of (a+|b)+ or (a+)+, and separate repeated parts by a fixed character"
        )
    if degree > _MAX_DEGREE:
        raise PatternFaultError(
            f"the pattern has {degree} repeated parts in a row that can match the same text, which takes too long; "
            "separate them by fixed characters, or begin the pattern with ^"
        )
    try:
        regex = re.compile(_emit(node))
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternFaultError(f"the pattern has no exact form here: {error}") from error
    return Pattern(source, regex, int(_MAX_STEPS ** (1 / degree)) if degree > 1 else sys.maxsize)


# ---------------------------------------------------------------------------------------------- characters


def _union(*parts: Ranges) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pair for part in parts for pair in part):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _complement(ranges: Ranges) -> Ranges:
    gaps, start = [], 0
    for low, high in ranges:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= MAX_CODE:
        gaps.append((start, MAX_CODE))
    return tuple(gaps)


_SETS: Final[dict[str, Ranges]] = {
    "d": _DIGITS,
    "D": _complement(_DIGITS),
    "w": _WORD,
    "W": _complement(_WORD),
    "s": _SPACE,
    "S": _complement(_SPACE),
}


@functools.cache
def _categories() -> dict[str, Ranges]:
    """Return the code points of every two-letter general category; a fifth of a second, once."""
    found: dict[str, list[tuple[int, int]]] = {}
    start, current = 0, unicodedata.category("\0")
    for code in range(1, sys.maxunicode + 2):
        name = unicodedata.category(chr(code)) if code <= sys.maxunicode else ""
        if name != current:
            found.setdefault(current, []).append((start, code - 1))
            start, current = code, name
    return {name: tuple(ranges) for name, ranges in found.items()}


def _property(name: str) -> Ranges:
    if name == "Any":
        return ((0, MAX_CODE),)
    if name == "ASCII":
        return ((0, 0x7F),)
    key, _, value = name.rpartition("=")
    if key in ("", "gc", "General_Category"):
        short = _CATEGORIES.get(value, value)
        wanted = ("Lu", "Ll", "Lt") if short == "LC" else (short,)
        parts = [ranges for known, ranges in _categories().items() if known.startswith(wanted)]
        if value and parts:
            return _union(*parts)
    raise PatternFaultError(
        f"\\p{{{name[:40]}}} is not available: only general categories such as \\p{{L}} or \\p{{Lu}}, Any and ASCII are"
    )


# -------------------------------------------------------------------------------------------------- parser


class _Parser:
    """Recursive descent over the grammar of ECMA-262 section 22.2.1, with its u flag."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.depth = 0

    def parse(self) -> Node:
        node = self.alternatives()
        if self.at < len(self.source):
            raise self.fault("unmatched )")
        return node

    def fault(self, message: str) -> PatternFaultError:
        return PatternFaultError(f"{message} (at character {self.at + 1} of the pattern)")

    def peek(self) -> str:
        return self.source[self.at : self.at + 1]

    def take(self, text: str) -> bool:
        if self.source.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def alternatives(self) -> Node:
        options = [self.sequence()]
        while self.take("|"):
            options.append(self.sequence())
        return options[0] if len(options) == 1 else Alternatives(tuple(options))

    def sequence(self) -> Node:
        items: list[Node] = []
        while self.peek() not in ("", "|", ")"):
            item = self.atom()
            items.append(self.quantified(item))
        return Sequence(tuple(items))

    def quantified(self, item: Node) -> Node:
        bounds = self.bounds()
        if bounds is None:
            return item
        low, high = bounds
        if isinstance(item, Assertion):
            raise self.fault("a position such as ^, $, \\b or a look-around cannot be repeated")
        if max(low, high or 0) > _MAX_COUNT:
            raise self.fault(f"a repeat count above {_MAX_COUNT}")
        if high is not None and high < low:
            raise self.fault("the repeat counts are in the wrong order")
        return Loop(item, low, high, is_lazy=self.take("?"))

    def bounds(self) -> tuple[int, int | None] | None:
        """Take a quantifier and return how often it repeats, or None where there is none."""
        for text, bounds in _QUANTIFIERS.items():
            if self.take(text):
                return bounds
        counted = _COUNTED.match(self.source, self.at)
        if counted is None:
            return None
        self.at = counted.end()
        low = int(counted[1][:9])
        if counted[2] is None:
            return low, low
        return low, int(counted[3][:9]) if counted[3] else None

    def atom(self) -> Node:
        character = self.peek()
        self.at += 1
        if character == "^":
            return Assertion("^")
        if character == "$":
            return Assertion("\\Z")
        if character == ".":
            return Chars(_complement(_LINE_ENDS))
        if character == "(":
            return self.group()
        if character == "[":
            return Chars(self.char_class())
        if character == "\\":
            return self.escape()
        if character in "*+?" or (character == "{" and _COUNT_LIKE.match(self.source, self.at)):
            self.at -= 1
            raise self.fault("nothing to repeat" if character != "{" else "{,n} is not a count: write {0,n}")
        return Chars(((ord(character), ord(character)),))

    def group(self) -> Node:
        self.depth += 1
        if self.depth > _MAX_NESTING:
            raise self.fault(f"groups nested deeper than {_MAX_NESTING}")
        opening = ""
        if self.take("?"):
            name = re.compile(r"<([A-Za-z_$][A-Za-z0-9_$]*)>").match(self.source, self.at)
            opening = next((text for text in (":", "=", "!", "<=", "<!") if self.take(text)), "")
            if not opening and name:
                self.at = name.end()
            elif not opening:
                raise self.fault("only (?: (?= (?! (?<= (?<! and (?<name> groups are known; flags such as (?i) are not")
        inner = self.alternatives()
        if not self.take(")"):
            raise self.fault("missing )")
        self.depth -= 1
        return Assertion(f"(?{opening}", inner) if opening not in ("", ":") else inner

    def escape(self) -> Node:
        if self.take("b"):
            return Assertion(_WORD_EDGE)
        if self.take("B"):
            return Assertion(_NO_WORD_EDGE)
        return Chars(self.escaped())

    def escaped(self) -> Ranges:
        """Return the characters that the escape after a backslash stands for."""
        character = self.peek()
        self.at += 1
        if not character:
            raise self.fault("the pattern ends in a backslash")
        if character in _SETS:
            return _SETS[character]
        if character in "pP" and (found := re.compile(r"\{([A-Za-z0-9_=]+)\}").match(self.source, self.at)):
            self.at = found.end()
            ranges = _property(found[1])
            return ranges if character == "p" else _complement(ranges)
        code = self.code(character)
        return ((code, code),)

    def code(self, character: str) -> int:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "0" and not self.peek().isdigit():
            return 0
        if character == "c" and self.peek().isascii() and self.peek().isalpha():
            self.at += 1
            return ord(self.source[self.at - 1]) % 32
        if character == "x" and (found := self.digits(r"([0-9A-Fa-f]{2})")) is not None:
            return found
        if character == "u":
            if (found := self.digits(r"\{0*([0-9A-Fa-f]{1,6})\}")) is not None and found <= MAX_CODE:
                return found
            if (found := self.digits(r"([0-9A-Fa-f]{4})")) is not None:
                low = self.digits(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})") if found in _HIGH_SURROGATES else None
                return (
                    found
                    if low is None
                    else ord((chr(found) + chr(low)).encode("utf-16", "surrogatepass").decode("utf-16"))
                )
        if character.isascii() and character.isalnum():
            what = "back-references are" if character.isdigit() or character == "k" else f"\\{character} is"
            raise self.fault(f"{what} not available in patterns here")
        return ord(character)

    def digits(self, form: str) -> int | None:
        found = re.compile(form).match(self.source, self.at)
        if found is None:
            return None
        self.at = found.end()
        return int(found[1], 16)

    def char_class(self) -> Ranges:
        is_negated = self.take("^")
        parts: list[Ranges] = []
        while not self.take("]"):
            low = self.class_atom()
            if self.peek() == "-" and self.source[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.class_atom()
                if not (_is_single(low) and _is_single(high) and low[0][0] <= high[0][0]):
                    raise self.fault("a range in [...] needs two characters in ascending order")
                low = ((low[0][0], high[0][0]),)
            parts.append(low)
        ranges = _union(*parts)
        return _complement(ranges) if is_negated else ranges

    def class_atom(self) -> Ranges:
        character = self.peek()
        self.at += 1
        if not character:
            raise self.fault("missing ]")
        if character != "\\":
            return ((ord(character), ord(character)),)
        if self.take("b"):
            return ((8, 8),)
        return self.escaped()


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


# ------------------------------------------------------------------------------------------------ emission


def _literal(code: int) -> str:
    character = chr(code)
    if character.isascii() and character.isalnum():
        return character
    return f"\\U{code:08x}"


def _emit(node: Node) -> str:
    match node:
        case Chars(ranges):
            if not ranges:
                return "(?!)"
            if _is_single(ranges):
                return _literal(ranges[0][0])
            return f"[{''.join(_literal(a) if a == b else f'{_literal(a)}-{_literal(b)}' for a, b in ranges)}]"
        case Sequence(items):
            return "".join(map(_emit, items))
        case Alternatives(options):
            return f"(?:{'|'.join(map(_emit, options))})"
        case Loop(inner, low, high, is_lazy):
            body = _emit(inner) if isinstance(inner, Chars) else f"(?:{_emit(inner)})"
            return f"{body}{{{low},{'' if high is None else high}}}{'?' if is_lazy else ''}"
        case Assertion(text, inner):
            return text if inner is None else f"{text}{_emit(inner)})"
