"""Addresses of schemas: how a reference is resolved against the place that it stands in.

Guarantees: pure; what RFC 3986 section 5 says, with one difference: a path that climbs above the schema root is
refused instead of being cut.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from promptkit._loading._dialects import DIALECTS

ROOT: Final = "promptkit-root:/"
"""Base address of what stands under the schema root."""

_PARTS: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(\?[^#]*)?(?:#(.*))?", re.DOTALL)


class ReferenceFaultError(ValueError):
    """A reference leads nowhere, or somewhere it may not lead; ``str()`` says where and what would be right."""


def pointer_of(path: tuple[str, ...]) -> str:
    """Return a path as a JSON Pointer (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def split(uri: str) -> tuple[str, str]:
    """Return an address without its fragment, and the fragment with its percent signs read."""
    head, _, fragment = uri.partition("#")
    return head, unquote(fragment)


def resolve(base: str, reference: str) -> str:
    """Return where ``reference`` leads from ``base``. Raises `ReferenceFaultError` above the root."""
    scheme, authority, path, query, fragment = _parts(reference)
    base_scheme, base_authority, base_path, base_query, _ = _parts(base)
    if scheme is None:
        scheme = base_scheme
        if authority is None:
            authority = base_authority
            if not path:
                path, query = base_path, base_query if query is None else query
            elif not path.startswith("/"):
                folder = base_path[: base_path.rfind("/") + 1] or ("/" if base_authority is not None else "")
                path = folder + path
    if scheme is not None and (path.startswith("/") or authority is not None):
        path = _without_dots(path, reference, is_root=f"{scheme}:/" == ROOT and authority is None)
    return "".join(
        (
            f"{scheme}:" if scheme is not None else "",
            f"//{authority}" if authority is not None else "",
            path,
            query or "",
            f"#{fragment}" if fragment else "",
        )
    )


def _parts(uri: str) -> tuple[str | None, str | None, str, str | None, str | None]:
    found = _PARTS.fullmatch(uri)
    if found is None:  # pragma: no cover - the expression matches every text
        raise ReferenceFaultError(f"{uri[:80]!r} is no URI reference")
    scheme, authority, path, query, fragment = found.groups()
    return scheme, authority, path, query, fragment


def _without_dots(path: str, reference: str, *, is_root: bool) -> str:
    kept: list[str] = []
    parts = path.split("/")
    for index, part in enumerate(parts):
        plain = unquote(part) if is_root else part
        if plain not in (".", ".."):
            kept.append(part)
            continue
        if plain == "..":
            if len(kept) > 1:
                kept.pop()
            elif is_root:
                raise ReferenceFaultError(f"the reference {reference[:120]} leads outside the schema root")
        if index == len(parts) - 1:
            kept.append("")
    return "/".join(kept)


def refuse_address(uri: str) -> ReferenceFaultError:
    """Return the error for an address that is not under the schema root."""
    uri = uri.removeprefix(ROOT[:-1])
    for dialect in DIALECTS:
        if uri == dialect.uri or uri.startswith(dialect.uri.rpartition("/")[0] + "/meta/"):
            return ReferenceFaultError(
                f"the reference resolves to {uri[:200]}, the meta-schema of {dialect}, which is not available"
            )
    return ReferenceFaultError(
        f"the reference resolves to {uri[:200]}: remote references are never followed; refer to a part of the same "
        "document (#/$defs/name) or to a file under the schema root by its relative path, and leave out an $id "
        "that makes a relative path remote"
    )
