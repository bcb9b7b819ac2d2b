"""The built-in model client: one chat-completions call over HTTP for each attempt.

Guarantees: one `OpenAIClient.generate` is one request – no retry, no redirect – and ends by the attempt's
``timeout_s``, by the token's deadline or by its cancellation, whichever comes first; no error shows the
credential. One client serves any number of threads and any number of servers; it keeps no state but its
connections.

With ``PROMPTKIT_OFFLINE`` set to ``1`` in the environment nothing is sent at all: see `is_offline`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from attrs import evolve

from promptkit._cancel import CancelToken
from promptkit._clock import SYSTEM_CLOCK, Clock
from promptkit._transport import Transport
from promptkit._types import GenerateRequest, GenerateResponse
from promptkit._wire import decode, encode_bytes, redact, target_url
from promptkit.errors import CredentialError, GenerationError, TransportError

MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
"""The largest answer that is read by default, in bytes, as it travels and unpacked."""

# ------------------------------------------------------------------------------------------------ being offline

_OFFLINE_BLOCKS: Final[set[object]] = set()
"""One object for each `offline` block under way; adding to a set and taking from it are single steps."""
_TRUE: Final = frozenset({"1", "true", "yes", "on"})


def is_offline() -> bool:
    """True while nothing may be sent: in an `offline` block, or when ``PROMPTKIT_OFFLINE`` is 1 (true, yes, on).

    The environment is asked at each call, so that a test may change it.
    """
    return bool(_OFFLINE_BLOCKS) or os.environ.get("PROMPTKIT_OFFLINE", "").strip().lower() in _TRUE


@contextmanager
def offline() -> Iterator[None]:
    """Keep every built-in client of this process from sending while the block runs; blocks may nest and overlap."""
    block = object()
    _OFFLINE_BLOCKS.add(block)
    try:
        yield
    finally:
        _OFFLINE_BLOCKS.discard(block)


# ------------------------------------------------------------------------------------------------------ headers

_HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json"}

_KEY: Final = re.compile(r"[\x21-\x7e\xa1-\xff]+")
_FAULTS: Final = (
    (re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]"), "has a line break in it"),
    (re.compile(r"\s"), "has a space in it"),
    (re.compile(r"[\x00-\x1f\x7f-\x9f]"), "has a control character in it"),
)
_QUOTES: Final = ("'", '"')
_SCHEME: Final = re.compile(r"bearer\s", re.IGNORECASE)


def bearer(credential: str, variable: str | None) -> str:
    """Return the ``Authorization`` value for ``credential``, without the white space around it.

    Raises `CredentialError` for one that no header can carry; it names ``variable`` and the kind of the
    offending character, and shows nothing of the credential.
    """
    key = credential.strip()
    is_quoted = key[:1] in _QUOTES and key.endswith(key[0])
    if _KEY.fullmatch(key) and not is_quoted:
        return f"Bearer {key}"
    if not key:
        fault = "is blank"
    elif is_quoted:
        fault = "has quotes around it: give the key alone"
    elif _SCHEME.match(key):
        fault = "begins with the word Bearer: give the key alone"
    else:
        fault = next(
            (words for pattern, words in _FAULTS if pattern.search(key)),
            "has a character outside Latin-1 in it (a typographic quote or dash, perhaps)",
        )
    raise CredentialError(f"the credential from {variable or 'the api_key of the Backend'} {fault}", variable=variable)


def build_headers(request: GenerateRequest) -> dict[str, str]:
    """Return the headers of one call: ours, the credential, and the author's own over both.

    The author's replace ours of the same name in any case, ``Authorization`` too: who writes one wants it
    sent, and a credential beside it is then left out. Raises `CredentialError` as `bearer` does, and what
    the credential's function raises; names and values that cannot be sent are refused by the transport.
    """
    headers = dict(_HEADERS)
    given = request.headers
    if not given:
        if request.credential is not None:
            headers["Authorization"] = bearer(request.credential.reveal(), request.credential_variable)
        return headers
    names = {name.lower() for name in given}
    if request.credential is not None and "authorization" not in names:
        headers["Authorization"] = bearer(request.credential.reveal(), request.credential_variable)
    return {**{name: value for name, value in headers.items() if name.lower() not in names}, **given}


# ------------------------------------------------------------------------------------------------------- client


class OpenAIClient:
    """An `LLMClient` for servers that speak OpenAI's chat completions.

    ``pool_size`` is the number of idle connections kept for each server: as many as calls run at once.
    ``proxies`` and ``ca_bundle`` replace what the environment says (`ConfigError` when they cannot work);
    ``max_response_bytes`` bounds an answer. Connections are opened as they are needed. Safe for any number of
    threads.
    """

    def __init__(
        self,
        *,
        pool_size: int = 64,
        proxies: Mapping[str, str] | None = None,
        ca_bundle: str | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._transport = Transport(pool_size=pool_size, proxies=proxies, ca_bundle=ca_bundle)
        self._max_response_bytes = max_response_bytes
        self._clock = clock

    def generate(self, request: GenerateRequest, cancel: CancelToken) -> GenerateResponse:
        """Send one attempt and return what the server answered.

        Blocks until the answer is there, the attempt's ``timeout_s`` is over (`TransportTimeoutError`), or
        ``cancel`` is (`RunCancelledError`, `DeadlineExceededError`). Raises `TransportError` when the exchange
        failed, the fitting kind of `ProviderError`, `ContentFilteredError` or `MalformedResponseError` for an
        answer that is none, and `ConfigError`, `CredentialError` or `InvalidRequestError`, before anything
        is sent, for a request that cannot be.
        """
        if request.credential is not None:
            # A function that gives the credential is called once an attempt, and not again for an error's text.
            credential = request.credential.resolved()
            if credential is not request.credential:
                request = evolve(request, credential=credential)
        url = target_url(request.endpoint)
        headers = build_headers(request)
        body = encode_bytes(request)
        try:
            if is_offline():
                raise TransportError(
                    "offline: nothing was sent, since PROMPTKIT_OFFLINE is set or a test forbids it", phase="connect"
                )
            answer = self._transport.post(
                url,
                body=body,
                headers=headers,
                timeout_s=request.timeout_s,
                cancel=cancel,
                max_bytes=self._max_response_bytes,
                use_proxy=request.proxy != "none",
            )
        except GenerationError as error:
            error.backend = request.backend_id
            error.model = request.model
            redact(error, request)
            raise
        return decode(answer.status, answer.headers, answer.body, request=request, url=url, now=self._clock.wall())

    def close(self) -> None:
        """Close the idle connections. Calls under way finish; closing again does nothing."""
        self._transport.close()
