"""The tokenizer, slow and simple: the rules as one regular expression, merging by search.

Written from the specification. It needs the module `regex` (Debian: python3-regex), whose tables are
of Unicode 15.0.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

import regex

# The rules as tiktoken is given them, but for the notation of "without Han".
UPPER = r"[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]--\p{Han}]"
LOWER = r"[[\p{Ll}\p{Lm}\p{Lo}\p{M}]--\p{Han}]"
# White space is White_Space alone; \s of this module takes U+001C to U+001F as well.
WHITE = r"\p{White_Space}"
CONTRACTION = r"(?:'(?:[sS\u017f]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD]))?"
RULES = (
    r"\p{Han}+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}",
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}",
    r"\p{N}{1,3}",
    rf" ?[^{WHITE}\p{{L}}\p{{N}}]+[\r\n]*",
    rf"{WHITE}*[\r\n]+",
    rf"{WHITE}+(?![^{WHITE}])",
    rf"{WHITE}+",
)
PATTERN = regex.compile("|".join(RULES), regex.V1)


def split(data: bytes) -> list[bytes]:
    """The pieces. A byte that is not part of well-formed UTF-8 is a lone surrogate to the rules:
    neither letter, mark, number nor white space."""
    text = data.decode("utf-8", "surrogateescape")
    pieces = [match.group() for match in PATTERN.finditer(text)]
    assert "".join(pieces) == text
    return [piece.encode("utf-8", "surrogateescape") for piece in pieces]


def merge(piece: bytes, ranks: dict[bytes, int]) -> list[int]:
    if piece in ranks:
        return [ranks[piece]]
    parts = [piece[i : i + 1] for i in range(len(piece))]
    while True:
        pairs = [(ranks.get(a + b), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))]
        known = [(rank, i) for rank, i in pairs if rank is not None]
        if not known:
            return [ranks[part] for part in parts]
        _, i = min(known)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def encode(data: bytes, ranks: dict[bytes, int]) -> list[int]:
    return [rank for piece in split(data) for rank in merge(piece, ranks)]


def read_ranks(path: Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(word): int(rank) for word, rank in lines}


def write_ranks(tokens: Iterable[bytes], path: Path) -> None:
    lines = (f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens))
    path.write_text("".join(lines))
