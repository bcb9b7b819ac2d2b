"""What is sent, and where to; the field cases by id."""

from __future__ import annotations

import pytest

from promptkit._types import Image, Message
from promptkit._wire import encode, target_url
from promptkit.errors import ConfigError, InvalidRequestError
from support.wire import make_request


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("https://h/v1", "https://h/v1/chat/completions"),
        ("https://h/v1/", "https://h/v1/chat/completions"),
        ("https://h/v1///", "https://h/v1/chat/completions"),
        ("https://h", "https://h/chat/completions"),
        ("https://h/", "https://h/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        ("https://h/v1/chat/completions/", "https://h/v1/chat/completions"),
        ("https://h/api/paas/v4", "https://h/api/paas/v4/chat/completions"),
        (
            "https://h/openai/deployments/d?api-version=2024-10-21",
            "https://h/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
        (
            "https://h/openai/deployments/d/chat/completions?api-version=2024-10-21",
            "https://h/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
        (" https://h/v1 ", "https://h/v1/chat/completions"),
        ("https://h/v1\r\n", "https://h/v1/chat/completions"),
        ("HTTP://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1/chat/completions"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1/chat/completions"),
        ("https://h/modèle?q=é", "https://h/mod%C3%A8le/chat/completions?q=%C3%A9"),
        ("https://h/a%20b", "https://h/a%20b/chat/completions"),
        ("https://h/models?api-version=1&max_tokens=2", "https://h/models/chat/completions?api-version=1&max_tokens=2"),
    ],
)
def test_w71_the_address_is_normalised_and_nothing_is_invented(endpoint: str, url: str) -> None:
    """Slashes, spaces, queries and pasted full addresses end in the one address that is meant."""
    assert target_url(endpoint) == url


@pytest.mark.parametrize(
    ("endpoint", "word"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("h/v1", "http://"),
        ("localhost:8080/v1", "http://"),
        ("ftp://h/v1", "http://"),
        ("https:///v1", "host"),
        ("https://h:99999/v1", "URL"),
        ("https://[::1/v1", "URL"),
        ("https://h h/v1", "white space"),
        ("https://h/v1\n/x", "white space"),
        ("https://user:pass@h/v1", "user name"),
        ("https://h/v1#docs", "fragment"),
        ("https://h/v1#", "fragment"),
        ("https://bücher.example/v1", "ASCII"),
        ("https://{host}/v1", "placeholder"),
        ("${SERVER}/v1", "placeholder"),
        ("https://h/v1/completions", "ends in /completions, the address of another call"),
        ("https://h/v1/responses/", "another call"),
        ("https://h/api/chat", "another call"),
    ],
)
def test_w71_an_address_that_cannot_be_called_is_refused(endpoint: str, word: str) -> None:
    """The error says what is wrong, and shows neither a query nor a password."""
    with pytest.raises(ConfigError, match=word) as caught:
        target_url(endpoint)
    assert "pass" not in str(caught.value).replace("password", "")


def test_w75_what_is_not_set_is_not_sent() -> None:
    """Null differs from absent, so an option that was not given is not in the body."""
    assert encode(make_request()) == {
        "stream": False,
        "model": "m1",
        "messages": [{"role": "user", "content": "Say hi."}],
    }


def test_w25_streaming_is_turned_off_in_so_many_words() -> None:
    """Some servers stream unless they are told not to."""
    assert encode(make_request())["stream"] is False


def test_an_image_without_its_bytes_is_not_sent() -> None:
    """A message that was read back from a form without image bytes can be looked at, and no more."""
    image = Image(media_type="image/png", data=None, sha256="sha256:0")
    with pytest.raises(InvalidRequestError, match="without its bytes"):
        encode(make_request(messages=(Message("user", "see", images=(image,)),)))
