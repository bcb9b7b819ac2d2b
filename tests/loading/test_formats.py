"""The formats that are checked: right and wrong texts of each, from the standards that define them."""

from __future__ import annotations

import pytest

from promptkit._loading._formats import FORMATS

RIGHT = {
    "date": ["2024-02-29", "0000-02-29", "9999-12-31"],
    "date-time": ["2024-02-29T23:59:59Z", "1990-12-31t15:59:60-08:00", "2020-01-01T00:00:00.123456789+00:00"],
    "time": ["00:00:00Z", "23:59:60Z", "01:29:60+01:30", "22:59:60-01:00", "08:30:06.283185z"],
    "duration": ["P1D", "P4Y2M3D", "PT1H30M", "P2W", "PT0S", "P1Y", "P1DT12H"],
    "email": ["a@b", "a.b+c@example.org", '"a b"@example.org', "a@[127.0.0.1]", "a@[IPv6:::1]", '"a\\"b"@c.de'],
    "idn-email": ["δοκιμή@example.org", "실례@실례.테스트", "a@b"],
    "hostname": ["example.org", "a", "a-b.c0", "x" * 63],
    "ipv4": ["0.0.0.0", "255.255.255.255"],
    "ipv6": ["::", "::1", "1::d6:192.168.0.1", "2001:db8::ff00:42:8329"],
    "uri": [
        "http://a.b/c?d#e",
        "urn:isbn:0",
        "mailto:a@b",
        "http://[::1]:80/",
        "file:///etc/x",
        "a:",
        "http://u:p@h:8/%41",
    ],
    "uri-reference": ["/a", "a/b:c", "?q", "#f", "", "//h/p", "../x"],
    "iri": ["http://ƒøø.ßår/?∂éœ=πîx#πîüx"],
    "iri-reference": ["/â", "â"],
    "uuid": ["2EB8AA08-AA98-11EA-B4AA-73B441D16380", "00000000-0000-0000-0000-000000000000"],
    "json-pointer": ["", "/a~0b~1c/0", "/"],
    "relative-json-pointer": ["0", "1/a", "0#", "120/~1"],
}
WRONG = {
    "date": [
        "2023-02-29",
        "2024-13-01",
        "2024-1-01",
        "24-01-01",
        "2024-02-30",
        "0000-02-30",
        "2024-02-2\u0669",
        " 2024-01-01",
    ],
    "date-time": ["2024-02-29 23:59:59Z", "2024-02-29T23:59:59", "2024-02-29T24:00:00Z", "2023-02-29T00:00:00Z", ""],
    "time": ["12:00:00", "12:00Z", "23:59:61Z", "22:59:60Z", "12:60:00Z", "12:00:00+24:00", "12:00:00.Z", "12:00:00 Z"],
    "duration": ["P", "PT", "P1D2H", "1D", "P1W1D", "PT1D", "P1H", "P1YT", "P-1D", "p1d", "P1S"],
    "email": ["a", "@b", "a@", "a..b@c", ".a@b", "a b@c", "a@b_c", "a@[127.0.0.256]", "a@[::1]", "a@-b", '"a"b"@c'],
    "idn-email": ["δ", "δ@"],
    "hostname": ["", "-a", "a-", "a..b", "a_b", "x" * 64, "a" * 254, "a.", "é.org"],
    "ipv4": ["1.2.3", "256.0.0.1", "01.2.3.4", "1.2.3.4.5", "1.2.3.\u0664", "0x7f.0.0.1", "1.2.3.4 "],
    "ipv6": ["", ":::", "1::2::3", "12345::", "fe80::1%eth0", "1:2:3:4:5:6:7:8:9", "::\u0661"],
    "uri": [
        "a",
        "/a",
        "http:// a",
        "http://a/%zz",
        "http://[::1",
        "http://[x]/",
        "1a:b",
        ":a",
        "http://a\\b",
        "http://a:x/",
    ],
    "uri-reference": ["a b", "a\\b", "%", "a:b c", "#a#b", ":a"],
    "iri": ["ƒøø", "http://a b"],
    "iri-reference": ["\\â", "â â"],
    "uuid": ["2eb8aa08-aa98-11ea-b4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638g", "{}"],
    "json-pointer": ["a", "/~", "/~2", "#/a"],
    "relative-json-pointer": ["", "/a", "01/a", "-1", "1a", "0##"],
}


def test_every_format_is_tried() -> None:
    """No format is checked that is not in the tables here."""
    assert set(FORMATS) == set(RIGHT) == set(WRONG)


@pytest.mark.parametrize("name", FORMATS)
def test_right_texts(name: str) -> None:
    """What the standard allows is taken."""
    assert [text for text in RIGHT[name] if not FORMATS[name](text)] == []


@pytest.mark.parametrize("name", FORMATS)
def test_wrong_texts(name: str) -> None:
    """What it does not is refused."""
    assert [text for text in WRONG[name] if FORMATS[name](text)] == []


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("unit", ["a", "1", ".", "a.", "%41", ":", "1:", "-", '"', "\\", "é", "/", "@"])
def test_long_texts_take_no_time(name: str, unit: str) -> None:
    """A text of any length is judged at once: a check is linear in it."""
    for text in (unit * 50_000, "a@" + unit * 50_000, "http://" + unit * 50_000 + "\n"):
        assert FORMATS[name](text) in (True, False)
