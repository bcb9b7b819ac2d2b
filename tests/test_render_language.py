# ruff: noqa: E501 - tables of templates and what they give are read line by line
from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest

from promptkit._render._limits import MAX_STEPS, Budget, TemplateFaultError
from support.prompts import Prompts, fault

USE = "{% if d %}{% endif %}"
"""Uses the input ``d``, which would be called unused else."""


@pytest.fixture
def prompts(tmp_path: Path) -> Prompts:
    """An empty prompts folder."""
    return Prompts(tmp_path)


# ------------------------------------------------------------------------------------------------- the language


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ d.s|upper }} {{ d.s.upper() }} {{ d.s|title }}", "AB CD AB CD Ab Cd"),
        ("{% for k, v in d.m.items() %}{{ k }}={{ v }};{% endfor %}", "b=1;a=2;"),
        ("{% for k, v in d.m|dictsort %}{{ k }}={{ v }};{% endfor %}", "a=2;b=1;"),
        ("{% for i in d.items %}{{ i }}{% endfor %}", "78"),
        ("{{ d.m.get('b') }} {{ d.m.get('z', 'dflt') }} {{ d['m']['a'] }}", "1 dflt 2"),
        ("{% for i in d.l %}{{ loop.index }}/{{ loop.length }}:{{ i }}{{ '' if loop.last else ' ' }}{% endfor %}", "1/3:3 2/3:1 3/3:2"),
        ("{{ d.l|sort|join('-') }} {{ d.l|max }} {{ d.l|sum }} {{ d.l|length }}", "1-2-3 3 6 3"),
        ("{{ d.l|map('string')|join(',') }} {{ d.l|select('odd')|list|tojson }}", "3,1,2 [3, 1]"),
        ("{{ d.r|map(attribute='n')|join }} {{ d.r|sum(attribute='n') }} {{ d.r|join('+', attribute='n') }}", "123 6 1+2+3"),
        ("{% for g in d.r|groupby('p') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}", "x:2 y:1 "),
        ("{{ d.r|selectattr('p', 'equalto', 'x')|map(attribute='n')|list|tojson }}", "[1, 3]"),
        ("{{ '%05.1f|%s|%d'|format(2.25, d.s, 7) }} {{ '%(a)s'|format(a=1) }}", "002.2|ab cd|7 1"),
        ("{{ d.s|replace('a', 'x') }} {{ d.s.replace('b', '') }} {{ d.s|replace('b', 'c', 0) }}", "xb cd a cd ab cd"),
        ("{{ 'a\nb\n\nc'|indent(2) }}|{{ 'a\nb'|indent('> ', first=true) }}", "a\n  b\n\n  c|> a\n> b"),
        ("{{ '-' * 5 }} {{ [0] * 2 == [0, 0] }} {{ 2 ** 10 }} {{ 7 // 2 }} {{ 7 % 4 }}", "----- True 1024 3 3"),
        ("{{ 'ab'.ljust(4) }}|{{ 'ab'.center(4, '*') }}|{{ '7'.zfill(3) }}", "ab  |*ab*|007"),
        ("{{ ', '.join(d.l) }} {{ 'a,b'.split(',')|join(' ') }} {{ d.s[:2] }} {{ d.s[-1] }}", "3, 1, 2 a b ab d"),
        ("{{ '<a b=\"c\">'|e }}", "&lt;a b=&quot;c&quot;&gt;"),
        ("{{ '7'|int + 1 }} {{ 'x'|int(5) }} {{ '1e3'|int }} {{ 3.9|int }} {{ '2.5'|float }} {{ 'x'|float(0) }}", "8 5 1000 3 2.5 0"),
        ("{{ d.m|tojson(indent=1) }}", '{\n "b": 1,\n "a": 2\n}'),
        ("{{ d.l|batch(2)|list|length }} {{ d.l|slice(2)|list|length }} {{ d.l|reverse|join }}", "2 2 213"),
        ("{{ d.s|truncate(4, true, '…', 0) }} {{ d.s|wordcount }} {{ 'a b'|urlencode }} {{ 2.567|round(1) }}", "ab … 2 a%20b 2.6"),
        ("{{ d.l|unique|list|length }} {{ d.m|items|list|length }} {{ d.l|first }} {{ d.l|last }}", "3 2 3 2"),
        ("{% set ns = namespace(t=0) %}{% for i in d.l %}{% set ns.t = ns.t + i %}{% endfor %}{{ ns.t }}", "6"),
        ("{% macro m(a, b='z') %}{{ a }}{{ b }}{{ m.name }}{% endmacro %}{{ m(1) }}", "1zm"),
        ("{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% call(y) m() %}{{ y }}{% endcall %}", "<1>"),
        ("{% filter upper %}a{{ d.s }}{% endfilter %}", "AAB CD"),
        ("{% with y = d.s %}{{ y }}{% endwith %}", "ab cd"),
        ("{% block a %}x{% endblock %}{{ self.a() }}", "xx"),
        ("{% for i in d.tree recursive %}{{ i.n }}{% if i.c is defined %}({{ loop(i.c) }}){% endif %}{% endfor %}", "1(2)"),
        ("{% for i in range(2) %}{{ loop.cycle('a', 'b') }}{% else %}none{% endfor %}", "ab"),
        ("{{ dict(a=1).a }} {{ {'a': 1}['a'] }} {{ (1, 2)[1] }} {{ d.l.index(2) }} {{ d.l.0 }}", "1 1 2 2 3"),
        ("{{ 1.0 }} {{ 0.1 }} {{ 10 }} {{ true }}", "1.0 0.1 10 True"),
        ("{{ 'yes' if d.l is iterable and d.s is string and d.m is mapping else 'no' }}", "yes"),
        ("{% set x %}a{{ d.s }}{% endset %}{{ x|length }}", "6"),
        ("{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"),
        ("{{ d.s.replace('b', 'c', -1) }}", "ac cd"),
        ("{{ d.s|default('x') }} {{ ''|default('x', true) }} {{ 0|d('y', boolean=true) }}", "ab cd x y"),
    ],
)  # fmt: skip
def test_what_templates_can_say(prompts: Prompts, template: str, text: str) -> None:
    """The language as the reference describes it."""
    data = {
        "s": "ab cd",
        "l": [3, 1, 2],
        "m": {"b": 1, "a": 2},
        "items": [7, 8],
        "r": [{"n": 1, "p": "x"}, {"n": 2, "p": "y"}, {"n": 3, "p": "x"}],
        "tree": [{"n": 1, "c": [{"n": 2}]}],
    }
    assert prompts.text(template + USE, d=data) == text


@pytest.mark.parametrize(
    "expression",
    [
        "''.__class__",
        "''['__class__']",
        "[].__class__.__mro__",
        "[d]|map(attribute='__class__')|join",
        "[d]|selectattr('__class__')|list|length",
        "[d, d]|groupby('__class__')|list|length",
        "[d]|join(attribute='__class__')",
        "[d]|sum(attribute='__class__')",
        "[d, d]|sort(attribute='__class__')|list|length",
        "'{0.__class__}'.format(1)",
        "'{x}'.format_map({'x': 1})",
        "'%s'|format(d.__class__)",
        "self.__init__",
        "self._TemplateReference__context",
        "range.__class__",
        "dict.fromkeys",
        "namespace.__init__.__globals__",
        "namespace(a=1)._Namespace__attrs",
        "d.__class__",
        "d.__reduce__()",
        "d.clear()",
        "d.l.sort()",
        "d.l.pop()",
        "d.keys().mapping",
        "'a'.encode()",
        "'a'.translate({})",
        "(1).bit_length()",
        "1.5.hex()",
        "d.l.__getitem__(0)",
    ],
)
def test_the_sandbox_has_no_way_out(prompts: Prompts, expression: str) -> None:
    """No attribute but keys and listed methods."""
    error = fault(prompts, f"{{{{ {expression} }}}}" + USE, d={"l": [1]})
    assert re.search(r"has no attribute|is undefined|no such key", str(error))


@pytest.mark.parametrize(
    "statement",
    [
        "{% for x in [1] %}{{ loop._context }}{% endfor %}",
        "{% for x in [1] %}{{ loop.__class__ }}{% endfor %}",
        "{% macro m() %}{{ m._func }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ caller._environment }}{% endmacro %}{% call m() %}{% endcall %}",
        "{% block a %}{{ super._stack }}{% endblock %}",
        "{% set ns = namespace() %}{{ ns.__class__ }}",
    ],
)
def test_jinjas_own_objects_have_no_inside(prompts: Prompts, statement: str) -> None:
    """Loops, macros, callers, blocks and namespaces."""
    assert re.search(r"has no attribute|no parent block", str(fault(prompts, statement)))


# ------------------------------------------------------------------------------------------------------- bounds

STEPS = "more than 500000 loop rounds"
CHARS = "more than 10000000 characters"


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ 'a' * 10**9 }}", CHARS),
        ("{{ 10**9 * 'a' }}", CHARS),
        ("{{ [0] * 10**9 }}", STEPS),
        ("{{ 10**9**9 }}", r"\*\* takes"),
        ("{{ 2.0**10000 }}", r"\*\* takes"),
        ("{% set ns = namespace(n=10**64) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}", r"\* takes"),
        ("{{ '%1000000000d'|format(1) }}", r"\|format takes written widths up to 1000"),
        ("{{ '%.1000000000f'|format(1) }}", r"\|format takes written widths"),
        ("{{ '%*d'|format(10**9, 1) }}", r"\|format takes written widths"),
        ("{{ 'a'|center(10**9) }}", r"\|center takes numbers up to 1000"),
        ("{{ 'a'|indent(10**9) }}", r"\|indent takes widths up to 1000"),
        ("{{ 'a'|indent('x' * 2000) }}", r"\|indent takes widths up to 1000"),
        ("{{ 'a'.ljust(10**9) }}", r"ljust\(\) takes widths up to 1000"),
        ("{{ 'a'.ljust('x') }}", r"ljust\(\) takes widths up to 1000"),
        ("{{ [1]|batch(10**9, 'x')|list }}", r"\|batch takes numbers up to 10000"),
        ("{{ [1]|batch(2, 'x' * 500)|list }}", r"\|batch takes texts up to 100"),
        ("{{ [1]|slice(10**9)|list }}", r"\|slice takes numbers up to 10000"),
        ("{{ 1.5|round(10**9, 'ceil') }}", r"\|round takes numbers up to 30"),
        ("{{ ('a' * 200000)|wordwrap(1) }}", r"\|wordwrap takes at most 100000 characters"),
        ("{{ ('a' * 100000)|replace('a', 'b' * 1000) }}", CHARS),
        ("{{ ('a' * 100000).replace('a', 'b' * 1000) }}", CHARS),
        ("{{ ([1] * 100000)|join('x' * 1000) }}", CHARS),
        ("{{ ('x' * 1000).join([1] * 100000) }}", CHARS),
        ("{{ range(10**9)|list }}", "a number or a range is too large"),
        ("{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}", STEPS),
        ("{% for a in range(100) %}{{ range(10000)|map('string')|list|length }}{% endfor %}", STEPS),
        ("{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}", CHARS),
        ("{% for i in range(100000) %}" + "y" * 1000 + "{% endfor %}", CHARS),
        ("{% set b %}{% for i in range(100000) %}" + "y" * 1000 + "{% endfor %}{% endset %}", CHARS),
        ("{% macro m() %}" + "y" * 1000 + "{% endmacro %}{% for i in range(100000) %}{% set x = m() %}{% endfor %}", CHARS),
        ("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", CHARS),
        ("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", CHARS),
        ("{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", STEPS),
        ("{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson }}", STEPS),
        ("{% set ns = namespace(s=1) %}{% for i in range(200) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s|tojson }}", "100 levels"),
        ("{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}", "endlessly"),
        ("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}", STEPS),
        ("{% block a %}{{ self.a() }}{% endblock %}", "endlessly"),
        ("{{ 'x' * 2000001 }}", "the message is longer than 2000000 characters"),
        ("{{ ('é' * 99)|urlencode|center(1001) }}", r"\|center takes"),
    ],
)  # fmt: skip
def test_what_would_take_minutes_is_refused_by_count(prompts: Prompts, template: str, told: str) -> None:
    """The bounds are numbers of steps and characters, so they are the same on a busy machine."""
    assert re.search(told, str(fault(prompts, template)))


def test_what_is_within_the_bounds_works(prompts: Prompts) -> None:
    """Two million characters, and a hundred thousand rounds."""
    assert len(prompts.text("{{ 'x' * 2000000 }}")) == 2_000_000
    assert prompts.text("{% for i in range(100000) %}{% endfor %}end") == "end"


def test_each_message_has_the_whole_budget(prompts: Prompts) -> None:
    """What one has spent, and an error in between, takes nothing from the next."""
    prompts.write(
        "messages: [{role: user, content: \"{{ 'x' * 2000000 }}\"}, {role: user, content: \"{{ 'y' * 2000000 }}\"}]\n"
    )
    for _ in range(4):
        assert [len(message.content) for message in prompts.render()] == [2_000_000, 2_000_000]


def test_a_rendering_in_a_signal_handler_has_a_budget_of_its_own() -> None:
    """The one that it interrupts goes on with what it had, and nothing stays when both have ended."""
    budget = Budget()
    outer = budget.begin()
    budget.spend(MAX_STEPS)
    inner = budget.begin()
    budget.spend(MAX_STEPS)
    budget.end(inner)
    with pytest.raises(TemplateFaultError, match="loop rounds"):
        budget.spend(1)
    budget.end(outer)
    assert not budget._left


# -------------------------------------------------------------------------------------- undefined, null, errors


@pytest.mark.parametrize(
    "template",
    [
        "{{ d.nope }}",
        "{{ d['nope'] }}",
        "{% set y = d.nope %}",
        "{{ [d.nope]|length }}",
        "{{ (1, d.nope)|length }}",
        "{{ {'k': d.nope}|length }}",
        "{{ d.nope|tojson }}",
        "{{ [d]|map(attribute='nope')|list|length }}",
        "{{ [d]|selectattr('nope')|list|length }}",
        "{{ [d]|join(', ', attribute='nope') }}",
        "{{ [d]|sum(attribute='nope') }}",
        "{{ 'a' ~ d.nope }}",
        "{{ 'a' + d.nope }}",
        "{{ d.nope == 1 }}",
        "{{ 1 in d.nope }}",
        "{{ not d.nope }}",
        "{{ d.nope.deeper }}",
        "{{ d.nope['deeper'] }}",
        "{{ d.nope() }}",
        "{{ d.nope|upper }}",
        "{{ d.nope|length }}",
        "{{ 'x'|replace('x', d.nope) }}",
        "{{ '%s'|format(d.nope) }}",
        "{% for i in d.nope %}{% endfor %}",
        "{% if d.nope %}{% endif %}",
        "{% include d.nope %}",
    ],
)
def test_what_is_undefined_is_an_error_wherever_it_is_used(prompts: Prompts, template: str) -> None:
    """Also where Jinja would carry it on: in lists, assignments and filters."""
    assert re.search(r"nope|no such key", str(fault(prompts, template, d={"a": 1})))


@pytest.mark.parametrize(
    "template",
    [
        "{{ d.x }}",
        "{{ d.x|upper }}",
        "{{ d.x|int }}",
        "{{ 'a' ~ d.x }}",
        "{{ [d.x]|join }}",
        "{{ [d]|map(attribute='x')|map('lower')|list|length }}",
        "{{ '%s'|format(d.x) }}",
        "{{ 'a'|replace('a', d.x) }}",
        "{{ d.x|string }}",
        "{{ d.x|trim }}",
        "{{ [d.x]|sum }}",
        "{{ ', '.join([d.x]) }}",
        "{{ d.get('zz') }}",
    ],
)
def test_null_never_becomes_the_word_none(prompts: Prompts, template: str) -> None:
    """Printing it is an error; ``default``, ``tojson`` and ``is none`` take it."""
    assert "null" in str(fault(prompts, template, d={"x": None}))


def test_null_has_ways_out(prompts: Prompts) -> None:
    """Default stands in for null as it does for what is undefined."""
    assert prompts.text("{{ d.x|default('-') }} {{ d.x|tojson }} {{ d.x is none }}", d={"x": None}) == "- null True"


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ d }}", "d is a mapping, which does not print; use"),
        ("{{ d.l }}", "d.l is a list, which does not print"),
        ("{{ d.items }}", r"d.items is a function, which does not print; call it with \(\)"),
        ("{{ d.l|map('length') }}", r"d.l\|map is a list"),
        ("{{ range(3) }}", r"range\(…\) is a range"),
        ("{{ namespace(a=1) }}", "does not print"),
        ("{{ d.l[0].x[d.k] }}", r"d.l\[0\].x\[…\] is undefined"),
        ("{{ d.l[5] }}", r"d.l\[5\] is undefined"),
        ("{{ d.l.x }}", "d.l has no attribute x"),
        ("{{ d.k.x.y }}", "d.k has no attribute x"),
        ("{{ d.k.format(1) }}", "d.k has no attribute format; write '%.2f'|format"),
        ("{{ d.f(1) }}", "'float' object is not callable"),
        ("{{ d.f + d.k }}", r"unsupported operand type\(s\) for \+: 'float' and 'str'"),
        ("{{ d.f < d.k }}", "'<' not supported between instances of 'float' and 'str'"),
        ("{% for x in d.f %}{% endfor %}", "'float' object is not iterable"),
        ("{{ d.l() }}", "'List' object is not callable"),
        ("{{ d.f / 0 }}", "a division by zero"),
        ("{{ d.k|int }}", r"\|int was given what is not an integer; say what to use then, as in \|int\(0\)"),
        ("{{ d.k|float }}", r"\|float was given what is not a number"),
        ("{{ d.k|truncate(1) }}", r"\|truncate cannot do this with what it was given"),
        ("{{ [d.k, 1]|sort }}", "'<' not supported"),
        ("{{ [d.k]|sum }}", r"\|sum adds numbers, and was given a string"),
        ("{{ '%d'|format(d.k) }}", "%d format: a real number is required, not str"),
        ("{{ '%s %s'|format(d.k) }}", "not enough arguments for format string"),
        ("{{ '%y'|format(d.k) }}", r"\|format does not know %y"),
        ("{{ d.l[::0] }}", r"an expression failed \(ValueError\)"),
        ("{{ []|first }}", "No first item"),
        ("{{ d.k % 3 }}", "% does not format text here"),
        ("{{ d.f|tojson(indent=99) }}", r"\|tojson takes an indent from 0 to 16"),
        ("{{ {1: 2}|tojson }}", r"\|tojson was given a key that is an integer"),
        ("{{ range|tojson }}", r"\|tojson was given what is not data"),
        ("{% macro m(a) %}{{ a }}{% endmacro %}{{ m() }}", "parameter 'a' was not provided"),
        ("{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "macro 'm' takes not more than 1 argument"),
        ("{% if false %}{% set q = 1 %}{% endif %}{{ q }}", "q is undefined"),
        ("{{ '\\ud800' }}", "a lone surrogate"),
        ("{{ '\\0' }}", "a NUL"),
    ],
)
def test_errors_speak_of_the_template_and_hold_no_value(prompts: Prompts, template: str, told: str) -> None:
    """Names, types and what to do; the chain of causes holds no value either."""
    data = {"l": [{"x": {}}], "k": "planted-value", "f": 71.25}
    error = fault(prompts, template + USE, d=data)
    assert re.search(told, str(error)), str(error)
    shown = "".join(traceback.format_exception(error))
    assert "planted" not in shown
    assert "71.25" not in shown
