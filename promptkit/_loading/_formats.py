"""The formats of JSON Schema that are checked, as their standards define them.

Guarantees: pure; linear in the length of the text; ASCII digits only; a format that is not in `FORMATS` is an
annotation. ``regex``, ``uri-template`` and ``idn-hostname`` are left out because what can be said about them
here would be wrong for some right values.

Sources: RFC 3339 (date, time, date-time, duration), RFC 5321 section 4.1.2 and RFC 6531 (email, idn-email),
RFC 1123 section 2.1 (hostname), RFC 3986 and RFC 3987 (uri, iri and their references), RFC 4291 (ipv6),
RFC 9562 (uuid), RFC 6901 (json-pointer).
"""

from __future__ import annotations

import datetime as dt
import functools
import ipaddress
import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile(
    r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)(?:\.[0-9]+)?(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_DURATION: Final = re.compile(
    r"P(?:[0-9]+W|(?=[0-9T])(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)?"
    r"(?:T(?=[0-9])(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?)"
)
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}")
_MINUTES_A_DAY: Final = 1440
_MAX_HOSTNAME: Final = 253
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_RELATIVE_POINTER: Final = re.compile(r"(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)")
_ATOM: Final = "A-Za-z0-9!#$%&'*+/=?^_`{|}~-"
_BEYOND: Final = "\u0080-\U0010ffff"
_LOCAL: Final = re.compile(rf'[{_ATOM}]+(?:\.[{_ATOM}]+)*|"(?:[ !#-\[\]-~]|\\[ -~])*"')

# Python compiles a class that reaches beyond ASCII in milliseconds; the three that do are compiled when first used.


@functools.cache
def _idn_local() -> re.Pattern[str]:
    return re.compile(rf'[{_BEYOND}{_ATOM}]+(?:\.[{_BEYOND}{_ATOM}]+)*|"(?:[ !#-\[\]-~{_BEYOND}]|\\[ -~])*"')


@functools.cache
def _idn_label() -> re.Pattern[str]:
    return re.compile(rf"[A-Za-z0-9{_BEYOND}](?:[A-Za-z0-9{_BEYOND}-]{{0,61}}[A-Za-z0-9{_BEYOND}])?")


def _uri_form(extra: str, private: str) -> re.Pattern[str]:
    plain = rf"[A-Za-z0-9._~!$&'()*+,;={extra}-]|%[0-9A-Fa-f]{{2}}"
    return re.compile(
        r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?"
        rf"(?://(?:(?:{plain}|:)*@)?(?P<host>\[[^\]/?#]*\]|(?:{plain})*)(?::[0-9]*)?(?=[/?#]|\Z))?"
        rf"(?P<path>(?:{plain}|[:@/])*)"
        rf"(?:\?(?:{plain}|[:@/?{private}])*)?(?:#(?:{plain}|[:@/?])*)?"
    )


_URI: Final = _uri_form("", "")


@functools.cache
def _iri() -> re.Pattern[str]:
    return _uri_form(
        "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U000efffd", "\ue000-\uf8ff\U000f0000-\U0010fffd"
    )


def _is_date(text: str) -> bool:
    found = _DATE.fullmatch(text)
    if found is None:
        return False
    try:
        dt.date(*map(int, found.groups()))
    except ValueError:
        # The year 0000 is a date of RFC 3339 that Python's calendar does not have; it was a leap year.
        return found[1] == "0000" and _is_date(f"2000{text[4:]}")
    return True


def _is_time(text: str) -> bool:
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    if found[3] != "60":
        return True
    # A leap second is inserted at the end of a day of UTC.
    offset = int(found[5]) * 60 + int(found[6]) if found[4] else 0
    minute = int(found[1]) * 60 + int(found[2]) - (offset if found[4] != "-" else -offset)
    return minute % _MINUTES_A_DAY == _MINUTES_A_DAY - 1


def _is_date_time(text: str) -> bool:
    return text[10:11] in ("T", "t") and _is_date(text[:10]) and _is_time(text[11:])


def _is_ipv4(text: str) -> bool:
    return _IPV4.fullmatch(text) is not None


def _is_ipv6(text: str) -> bool:
    if "%" in text or not text.isascii():
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_hostname(text: str, label: re.Pattern[str] = _LABEL) -> bool:
    return 0 < len(text) <= _MAX_HOSTNAME and all(map(label.fullmatch, text.split(".")))


def _is_mailbox(text: str, local: re.Pattern[str], label: re.Pattern[str]) -> bool:
    name, _, domain = text.rpartition("@")
    if domain.startswith("["):
        literal = domain[1:-1] if domain.endswith("]") else ""
        is_domain = _is_ipv6(literal[5:]) if literal[:5].lower() == "ipv6:" else _is_ipv4(literal)
    else:
        is_domain = _is_hostname(domain, label)
    return is_domain and local.fullmatch(name) is not None


def _is_uri(text: str, form: re.Pattern[str], *, is_reference: bool) -> bool:
    found = form.fullmatch(text)
    if found is None:
        return False
    if found["scheme"] is None and (not is_reference or ":" in found["path"].split("/")[0]):
        # A relative path whose first part has a colon would read as a scheme (RFC 3986 section 4.2).
        return is_reference and found["host"] is not None
    host = found["host"]
    if host is None:
        return not found["path"].startswith("//")
    return not host.startswith("[") or _is_ipv6(host[1:-1]) or host[1:2] in ("v", "V")


FORMATS: Final[MappingProxyType[str, Callable[[str], bool]]] = MappingProxyType(
    {
        "date": _is_date,
        "date-time": _is_date_time,
        "time": _is_time,
        "duration": lambda text: _DURATION.fullmatch(text) is not None,
        "email": lambda text: _is_mailbox(text, _LOCAL, _LABEL),
        "idn-email": lambda text: _is_mailbox(text, _idn_local(), _idn_label()),
        "hostname": _is_hostname,
        "ipv4": _is_ipv4,
        "ipv6": _is_ipv6,
        "uri": lambda text: _is_uri(text, _URI, is_reference=False),
        "uri-reference": lambda text: _is_uri(text, _URI, is_reference=True),
        "iri": lambda text: _is_uri(text, _iri(), is_reference=False),
        "iri-reference": lambda text: _is_uri(text, _iri(), is_reference=True),
        "uuid": lambda text: _UUID.fullmatch(text) is not None,
        "json-pointer": lambda text: _POINTER.fullmatch(text) is not None,
        "relative-json-pointer": lambda text: _RELATIVE_POINTER.fullmatch(text) is not None,
    }
)
"""Checks by format name: True for a right value. Other formats are annotations."""
