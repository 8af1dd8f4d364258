"""Gemini's generateContent from the server's side."""

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.models.scripted_wire import (
    CHARS_PER_TOKEN,
    Asked,
    data_event,
    output_tokens,
    signature,
    steps_of,
)
from orchestrator.models.stories import Say

_STATUS = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 529: "UNAVAILABLE"}


class GeminiWire:
    """generateContent and streamGenerateContent."""

    def read(self, request: Mapping[str, Any], size: int) -> Asked:
        """See `Wire.read`. Clients may leave out the ids of calls; then answers are counted."""
        contents = request["contents"]
        answers = [_calls(content) for content in contents if content.get("role") == "model"]
        # What a client puts into the model's mouth before the task is no step of a story.
        while answers and not answers[0]:
            answers.pop(0)
        steps = steps_of([[call.get("id") or "" for call in calls] for calls in answers])
        declared = [
            declaration
            for tool in request.get("tools") or ()
            for declaration in tool.get("functionDeclarations") or ()
        ]
        return Asked(
            user_text="\n".join(
                part["text"]
                for content in contents
                if content.get("role", "user") == "user"
                for part in content["parts"]
                if "text" in part
            ),
            step=steps[-1] + 1 if steps else 0,
            tools=tuple(
                {
                    "name": one["name"],
                    "parameters": one.get("parametersJsonSchema") or one.get("parameters") or {},
                }
                for one in declared
            ),
            prompt_tokens=size // CHARS_PER_TOKEN,
            fresh_tokens=len(json.dumps(contents[-1]["parts"])) // CHARS_PER_TOKEN,
            carried_reasoning=(),
        )

    def reasoning(self, say: Say, step: int) -> Any:
        """See `Wire.reasoning`. The thought itself need not come back: its signature rides on
        the first call, and clients differ in what they keep.
        """
        del step
        if not say.reasoning:
            return []
        return [{"text": say.reasoning, "thought": True}]

    def message(self, say: Say, asked: Asked, request: Mapping[str, Any]) -> dict[str, Any]:
        """See `Wire.message`."""
        parts: list[dict[str, Any]] = list(self.reasoning(say, asked.step))
        if say.text:
            parts.append({"text": say.text})
        for number, (name, arguments) in enumerate(say.calls):
            call = {"id": f"call_s{asked.step}_{number}", "name": name, "args": _args(arguments)}
            part: dict[str, Any] = {"functionCall": call}
            if number == 0:
                part["thoughtSignature"] = signature(say, asked.step)
            parts.append(part)
        return {
            "candidates": [
                {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
            ],
            "usageMetadata": _usage(say, asked),
            "modelVersion": request["model"],
            "responseId": f"resp_s{asked.step}",
        }

    def stream(self, message: Mapping[str, Any]) -> list[bytes]:
        """See `Wire.stream`."""
        candidate = message["candidates"][0]
        frame = {key: message[key] for key in ("modelVersion", "responseId")}
        events = [
            {**frame, "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]}
            for part in candidate["content"]["parts"]
        ]
        closing = {"index": 0, "content": {"role": "model", "parts": [{"text": ""}]}}
        closing["finishReason"] = candidate["finishReason"]
        events.append({**frame, "candidates": [closing], "usageMetadata": message["usageMetadata"]})
        return [data_event(event) for event in events]

    def error(self, status: int, text: str) -> dict[str, Any]:
        """See `Wire.error`."""
        code = 503 if status == 529 else status
        return {"error": {"code": code, "message": text, "status": _STATUS.get(status, "INTERNAL")}}


def _calls(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [part["functionCall"] for part in content["parts"] if "functionCall" in part]


def _args(arguments: str) -> Any:
    """The protocol has no broken arguments: they become an object that says so."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {"invalid_json": arguments}


def _usage(say: Say, asked: Asked) -> dict[str, Any]:
    output, thought = output_tokens(say)
    cached = max(0, asked.prompt_tokens - asked.fresh_tokens) if asked.step else 0
    return {
        "promptTokenCount": asked.prompt_tokens,
        "cachedContentTokenCount": cached,
        "candidatesTokenCount": output - thought,
        "thoughtsTokenCount": thought,
        "totalTokenCount": asked.prompt_tokens + output,
    }
