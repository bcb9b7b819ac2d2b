"""One answer as far as errors tell of it, and what of a server's words may be shown.

Guarantees: what `clean` returns is one line, bounded, printable, and free of the credential and of anything
that looks like one. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

from attrs import define

from promptkit._fields import Json, is_secret_header, names_a_secret
from promptkit._types import GenerateRequest, Usage
from promptkit.errors import GenerationError, MalformedResponseError

_ErrorT = TypeVar("_ErrorT", bound=GenerationError)

MAX_WORDS: Final = 300
"""The longest text of a server that goes into a message, in characters."""

_KEY_LIKE: Final = re.compile(
    r"\b(?:sk|rk|pk)[-_][\w*.\-]{3,}|\b(?:gsk|hf)_[\w*]{4,}|\b(?:xai|nvapi|pplx)-[\w*\-]{4,}|\bAIza[\w*\-]{4,}"
    r"|\b(?:bearer|basic)\s+(?=[\w.~+/=*\-]*[\d*])[\w.~+/=*\-]{4,}|[\w.\-]{0,40}\*{3,}[\w.*\-]*",
    re.IGNORECASE,
)
_SCHEMES: Final = frozenset({"bearer", "basic", "token"})
_SHORTEST_SECRET: Final = 4
_PREFIX: Final = 8
_CUT: Final = r"(?:\.\.+|…|\*+)"


def _secrets(request: GenerateRequest) -> list[str]:
    """Return what must not be shown, longest first: the credential, and what headers and parameters for one hold."""
    found = {
        word
        for name, value in request.headers.items()
        if is_secret_header(name)
        for word in str(value).split()
        if word.lower() not in _SCHEMES
    }
    query = request.endpoint.partition("?")[2]
    found.update(value for name, value in parse_qsl(query) if names_a_secret(name))
    known = request.credential.known() if request.credential is not None else None
    if known is not None:
        found.add(known.strip())
    return sorted((secret for secret in found if len(secret) >= _SHORTEST_SECRET), key=len, reverse=True)


def clean(text: str, request: GenerateRequest, limit: int = MAX_WORDS) -> str:
    """Return ``text`` on one line, at most ``limit`` characters, with every credential replaced by ``***``.

    Servers like to echo a key in part: its beginning, or its ends with dots or stars between. These go too.
    """
    text = text[: 8 * limit]
    for secret in _secrets(request):
        start, end = re.escape(secret[:3]), re.escape(secret[-4:])
        text = text.replace(secret, "***")
        text = re.sub(rf"{start}[\w\-]{{0,40}}{_CUT}[\w*.…\-]*|[\w\-]{{0,40}}{_CUT}{end}", "***", text)
        if len(secret) >= 2 * _PREFIX:
            text = re.sub(re.escape(secret[:_PREFIX]) + r"[\w\-]*", "***", text)
    text = " ".join(_KEY_LIKE.sub("***", text).split())
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def redact(error: GenerationError, request: GenerateRequest) -> None:
    """Take every credential out of ``error``'s message, and drop causes that hold one: a traceback shows them.

    For errors of the exchange itself, which quote what a server sends in place of a status line or an address.
    """
    secrets = _secrets(request)
    message = str(error)
    if any(secret in message for secret in secrets):
        error.args = (clean(message, request, len(message)),)
    link = error.__cause__ or error.__context__
    while link is not None:
        if any(secret in str(link) or secret in repr(link) for secret in secrets):
            error.__cause__ = error.__context__ = None
            return
        link = link.__cause__ or link.__context__


def server_name(request: GenerateRequest) -> str:
    """Name the server in a message: its backend id, or the host of an endpoint without one."""
    if request.backend_id is not None:
        return f"backend {request.backend_id!r}"
    try:
        parts = urlsplit(request.endpoint.strip())
        host = f"{parts.hostname}:{parts.port}" if parts.port is not None else parts.hostname
    except ValueError:
        host = None
    return f"endpoint {host or '(unreadable)'!r}"


# ----------------------------------------------------------------------------------------- one answer


_ID_HEADERS: Final = frozenset({"x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "cf-ray"})
_LONGEST_NAME: Final = 100
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.:/@+\-]{1,100}")


@define
class Exchange:
    """One answer as far as an error has to tell of it."""

    request: GenerateRequest
    status: int
    headers: Mapping[str, str]
    url: str
    now: float

    @property
    def is_success(self) -> bool:
        """True for a 2xx status."""
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_redirect(self) -> bool:
        """True for a 3xx status."""
        return HTTPStatus.MULTIPLE_CHOICES <= self.status < HTTPStatus.BAD_REQUEST

    def header(self, name: str) -> str | None:
        """Return the header ``name`` (lower case), however the server spelt it."""
        return next((str(value) for key, value in self.headers.items() if key.lower() == name), None)

    def request_id(self, *bodies: Json) -> str | None:
        """Return the server's name for the call, from a header or else from one of ``bodies``."""
        for name in self.headers:
            if name.lower() in _ID_HEADERS and self.headers[name]:
                return self.name(str(self.headers[name]))
        for body in bodies:
            if isinstance(body, Mapping):
                stated = body.get("request_id") or body.get("id")
                if stated and isinstance(stated, str):
                    return self.name(stated)
        return None

    def name(self, value: str) -> str:
        """Clean a name; one that is plainly just a name (the rule, on every call) needs no more than a look."""
        if _PLAIN_NAME.fullmatch(value):
            known = self.request.credential.known() if self.request.credential is not None else None
            if (known is None or known.strip()[:_PREFIX] not in value) and not _KEY_LIKE.search(value):
                return value
        return clean(value, self.request, _LONGEST_NAME)

    def content_type(self) -> str:
        """Return the media type the server stated, cleaned; "no content type" when it stated none."""
        stated = (self.header("content-type") or "").partition(";")[0]
        return clean(stated, self.request, 60).lower() or "no content type"


def complete(
    error: _ErrorT, request: GenerateRequest, *, usage: Usage | None = None, text: str | None = None
) -> _ErrorT:
    """Note on ``error`` which attempt it ended, and return it."""
    error.backend = request.backend_id
    error.model = request.model
    error.phase = "answer"
    error.attempt_usage = usage
    error.text = text
    return error


def malformed(
    request: GenerateRequest,
    what: str,
    *,
    is_retryable: bool,
    status: int | None = None,
    usage: Usage | None = None,
    text: str | None = None,
) -> MalformedResponseError:
    """Return the error for an answer that is no usable chat completion; ``what`` is wrong with it."""
    answered = f" answered {status}" if status is not None else ""
    message = f"{server_name(request)}{answered}{model_note(request)}: {what}"
    return complete(MalformedResponseError(message, is_retryable=is_retryable), request, usage=usage, text=text)


def model_note(request: GenerateRequest) -> str:
    """Return the model in brackets with a space before it, or nothing when none was named."""
    return f" (model {request.model!r})" if request.model is not None else ""
