"""The chat format, slow and simple: a prompt as segments, each tokenized on its own.

Written from the specification. Messages and options are those of the official encoder.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tokenizer_reference import encode

Segments = list[tuple[str, str]]  # ("marker" | "text" | "mixed", content)

EFFORT = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the "
    "response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort={}`."
)
TOOLS = "# Tools\nHere are the available tools, described in JSONSchema."
NEW_TOOLS = (
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools."
)
CHOICES = {
    "required": "`tool_choice=required`.\nYou MUST call tools in the next message.",
    "none": "`tool_choice=none`.\nYou MUST NOT call any tools in the next message.",
}
RAW_JSON = (
    "The system is invoked with `response_format={}`.\nYour response must be raw JSON data without "
    "markdown code blocks (```json) or any additional formatting."
)
TYPES = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null",
         dict: "object", list: "array"}


def compact(value: Any, sort: bool) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort)


def start(tag: str, **attributes: str) -> Segments:
    segments = [("marker", "<|open|>"), ("text", tag)]
    for key, value in attributes.items():
        escaped = value.replace("&", "&amp;").replace('"', "&quot;")
        segments += [("text", f" {key}"), ("text", '="'), ("text", escaped), ("text", '"')]
    return [*segments, ("marker", "<|sep|>")]


def end(tag: str) -> Segments:
    return [("marker", "<|close|>"), ("text", tag), ("marker", "<|sep|>")]


def whole(content: Segments, **attributes: str) -> Segments:
    return [*start("message", **attributes), *content, *end("message"), ("marker", "<|end_of_msg|>")]


def system(kind: str, text: str) -> Segments:
    return whole([("text", text.strip())], role="system", type=kind)


def declaration(heading: str, tools: list[Any]) -> Segments:
    return system("tool-declare", f"{heading}\n\n```json\n{compact(tools, True)}\n```")


def content(message: dict[str, Any], images: list[str]) -> Segments:
    value = message.get("content") or ""
    if isinstance(value, str):
        return [("text", value)]
    return [("text", part["text"]) if part["type"] == "text" else ("mixed", images.pop(0))
            for part in value]


def call(number: int, function: dict[str, Any]) -> Segments:
    arguments = function["arguments"]
    segments = start("call", tool=function["name"], index=str(number))
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        return [*segments, *start("json", type="object"), ("text", arguments), *end("json"), *end("call")]
    for key, value in parsed.items():
        text = value if isinstance(value, str) else compact(value, False)
        segments += [*start("argument", key=key, type=TYPES[type(value)]), ("text", text),
                     *end("argument")]
    return [*segments, *end("call")]


def assistant(message: dict[str, Any], thinking: bool, images: list[str]) -> Segments:
    segments: Segments = []
    if thinking:
        segments += [*start("think"), ("text", message.get("reasoning_content") or ""), *end("think")]
    segments += [*start("response"), *content(message, images), *end("response")]
    calls = message.get("tool_calls") or []
    if calls:
        segments += start("tools")
        for number, entry in enumerate(calls, 1):
            segments += call(number, entry["function"])
        segments += end("tools")
    return whole(segments, role="assistant")


def conversation(messages: list[dict[str, Any]], thinking: bool, images: list[str]) -> Segments:
    segments: Segments = []
    calls: list[dict[str, Any]] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if message["role"] == "tool":
            results = [message]
            while place < len(messages) and messages[place]["role"] == "tool":
                results.append(messages[place])
                place += 1
            order = [entry["id"] for entry in calls]
            for result in sorted(results, key=lambda one: order.index(one["tool_call_id"])):
                index = order.index(result["tool_call_id"])
                segments += whole(content(result, images), role="tool",
                                  tool=calls[index]["function"]["name"], index=str(index + 1))
        elif message["role"] == "assistant":
            calls = message.get("tool_calls") or []
            segments += assistant(message, thinking, images)
        elif message.get("tools"):
            segments += declaration(NEW_TOOLS, message["tools"])
        else:
            names = {"name": message["name"]} if message.get("name") else {}
            segments += whole(content(message, images), role=message["role"], **names)
    return segments


def render(messages: list[dict[str, Any]], options: dict[str, Any]) -> Segments:
    thinking = options.get("thinking", True)
    segments: Segments = []
    if options.get("tools"):
        segments += declaration(TOOLS, options["tools"])
    if thinking:
        segments += system("thinking-effort", EFFORT.format(options.get("thinking_effort", "max")))
    segments += conversation(messages, thinking, list(options.get("image_prompts", ())))
    if options.get("tool_choice", "auto") != "auto":
        segments += system("tool-choice", "The system is invoked with " + CHOICES[options["tool_choice"]])
    chosen = options.get("response_format", {"type": "text"})
    if chosen["type"] != "text":
        body = RAW_JSON.format(chosen["type"])
        if chosen["type"] == "json_schema":
            schema = compact(chosen["json_schema"]["schema"], True)
            body += f"\nThe JSON data must match the following schema:\n```json\n{schema}\n```"
        segments += system("response-format", body)
    if options.get("add_generation_prompt", True):
        segments += [*start("message", role="assistant"), *start("think" if thinking else "response")]
    return segments


def text_of(segments: Segments) -> str:
    return "".join(text for _, text in segments)


def ids_of(segments: Segments, ranks: dict[bytes, int], specials: dict[str, int]) -> list[int]:
    names = re.compile("|".join(re.escape(name) for name in sorted(specials, key=len, reverse=True)))
    ids: list[int] = []
    for kind, text in segments:
        if kind == "text":
            ids += encode(text.encode(), ranks)
            continue
        place = 0
        for found in names.finditer(text):
            ids += [*encode(text[place : found.start()].encode(), ranks), specials[found.group()]]
            place = found.end()
        ids += encode(text[place:].encode(), ranks)
    return ids


def special_ids(config: dict[str, Any], first: int) -> dict[str, int]:
    names = {f"<|reserved_token_{first + i}|>": first + i for i in range(256)}
    for number, entry in config["added_tokens_decoder"].items():
        names.pop(f"<|reserved_token_{number}|>")
        names[entry["content"]] = int(number)
    return names
