"""Text of a request and of its streamed answer in the OpenAI and Triton forms that GenAI-Perf records."""

from __future__ import annotations

__all__ = ["request_text", "response_text"]

import json
from typing import Any

_DONE = "[DONE]"


def request_text(inputs: Any) -> str | None:
    """Return the prompt of `request_inputs`; None when its form is not known."""
    if not isinstance(inputs, dict):
        return None
    if isinstance(inputs.get("text_input"), str):
        return str(inputs["text_input"])
    payload = _json(inputs.get("payload"))
    if not isinstance(payload, dict):
        return None
    if isinstance(payload.get("prompt"), str):
        return str(payload["prompt"])
    messages = payload.get("messages")
    if not isinstance(messages, list):
        return None
    return " ".join(_content(message) for message in messages)


def response_text(outputs: Any) -> str | None:
    """Return the answer of `response_outputs`, chunks joined; None when a form is not known."""
    if not isinstance(outputs, list):
        return None
    parts = [_output_text(output) for output in outputs]
    return None if any(part is None for part in parts) else "".join(part or "" for part in parts)


def _output_text(output: Any) -> str | None:
    if not isinstance(output, dict):
        return None
    if isinstance(output.get("text_output"), str):
        return str(output["text_output"])
    response = output.get("response")
    if not isinstance(response, str):
        return None
    text = ""
    for event in response.split("\n\n"):
        body = event.strip().removeprefix("data:").strip()
        if not body or body == _DONE:
            continue
        chunk = _json(body)
        if not isinstance(chunk, dict):
            return None
        text += _choice_text(chunk)
    return text


def _choice_text(chunk: dict[str, Any]) -> str:
    choices = chunk.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    if not isinstance(first, dict):
        return ""
    for holder in (first.get("delta"), first.get("message"), first):
        if isinstance(holder, dict):
            text = holder.get("content", holder.get("text"))
            if isinstance(text, str):
                return text
    return ""


def _content(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _json(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return None
