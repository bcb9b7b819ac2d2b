"""What the environment says about the way to a server: its proxies, and the authorities to trust.

Read once, when an engine is built, by the rules of requests: ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and
``NO_PROXY`` in either case (lower case wins), ``REQUESTS_CA_BUNDLE``, ``CURL_CA_BUNDLE``, and after them
``SSL_CERT_FILE``, which OpenSSL's other users read. A loopback address is proxied like any other unless
``NO_PROXY`` leaves it out.

Guarantees: whatever is wrong is a `ConfigError` that names the setting and never shows a proxy's password.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from attrs import field, frozen

from promptkit._fields import describe
from promptkit.errors import ConfigError

_DEFAULT_PORTS: Final = {
    "http": 80,
    "https": 443,
    "socks4": 1080,
    "socks4a": 1080,
    "socks5": 1080,
    "socks5h": 1080,
}
_CA_VARIABLES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


@frozen
class Proxy:
    """One proxy: its address, with a password if it has one, and ``host:port`` to show."""

    url: str = field(repr=False)
    scheme: str
    label: str

    @property
    def is_socks(self) -> bool:
        """True for a proxy that carries bytes and knows no HTTP."""
        return self.scheme.startswith("socks")

    @classmethod
    def parse(cls, value: object, setting: str) -> Self:
        """Check a proxy's address; without a scheme it is an HTTP proxy."""
        if not isinstance(value, str):
            raise ConfigError(
                f"{setting} must be a proxy's address, as in http://proxy.example:3128, not {describe(value)}"
            )
        url = value.strip()
        url = url if "://" in url else f"http://{url}"
        problem = ConfigError(f"{setting} is not a proxy's address; write it as in http://proxy.example:3128")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise problem from None  # the original quotes the address, password included
        scheme = parts.scheme.lower()
        if not parts.hostname or any(character.isspace() for character in url):
            raise problem
        if scheme not in _DEFAULT_PORTS:
            raise ConfigError(f"{setting} has the scheme {scheme!r}; known are {', '.join(sorted(_DEFAULT_PORTS))}")
        if scheme.startswith("socks") and importlib.util.find_spec("socks") is None:
            raise ConfigError(
                f"{setting} names a socks proxy ({scheme}), which needs the PySocks package: "
                'pip install "promptkit[socks]"'
            )
        return cls(url, scheme, label(parts.hostname, port or _DEFAULT_PORTS[scheme]))


def label(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Proxies:
    """Which proxy leads to which server. Immutable; reads the environment when it is made, and never again."""

    __slots__ = ("_by_key", "_exceptions")

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        """Take ``given``, or the environment when it is None.

        Keys are ``http``, ``https`` and ``all`` for the scheme of the server's address, ``scheme://host`` for
        one host, and ``no`` for the exceptions, comma-separated as in ``NO_PROXY``.
        """
        checked: object = given
        if checked is not None and not isinstance(checked, Mapping):
            raise ConfigError(f"proxies must be a mapping of schemes to addresses, not {describe(checked)}")
        settings = _environment() if given is None else dict(given)
        self._exceptions = _exceptions(settings.pop("no", "") or settings.pop("no_proxy", ""))
        self._by_key: dict[str, Proxy] = {}
        for key, value in settings.items():
            scheme = key.partition("://")[0].lower()
            if scheme not in {"http", "https", "all"}:
                if given is None:
                    continue  # ftp_proxy, rsync_proxy …: none of ours
                raise ConfigError(f"proxies has the key {key!r}; known are http, https, all, no and scheme://host")
            if value:
                setting = f"{key.upper()}_PROXY" if given is None else f"proxies[{key!r}]"
                self._by_key[key.lower()] = Proxy.parse(value, setting)

    def select(self, scheme: str, host: str, port: int) -> Proxy | None:
        """Return the proxy for a server, or None when it is reached directly."""
        if not self._by_key or self._is_exception(host, port):
            return None
        for key in (f"{scheme}://{host}", scheme, f"all://{host}", "all"):
            if key in self._by_key:
                return self._by_key[key]
        return None

    def _is_exception(self, host: str, port: int) -> bool:
        address = _address(host)
        for network, name in self._exceptions:
            if network is not None and address is not None:
                if address in network:
                    return True
            elif name == "*" or any(place == name or place.endswith(f".{name}") for place in (host, f"{host}:{port}")):
                return True
        return False


def _environment() -> dict[str, str]:
    """Return the environment's proxies by scheme, the exceptions as ``no``, as the standard library reads them."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}
    from urllib.request import getproxies_environment  # noqa: PLC0415 – a client of its own, and rarely needed

    return getproxies_environment()


_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _exceptions(text: str) -> tuple[tuple[_Network | None, str], ...]:
    """Return the entries of ``NO_PROXY``: a network where an entry is an address or a range, and its name."""
    entries: list[tuple[_Network | None, str]] = []
    for entry in text.replace(" ", "").lower().split(","):
        name = entry.lstrip(".").removeprefix("*.")
        if not name:
            continue
        try:
            entries.append((ipaddress.ip_network(name.strip("[]"), strict=False), name))
        except ValueError:
            entries.append((None, name))
    return tuple(entries)


def trusted_authorities(given: str | os.PathLike[str] | None) -> tuple[str | None, str]:
    """Return the file or folder of trusted authorities, None for the usual ones, and the setting it comes from.

    ``given`` wins over the environment. A path that does not exist is a `ConfigError`.
    """
    setting = "ca_bundle"
    if given is None:
        setting = next((name for name in _CA_VARIABLES if os.environ.get(name)), "")
        if not setting:
            return None, ""
        given = os.environ[setting]
    path = Path(given).expanduser()
    if not path.exists():
        raise ConfigError(
            f"{setting} names {str(path)!r}, which does not exist; it must be a PEM file or a folder of them"
        )
    return str(path), setting
