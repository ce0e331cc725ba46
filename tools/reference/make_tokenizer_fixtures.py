#!/usr/bin/python3
"""Writes tests/fixtures/tokenizer, or compares it with what it would write.

    make_tokenizer_fixtures.py            write
    make_tokenizer_fixtures.py --check    make all of it again and compare

A vocabulary of the project's own (tiktoken.model, tokenizer_config.json): all bytes, a few tokens
that catch wrong encoders, and merges counted in LICENSE and SAMPLES. answers.json holds texts and
their ids by tokenizer_reference.py, chats.json chats and theirs by chat_reference.py. bytes/ is a
vocabulary of the 256 bytes alone: with its specials it has as many ids as the model `demo`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chat_reference
from make_character_ranges import added_since_15_0
from tokenizer_reference import encode, read_ranks, split, write_ranks

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "tokenizer"
RANKS = 768
SPECIALS = 256

# Not what counting finds, and told apart only by an encoder that is right:
# "qxzj" has no part that is a token: only the look-up of the whole piece finds it.
# "yzq" ranks before "yz": once "yz" or "zq" exists, "yzq" comes before other pairs.
ODD_TOKENS = (b"qxzj", b"yzq", b"yz", b"zq", b" qx", b"!!!!", b"   ", b"\xf0\x9f", b"\x80\x80")

SAMPLES = """
Hello world, hello World! Don't you think it's what they've said? I'm sure we'll see; he'd agree.
In 1984 there were 007 spies, 1234567890 numbers, and 3.14159 of them were round.
HTTP servers return JSON; camelCaseNames and snake_case_names live in C++ and Python code.
    if (value == nullptr) {\r\n        return 0;\r\n    }\r\n
Привет, мир! Как дела? Γειά σου Κόσμε. Þetta er íslenska. Œuvre naïve à côté, garçon. Straße, Übung.
你好世界,你好,世界!中文和English混在一起。日本語のテキスト、ひらがなとカタカナ。한국어 텍스트입니다.
مرحبا بالعالم ١٢٣ שלום עולם नमस्ते दुनिया १२३ สวัสดีชาวโลก
😀😀🚀👨\u200d👩\u200d👧\u200d👦 emoji ❤\ufe0f → ← ∑ ∞ €100 £5
"""

# One character, at least, of every kind that a rule can tell from another.
BORDERS = (
    "a s B S \u01c5 \u02b0 \u00aa \u3042 \u30a2 \ud55c \u4e2d \u3005 \u3007 \u2f00 \u302a \u0301 "
    "\u0903 \u20dd \U00016ff0 1 \u0663 \u2177 ! ' . \u017f \u200d \u00df \u0130 \U0001f600 \ufeff "
    "\x00 \x1c \x7f \U00020000 \U0010ffff \u0378"
).split(" ") + [" ", "\t", "\n", "\r", "\v", "\u0085", "\u00a0", "\u2028", "\u3000"]

CONTRACTIONS = "'s 'S '\u017f 't 'T 're 'Re 'rE 've 'VE 'm 'M 'll 'lL 'd 'D 'x ''s 'r 'v 'l '".split()

# Not UTF-8, or hardly.
BROKEN = (
    b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xc2a", b"\xe0\x9f\xbf", b"\xe0\xa0",
    b"\xe4\xbd", b"\xe4\xbd\xa0\xe4\xbd", b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf",
    b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80", b"\xf0\x9f\x98", b"\xf4\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xfe", b"\xff\xff", b"a\xe4b", b"\xe4\xbda",
    b" \xffa", b"a'\xc5s", b"a'\xc5\xbf", b"1\xff2", b"\xe4\xb8\xad\xff\xe4\xb8\xad", b"\xff\r\n\xff",
    b" \xff", b"  \xff", b"A\xcc", b"A\xcc\x81\xcc",
)

SENTENCES = (
    "", "Hello world", " leading", "trailing ", "two  spaces", "a\tb", "a\t\tb", "dos\r\nline\r\n\r\n",
    "   \n\n\t\r\n   ", "\r\r\n\n\r", "x   \r\ny", "  \u3000 x", "qxzj", " qxzj", "xyzq", "yzq", "yzyzq",
    "!!!!!!!", "      a", "<|end_of_msg|>", "<|open|>message<|sep|>", "[EOS]", "\ufeffBOM", "a\x00b\x00",
    "don't DON'T we've WE'VE a's's 's", "\u017f's", "12345 1234 \u0661\u0662\u0663\u0664 \u2177\u2177",
    "\u4e2dEnglish\u6587 abc\u4e2d\u6587def A\u4e2dB \u4e2d's \u3005\u4e2d\u3007 1\u3007\u4e2d",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \ud55c\uad6d\uc5b4", "e\u0301\u0301 \u0301ABC \u0301",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f \U0001f1e9\U0001f1ea", "ABCabcABC AbC \u01c5\u01c5a",
    "aaaaaaaaaaaaaaaaaaaaaaaa", "\u4f60" * 9, "ab" * 12, "x = y;\r\n\r\n\tz();",
)


def byte_order() -> list[int]:
    """Printable bytes first, so that a rank is not the value of its byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return printable + [byte for byte in range(256) if byte not in printable]


def train(data: bytes) -> list[bytes]:
    tokens = [bytes([byte]) for byte in byte_order()] + list(ODD_TOKENS)
    words = Counter(tuple(piece[i : i + 1] for i in range(len(piece))) for piece in split(data))
    known = set(tokens)
    while len(tokens) < RANKS:
        pairs: Counter[tuple[bytes, bytes]] = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        joined = best[0] + best[1]
        if joined not in known:
            known.add(joined)
            tokens.append(joined)
        merged: Counter[tuple[bytes, ...]] = Counter()
        for word, count in words.items():
            merged[join(word, best)] += count
        words = merged
    return tokens


def join(word: tuple[bytes, ...], pair: tuple[bytes, bytes]) -> tuple[bytes, ...]:
    parts: list[bytes] = []
    for part in word:
        if parts and (parts[-1], part) == pair:
            parts[-1] += part
        else:
            parts.append(part)
    return tuple(parts)


def config(ranks: int) -> dict[str, Any]:
    names = {0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>",
             SPECIALS - 2: "[UNK]", SPECIALS - 1: "[PAD]"}
    added = {str(ranks + i): {"content": name, "special": i not in (3, 4, 5)} for i, name in names.items()}
    return {"added_tokens_decoder": added, "bos_token": "[BOS]", "eos_token": "[EOS]",
            "tokenizer_class": "TikTokenTokenizer"}


def texts() -> Iterator[bytes]:
    """Every text once; in groups that answers.json does not show."""
    draw = random.Random(20250101)
    for sentence in SENTENCES:
        yield sentence.encode()
    yield SAMPLES.encode()
    yield from BROKEN
    for first in BORDERS:
        for second in BORDERS:
            yield f"x{first}{second} {second}{first}".encode()
    for contraction in CONTRACTIONS:
        yield " ".join(f"{head}{contraction}{tail}" for head in ("a", "AB", "\u4e2d", "1", "\u0301")
                       for tail in ("", "z", "Z", "9")).encode()
    for first in (*range(0, 0x34000, 0x80), 0xE0000, 0xE0100, 0xF0000, 0x10FF80):
        points = [first + draw.randrange(0x80) for _ in range(2)]
        # The reference knows Unicode 15.0 only.
        if not 0xD800 <= first < 0xE000 and not added_since_15_0().intersection(points):
            yield "a".join(map(chr, points)).encode()
    for _ in range(1500):
        yield "".join(draw.choices(BORDERS, k=draw.randint(3, 12))).encode()
    for _ in range(200):
        yield bytes(draw.choices((0x61, 0x20, 0xC3, 0xA9, 0xE4, 0xBD, 0xA0, 0xF0, 0x9F, 0x98, 0xFF), k=10))
    for _ in range(100):
        yield bytes(draw.choices(b"qxzjyYa '", k=12))


TOOL = {"type": "function", "function": {
    "name": "find", "description": "Größe \"x\"\n<|sep|>",
    "parameters": {"type": "object", "required": ["b", "a"], "properties": {
        "b": {"type": "number", "minimum": -1.50, "maximum": 1e22, "multipleOf": 0.00001},
        "a": {"type": "string", "enum": ["é", "\u0001", "a/b"], "default": None},
        "B": {"default": [True, 12345678901234567890, 1e16, 100000.0, -0.0, {}, []]}}}}}
MARKERS = "<|open|>message role=\"system\"<|sep|>x<|close|>message<|sep|><|end_of_msg|>[EOS]"
CALLS = [
    {"id": "one", "type": "function", "function": {"name": "find", "arguments":
     "{\"z\": \"<|close|>\", \"a\": {\"y\": 1, \"x\": [1.0, \"\u00e9\"]}, \"z2\": null, \"t\": true, \"n\": 1e3}"}},
    {"id": "two", "type": "function", "function": {"name": "a\"&quot;<|sep|>", "arguments": {}}},
    {"id": "three", "type": "function", "function": {"name": "find", "arguments": "[1]"}},
    {"id": "four", "type": "function", "function": {"name": "find", "arguments": "{\"a\": 1,"}},
]
HELLO = [{"role": "user", "content": "Hello world"}]
TURNS = [
    {"role": "system", "content": "Be brief.\n"}, *HELLO,
    {"role": "assistant", "reasoning_content": " Hm.", "content": "Hello!"},
    {"role": "user", "content": " 你好 "}, {"role": "assistant", "content": "ok"},
    {"role": "user", "content": "", "name": "A&B \"<|end_of_msg|>\""},
]

# (name, messages, options): what each of them is for stands in tests/fixtures/README.md.
CHATS: tuple[tuple[str, list[dict[str, Any]], dict[str, Any]], ...] = (
    ("effort_max", HELLO, {}),
    ("effort_low", HELLO, {"thinking_effort": "low"}),
    ("effort_high", HELLO, {"thinking_effort": "high"}),
    ("thinking_off", HELLO, {"thinking": False}),
    ("no_prefix", HELLO, {"add_generation_prompt": False}),
    ("nothing", [], {"thinking": False}),
    ("turns", TURNS, {}),
    ("turns_thinking_off", TURNS, {"thinking": False}),
    ("markers_everywhere", [
        {"role": "system", "content": MARKERS}, {"role": "user", "content": MARKERS, "name": MARKERS},
        {"role": "assistant", "content": MARKERS, "reasoning_content": MARKERS, "tool_calls": [
            {"id": MARKERS, "function": {"name": MARKERS, "arguments": {MARKERS: MARKERS}}}]},
        {"role": "tool", "tool_call_id": MARKERS, "content": MARKERS}, *HELLO], {}),
    ("tools", HELLO, {"tools": [TOOL]}),
    ("tools_required", HELLO, {"tools": [TOOL], "tool_choice": "required"}),
    ("tools_none", HELLO, {"tools": [TOOL], "tool_choice": "none", "thinking": False}),
    ("calls_and_results", [
        *HELLO, {"role": "assistant", "content": "wait", "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "three", "content": "3"},
        {"role": "tool", "tool_call_id": "one", "content": "<|sep|>1"},
        {"role": "tool", "tool_call_id": "two", "content": [{"type": "text", "text": "2"}]},
        {"role": "assistant", "content": "done"}, *HELLO], {"tools": [TOOL]}),
    ("further_tools", [*HELLO, {"role": "system", "tools": [TOOL]}, *HELLO], {}),
    ("json_object", HELLO, {"response_format": {"type": "json_object"}}),
    ("json_schema", HELLO, {"thinking": False, "tool_choice": "none", "response_format": {
        "type": "json_schema", "json_schema": {"name": "n", "schema": {"b": 1, "a": {"d": [], "c": {}}}}}}),
    ("images", [{"role": "user", "content": [
        {"type": "text", "text": "two "}, {"type": "image_url", "image_url": {"url": "u"}},
        {"type": "text", "text": "<|open|>"}, {"type": "text", "text": " parts"},
        {"type": "image_url", "image_url": {"url": "v"}}]}],
     {"image_prompts": ["<|open|>image 4x4<|reserved_token_800|>", "[PAD]"]}),
)


def chats(ranks: dict[bytes, int], specials: dict[str, int]) -> list[str]:
    lines = []
    for name, messages, options in CHATS:
        segments = chat_reference.render(messages, options)
        lines.append(json.dumps({"name": name, "messages": messages, "options": options,
                                 "text": chat_reference.text_of(segments),
                                 "ids": chat_reference.ids_of(segments, ranks, specials)},
                                ensure_ascii=False, separators=(",", ":")))
    return lines


def shown(data: bytes) -> str | list[int]:
    """Text as JSON can hold it: a string, or the bytes of what is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


def write_all(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    write_ranks(train((ROOT / "LICENSE").read_bytes() + SAMPLES.encode()), directory / "tiktoken.model")
    (directory / "tokenizer_config.json").write_text(json.dumps(config(RANKS), indent=1) + "\n")
    ranks = read_ranks(directory / "tiktoken.model")
    cases = [json.dumps([shown(text), encode(text, ranks)], separators=(",", ":"))
             for text in dict.fromkeys(texts())]
    (directory / "answers.json").write_text("[\n" + ",\n".join(cases) + "\n]\n")
    specials = chat_reference.special_ids(config(RANKS), RANKS)
    (directory / "chats.json").write_text("[\n" + ",\n".join(chats(ranks, specials)) + "\n]\n")
    (directory / "bytes").mkdir(exist_ok=True)
    write_ranks([bytes([byte]) for byte in byte_order()], directory / "bytes" / "tiktoken.model")
    (directory / "bytes" / "tokenizer_config.json").write_text(json.dumps(config(256), indent=1) + "\n")


def files_below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes or checks tests/fixtures/tokenizer.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    if not parser.parse_args().check:
        write_all(FIXTURES)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch)
        write_all(made)
        names = sorted(files_below(made) | files_below(FIXTURES))
        wrong = [name for name in names
                 if not ((made / name).is_file() and (FIXTURES / name).is_file()
                         and (made / name).read_bytes() == (FIXTURES / name).read_bytes())]
    for name in wrong:
        print(f"{name} differs from what this script makes", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
