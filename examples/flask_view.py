"""A view that a visitor waits for: it answers in time, whatever the model server does.

Beside a model server on port 8080::

    flask --app "examples.flask_view:create_app()" run

and then ``curl -F receipt=@examples/data/01-corner-cafe.txt http://127.0.0.1:5000/receipts``.
"""

from __future__ import annotations

from pathlib import Path

from flask import Flask, jsonify, request
from flask.typing import ResponseReturnValue

from promptkit import Backend, Engine, LLMClient
from promptkit.errors import (
    CapacityExceededError,
    DeadlineExceededError,
    GenerationError,
    InvalidRequestError,
    OutputValidationError,
    QueueTimeoutError,
)

HERE = Path(__file__).parent
ANSWER_WITHIN_S = 25.0
START_WITHIN_S = 2.0
RETRY_AFTER_S = 5


def create_app(client: LLMClient | None = None) -> Flask:
    """Return the application. One engine serves every thread of the process; ``client`` is for tests."""
    engine = Engine(
        prompts=HERE / "prompts",
        profiles=HERE / "profiles",
        schemas=HERE / "schemas",
        backends=[Backend("local", endpoint="http://127.0.0.1:8080/v1", concurrency_limit=2, queue_capacity=8)],
        client=client,
    )
    app = Flask(__name__)

    @app.post("/receipts")
    def receipts() -> ResponseReturnValue:
        sent = request.files.get("receipt")
        if sent is None:
            return jsonify(error="send the receipt as a file called receipt"), 400
        try:
            text = sent.read().decode("utf-8")
            result = engine.run(
                "receipt/extract", inputs={"receipt": text}, timeout=ANSWER_WITHIN_S, queue_timeout=START_WITHIN_S
            )
        except UnicodeDecodeError:
            return jsonify(error="the receipt is no UTF-8 text"), 400
        except InvalidRequestError as error:  # too long, for example; its text never shows what was sent
            return jsonify(error=str(error)), 400
        except (CapacityExceededError, QueueTimeoutError):  # nothing was sent: coming again is worth it
            return jsonify(error="busy"), 503, {"Retry-After": str(RETRY_AFTER_S)}
        except DeadlineExceededError:
            return jsonify(error="no answer in time"), 504
        except OutputValidationError:
            return jsonify(error="this receipt could not be read"), 422
        except GenerationError:
            app.logger.exception("the model server failed")
            return jsonify(error="no answer"), 502
        return jsonify(result.data)

    return app
