#!/usr/bin/python3
"""Tests of the slow tokenizer and the slow chat format, and of what is made for the fast one: the classes of characters and
the fixtures. Needs Debian's python3-regex and unicode-data."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

import regex

import chat_reference
import tokenizer_reference as reference
from make_character_ranges import OUTPUT, added_ranges, added_since_15_0

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[2] / "shared"

# The properties of the classes in character_ranges.cpp.
CLASSES = {"kU": "LU", "kL": "Ll", "kB": "LUl", "kM": "Ul", "kN": "N", "kW": "W", "kR": "WR",
           "kH": "H", "kI": "HL", "kD": "HN", "kO": ""}
PROPERTIES = {"L": r"\p{L}", "U": reference.UPPER, "l": reference.LOWER, "N": r"\p{N}",
              "W": reference.WHITE, "R": r"[\r\n]", "H": r"\p{Han}"}


def classes_of_code_points() -> list[str]:
    starts = [(int(first, 16), name)
              for first, name in re.findall(r"\{0x([0-9A-F]+), (k[A-Z])\}", OUTPUT.read_text())]
    ends = [first for first, _ in starts[1:]] + [0x110000]
    return [name for (first, name), end in zip(starts, ends) for _ in range(first, end)]


class Classes(unittest.TestCase):
    def test_the_table_says_what_regex_says(self) -> None:
        table = classes_of_code_points()
        self.assertEqual(len(table), 0x110000)
        points = [p for p in range(0x110000) if p not in added_since_15_0()]
        for name, pattern in PROPERTIES.items():
            accepts = regex.compile(pattern, regex.V1).match
            wrong = [f"U+{p:04X}" for p in points if bool(accepts(chr(p))) != (name in CLASSES[table[p]])]
            self.assertEqual(wrong[:10], [], name)

    def test_the_table_has_what_unicode_16_adds(self) -> None:
        table = classes_of_code_points()
        wanted = {"Lu": "kU", "Ll": "kL", "Lo": "kB", "Mn": "kM", "Nd": "kN"}
        for points, category in added_ranges():
            name = "kI" if points.start == 0x2EBF0 else wanted[category]
            self.assertEqual({table[p] for p in points}, {name}, f"U+{points.start:04X}")


class Reference(unittest.TestCase):
    def test_lowest_rank_first_and_leftmost_of_equals(self) -> None:
        ranks = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"aa": 5}
        self.assertEqual(reference.merge(b"abc", ranks), [0, 3])
        self.assertEqual(reference.merge(b"aaa", ranks), [5, 0])

    def test_goldens(self) -> None:
        goldens = SHARED / "peer" / "tokenizer" / "token_goldens.json"
        vocabulary = SHARED / "kimi-k3-tokenizer" / "tiktoken.model"
        if not goldens.exists() or not vocabulary.exists():
            self.skipTest("../shared is not here")
        ranks = reference.read_ranks(vocabulary)
        for case in json.loads(goldens.read_text())["plain"]:
            with self.subTest(text=case["text"]):
                self.assertEqual(reference.encode(case["text"].encode(), ranks), case["ids"])


class Chats(unittest.TestCase):
    def test_goldens(self) -> None:
        goldens = SHARED / "peer" / "tokenizer" / "chat_goldens.json"
        vocabulary = SHARED / "kimi-k3-tokenizer"
        if not goldens.exists() or not vocabulary.exists():
            self.skipTest("../shared is not here")
        ranks = reference.read_ranks(vocabulary / "tiktoken.model")
        config = json.loads((vocabulary / "tokenizer_config.json").read_text())
        specials = chat_reference.special_ids(config, len(ranks))
        cases = {name: case for name, case in json.loads(goldens.read_text()).items()
                 if not name.startswith("_")}
        self.assertEqual(len(cases), 21)
        for name, case in cases.items():
            with self.subTest(name=name):
                segments = chat_reference.render(case["messages"], case["options"])
                self.assertEqual(chat_reference.text_of(segments), case["text"])
                self.assertEqual(chat_reference.ids_of(segments, ranks, specials), case["ids"])


class Made(unittest.TestCase):
    def test_what_is_committed_can_be_made_again(self) -> None:
        for script in ("make_character_ranges.py", "make_tokenizer_fixtures.py"):
            with self.subTest(script=script):
                done = subprocess.run([sys.executable, HERE / script, "--check"], capture_output=True,
                                      text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
