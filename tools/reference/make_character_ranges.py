#!/usr/bin/python3
"""Writes src/text/character_ranges.cpp, the classes of characters that the tokenizer's rules know.

    make_character_ranges.py [--unicode DIRECTORY]            write
    make_character_ranges.py --check [--unicode DIRECTORY]    compare, write nothing

The source is Debian's package unicode-data (bookworm: Unicode 15.0.0): UnicodeData.txt, Scripts.txt
and PropList.txt of /usr/share/unicode. The engines that define the tokens are newer: tiktoken is
built with tables of Unicode 16.0, which adds characters and changes none. ADDED holds what 15.1 and
16.0 add to these classes; everything else that they add counts like an unassigned character.
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

OUTPUT = Path(__file__).resolve().parents[2] / "src" / "text" / "character_ranges.cpp"
CODE_POINTS = 0x110000

# Letters, marks and numbers of Unicode 15.1 and 16.0 (DerivedAge.txt), by general category. Lo
# stands for Lo and Lm, Mn for all marks, Nd for all numbers: the rules do not tell them apart.
ADDED = """
    0897 Mn  1C89 Lu  1C8A Ll  A7CB..A7CC Lu  A7CD Ll  A7DA Lu  A7DB Ll  A7DC Lu
    105C0..105F3 Lo  10D40..10D49 Nd  10D4A..10D4F Lo  10D50..10D65 Lu  10D69..10D6D Mn
    10D6F Lo  10D70..10D85 Ll  10EC2..10EC4 Lo  10EFC Mn  11380..11389 Lo  1138B Lo  1138E Lo
    11390..113B5 Lo  113B7 Lo  113B8..113C0 Mn  113C2 Mn  113C5 Mn  113C7..113CA Mn
    113CC..113D0 Mn  113D1 Lo  113D2 Mn  113D3 Lo  113E1..113E2 Mn  116D0..116E3 Nd
    11BC0..11BE0 Lo  11BF0..11BF9 Nd  11F5A Mn  13460..143FA Lo  16100..1611D Lo
    1611E..1612F Mn  16130..16139 Nd  16D40..16D6C Lo  16D70..16D79 Nd  18CFF Lo
    1CCF0..1CCF9 Nd  1E5D0..1E5ED Lo  1E5EE..1E5EF Mn  1E5F0 Lo  1E5F1..1E5FA Nd
    2EBF0..2EE5D Lo
"""
ADDED_HAN = "2EBF0..2EE5D"

HEADER = """\
// Made by tools/reference/make_character_ranges.py; not written by hand.
// Unicode {version} of Debian's unicode-data, with the letters, marks and numbers that 16.0 adds.
// Over 400 lines because it is one table.

#include "text/character_ranges.h"

#include <array>

namespace k3::text {{
namespace {{

// Letters of the comments: the general categories. A Han character carries no upper or lower.
constexpr std::uint8_t kU = kLetter | kUpper;           // Lu Lt
constexpr std::uint8_t kL = kLetter | kLower;           // Ll
constexpr std::uint8_t kB = kLetter | kUpper | kLower;  // Lm Lo
constexpr std::uint8_t kM = kUpper | kLower;            // marks
constexpr std::uint8_t kN = kNumber;
constexpr std::uint8_t kO = 0;  // symbols, punctuation, controls, unassigned
constexpr std::uint8_t kW = kWhite;
constexpr std::uint8_t kR = kWhite | kNewline;  // CR LF
constexpr std::uint8_t kH = kHan;               // radicals, marks
constexpr std::uint8_t kI = kHan | kLetter;     // ideographs
constexpr std::uint8_t kD = kHan | kNumber;

// clang-format off
constexpr auto kRanges = std::to_array<CharacterRange>({{
"""

FOOTER = """\
}});
// clang-format on

}}  // namespace

std::span<const CharacterRange> character_ranges() noexcept {{
  return kRanges;
}}

}}  // namespace k3::text
"""


def span(text: str) -> range:
    """The code points of "0041" or "0041..005A"."""
    first, _, last = text.partition("..")
    return range(int(first, 16), int(last or first, 16) + 1)


def added_ranges() -> list[tuple[range, str]]:
    words = ADDED.split()
    return [(span(where), category) for where, category in zip(words[::2], words[1::2])]


@functools.cache
def added_since_15_0() -> frozenset[int]:
    return frozenset(point for where, _ in added_ranges() for point in where)


def read_categories(directory: Path) -> list[str]:
    categories = ["Cn"] * CODE_POINTS
    first = 0
    for line in (directory / "UnicodeData.txt").read_text().splitlines():
        code, name, category, *_ = line.split(";")
        if name.endswith(", First>"):
            first = int(code, 16)
            continue
        begin = first if name.endswith(", Last>") else int(code, 16)
        for point in range(begin, int(code, 16) + 1):
            categories[point] = category
    for where, category in added_ranges():
        for point in where:
            # A newer package has them already, perhaps as Lm, Mc or Nl.
            if categories[point] == "Cn":
                categories[point] = category
    return categories


def read_property(path: Path, value: str) -> set[int]:
    points: set[int] = set()
    for line in path.read_text().splitlines():
        where, _, found = line.partition("#")[0].partition(";")
        if found.strip() == value:
            points.update(span(where.strip()))
    return points


def name_of_class(point: int, category: str, han: bool, white: bool) -> str:
    """The constant of HEADER."""
    if white:
        return "kR" if point in (0x0A, 0x0D) else "kW"
    if han:
        return {"L": "kI", "N": "kD"}.get(category[0], "kH")
    if category[0] in "MN":
        return "k" + category[0]
    return {"Lu": "kU", "Lt": "kU", "Ll": "kL", "Lm": "kB", "Lo": "kB"}.get(category, "kO")


def starts_of_classes(directory: Path) -> list[tuple[int, str]]:
    """Where a class begins that differs from that of the code point before."""
    categories = read_categories(directory)
    han = read_property(directory / "Scripts.txt", "Han") | set(span(ADDED_HAN))
    white = read_property(directory / "PropList.txt", "White_Space")
    starts: list[tuple[int, str]] = []
    for point, category in enumerate(categories):
        name = name_of_class(point, category, point in han, point in white)
        if not starts or starts[-1][1] != name:
            starts.append((point, name))
    return starts


def source(directory: Path) -> str:
    version = (directory / "PropList.txt").read_text().split("-", 1)[1].split(".txt")[0]
    lines = [""]
    for first, name in starts_of_classes(directory):
        entry = f"{{0x{first:X}, {name}}},"
        if len(lines[-1]) + len(entry) >= 100:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + entry
    return HEADER.format(version=version) + "\n".join(lines) + "\n" + FOOTER.format()


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes src/text/character_ranges.cpp.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--unicode", type=Path, default=Path("/usr/share/unicode"))
    arguments = parser.parse_args()
    made = source(arguments.unicode)
    if not arguments.check:
        OUTPUT.write_text(made)
    elif OUTPUT.read_text() != made:
        print(f"{OUTPUT.name} differs from what this script makes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
