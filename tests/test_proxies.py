"""What the environment says: which proxy for which server, which authorities, and what is wrong with either."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from promptkit._proxies import Proxies, Proxy, trusted_authorities
from promptkit.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY", "REQUEST_METHOD")
CA_NAMES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, *CA_NAMES):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def label(proxies: Proxies, scheme: str = "http", host: str = "api.example", port: int = 80) -> str | None:
    """Return the proxy chosen for a server, as errors show it."""
    proxy = proxies.select(scheme, host, port)
    return proxy and proxy.label


def test_without_settings_there_is_no_proxy() -> None:
    """A plain environment means direct connections."""
    assert label(Proxies()) is None


def test_each_scheme_has_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP_PROXY and HTTPS_PROXY go by the scheme of the server's address."""
    monkeypatch.setenv("HTTP_PROXY", "http://plain:3128")
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:3128")
    proxies = Proxies()
    assert label(proxies, "http") == "plain:3128"
    assert label(proxies, "https") == "secure:3128"


def test_all_proxy_is_for_what_has_none_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """ALL_PROXY comes last."""
    monkeypatch.setenv("ALL_PROXY", "http://all:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://plain:3128")
    assert label(Proxies(), "http") == "plain:3128"
    assert label(Proxies(), "https") == "all:3128"


def test_lower_case_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with curl and requests."""
    monkeypatch.setenv("HTTP_PROXY", "http://upper:1")
    monkeypatch.setenv("http_proxy", "http://lower:1")
    assert label(Proxies()) == "lower:1"


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes later changes nothing."""
    proxies = Proxies()
    monkeypatch.setenv("HTTP_PROXY", "http://late:1")
    assert label(proxies) is None


def test_other_proxy_variables_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy for FTP that could not be used here is none of our business."""
    monkeypatch.setenv("FTP_PROXY", "gopher://nonsense")
    assert label(Proxies()) is None


@pytest.mark.parametrize(
    ("exceptions", "host", "is_direct"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("localhost,127.0.0.1", "localhost", True),
        ("localhost", "127.0.0.1", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.1.2.3/8", "10.9.9.9", True),
        ("::1", "::1", True),
        ("[::1]", "::1", True),
        ("fd00::/8", "fd12::1", True),
        ("example.com", "example.com", True),
        ("example.com", "api.example.com", True),
        (".example.com", "api.example.com", True),
        ("*.example.com", "api.example.com", True),
        ("example.com", "badexample.com", False),
        ("example.com:8080", "example.com", True),
        ("example.com:9090", "example.com", False),
        ("api.example.com", "example.com", False),
        ("EXAMPLE.com", "example.com", True),
        (" example.com , other ", "other", True),
        ("*", "example.com", True),
        ("a,*", "127.0.0.1", True),
        ("", "example.com", False),
        (",,", "example.com", False),
        ("10.0.0.0/8", "example.com", False),
        ("256.1.1.1", "256.1.1.1", True),
    ],
)
def test_exceptions(exceptions: str, host: str, *, is_direct: bool) -> None:
    """NO_PROXY takes names with what is below them, addresses, ranges, ports, and a star for everything."""
    proxies = Proxies({"all": "http://proxy:3128", "no": exceptions})
    assert (label(proxies, host=host, port=8080) is None) == is_direct


def test_a_loopback_address_is_proxied_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with requests: only NO_PROXY leaves it out."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    assert label(Proxies(), host="127.0.0.1") == "proxy:3128"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert label(Proxies(), host="127.0.0.1") is None


def test_given_proxies_replace_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty mapping means none at all."""
    monkeypatch.setenv("HTTP_PROXY", "http://environment:1")
    assert label(Proxies({})) is None
    assert label(Proxies({"http": "given:1"})) == "given:1"
    assert label(Proxies({"http": ""})) is None


def test_a_proxy_for_one_host() -> None:
    """The more exact key wins."""
    proxies = Proxies({"https://api.example": "http://one:1", "all://other": "http://two:2", "https": "http://three:3"})
    assert label(proxies, "https") == "one:1"
    assert label(proxies, "https", "other") == "three:3"
    assert label(proxies, "http", "other") == "two:2"
    assert label(proxies, "http") is None


def test_no_proxy_may_be_given_by_its_full_name() -> None:
    """``no_proxy`` means the same as ``no``."""
    assert label(Proxies({"all": "p:1", "no_proxy": "api.example"})) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("proxy:3128", "proxy:3128"),
        ("http://proxy", "proxy:80"),
        ("https://proxy", "proxy:443"),
        ("HTTP://Proxy:1/", "proxy:1"),
        (" http://proxy:1 ", "proxy:1"),
        ("http://user:secret@proxy:3128", "proxy:3128"),
        ("http://[::1]:3128", "[::1]:3128"),
        ("socks5h://proxy", "proxy:1080"),
    ],
)
def test_addresses_of_proxies(value: str, shown: str) -> None:
    """Scheme and port may be left out; user and password are never shown."""
    proxy = Proxy.parse(value, "HTTP_PROXY")
    assert proxy.label == shown
    assert "secret" not in repr(proxy)


@pytest.mark.parametrize(
    "value",
    [
        "http://",
        "http://user:secret@",
        "http://user:secret@h:port",
        "http://user:secret@h:99999",
        "http://[secret",
        "http://secret @h:1",
        "http://h h",
        5,
        None,
    ],
)
def test_what_is_no_proxy_is_refused_without_its_password(value: object) -> None:
    """The setting is named, and what would be right; the value is not shown."""
    with pytest.raises(ConfigError, match=r"HTTP_PROXY .*http://proxy\.example:3128") as caught:
        Proxy.parse(value, "HTTP_PROXY")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_unknown_scheme_is_refused() -> None:
    """The known ones are listed."""
    with pytest.raises(ConfigError, match="scheme 'gopher'; known are http, https, socks4"):
        Proxy.parse("gopher://h", "ALL_PROXY")


def test_an_unknown_key_is_refused() -> None:
    """A typing error in the engine's own setting is found."""
    with pytest.raises(ConfigError, match="'htpp'; known are http, https, all, no"):
        Proxies({"htpp": "proxy:1"})


@pytest.mark.parametrize("scheme", ["socks4", "socks4a", "socks5", "socks5h", "SOCKS5"])
def test_c25_a_socks_proxy_needs_its_extra(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C25: without PySocks it is a matter of configuration, found at once, with the cure."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("ALL_PROXY", f"{scheme}://127.0.0.1:1080")
    with pytest.raises(ConfigError, match=r'ALL_PROXY names a socks proxy .*pip install "promptkit\[socks\]"'):
        Proxies()


def test_the_usual_authorities_need_no_setting() -> None:
    """Nothing given, nothing in the environment."""
    assert trusted_authorities(None) == (None, "")


@pytest.mark.parametrize("name", CA_NAMES)
def test_authorities_from_the_environment(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable is known."""
    monkeypatch.setenv(name, str(tmp_path))
    assert trusted_authorities(None) == (str(tmp_path), name)


def test_authorities_are_taken_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given wins, then requests' variable, then curl's."""
    for name in CA_NAMES:
        (tmp_path / name).touch()
        monkeypatch.setenv(name, str(tmp_path / name))
    given = tmp_path / "given"
    given.touch()
    assert trusted_authorities(given) == (str(given), "ca_bundle")
    assert trusted_authorities(None)[1] == "REQUESTS_CA_BUNDLE"
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "")
    assert trusted_authorities(None)[1] == "CURL_CA_BUNDLE"


@pytest.mark.parametrize("name", CA_NAMES)
def test_authorities_that_do_not_exist_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable and the path are named."""
    monkeypatch.setenv(name, "/nowhere/ca.pem")
    with pytest.raises(ConfigError, match=f"{name} names '/nowhere/ca.pem', which does not exist"):
        trusted_authorities(None)
