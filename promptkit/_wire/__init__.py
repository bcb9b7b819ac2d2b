"""The chat-completions format: a request to its JSON body, an answer to a response or the fitting error.

Guarantees: pure – no I/O, no threads, no clock; nothing given is changed; and whatever the bytes, `decode` raises
nothing but a `PromptKitError`, whose message shows no credential.

From the bottom: `_hints` (how long to wait), `_exchange` (what may be shown), `_facts` (what an error body says),
`_failure` (what it means), `_content` (text, thoughts, usage), `_stream` (an event stream put together), `_answer`
(an answer by meaning), and beside them `_request` (what is sent).
"""

from promptkit._wire._answer import check_response, decode
from promptkit._wire._exchange import redact
from promptkit._wire._hints import retry_hint
from promptkit._wire._request import encode, encode_bytes, target_url

__all__ = ["check_response", "decode", "encode", "encode_bytes", "redact", "retry_hint", "target_url"]
