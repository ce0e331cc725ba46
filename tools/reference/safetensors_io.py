"""A small safetensors reader and writer with no dependency beyond numpy."""

from __future__ import annotations

import dataclasses
import json
import struct
from pathlib import Path
from typing import Iterable, Mapping, Sequence

import numpy as np

# Storage type of the data of each dtype. BF16 travels as its 16 bits.
_STORAGE = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "U8": np.dtype("u1"),
    "F8_E8M0": np.dtype("u1"),
    "BOOL": np.dtype("u1"),
}


@dataclasses.dataclass(frozen=True)
class RawTensor:
    """A tensor as it lies in the file."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def values(self) -> np.ndarray:
        """Exact values: BF16 widens to float32, all other types keep theirs."""
        stored = np.frombuffer(self.data, dtype=_STORAGE[self.dtype])
        if self.dtype == "BF16":
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        return stored.reshape(self.shape)


def encode(values: np.ndarray, dtype: str) -> RawTensor:
    """Rounds `values` to `dtype`, to nearest even."""
    if dtype == "BF16":
        stored = bf16_bits(values.astype(np.float32))
    else:
        stored = values.astype(_STORAGE[dtype])
    return RawTensor(dtype, tuple(values.shape), np.ascontiguousarray(stored).tobytes())


def bf16_bits(values: np.ndarray) -> np.ndarray:
    """float32 [...] -> uint16 [...], to nearest even. Not for NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


@dataclasses.dataclass(frozen=True)
class HeaderStyle:
    """Freedoms of the format that a reader has to bear with."""

    order: Sequence[str] | None = None  # order of the names in the header; None: as in the data
    pad_to: int = 8  # the data begins on a multiple of this ...
    skew: int = 0  # ... plus this
    escaped: frozenset[str] = frozenset()  # names written with \\u escapes
    metadata: Mapping[str, str] | None = None


def write_safetensors(
    path: Path,
    tensors: Mapping[str, RawTensor],  # data lies in this order
    style: HeaderStyle = HeaderStyle(),
) -> None:
    entries: dict[str, dict[str, object]] = {}
    begin = 0
    for name, tensor in tensors.items():
        end = begin + len(tensor.data)
        entries[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    header = _header_text(entries, style).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)))
        file.write(header)
        for tensor in tensors.values():
            file.write(tensor.data)


def _header_text(entries: Mapping[str, dict[str, object]], style: HeaderStyle) -> str:
    fields = []
    if style.metadata is not None:
        fields.append('"__metadata__":' + json.dumps(dict(style.metadata)))
    for name in style.order if style.order is not None else entries:
        body = json.dumps(entries[name], separators=(",", ":"))
        fields.append(f"{_json_name(name, name in style.escaped)}:{body}")
    text = "{" + ",".join(fields) + "}"
    return text + " " * ((style.skew - (8 + len(text))) % style.pad_to)


def _json_name(name: str, escaped: bool) -> str:
    """A JSON string; `escaped` spells every dot as \\u002e, which means the same."""
    quoted = json.dumps(name)
    return quoted.replace(".", "\\u002e") if escaped else quoted


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where a tensor lies in its file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int  # from the start of the file
    nbytes: int


def read_placements(path: Path) -> dict[str, Placement]:
    blob = path.read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", blob)
    base = 8 + header_bytes
    placements = {}
    for name, entry in json.loads(blob[8:base]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        size = int(np.prod(shape, dtype=np.int64)) * _STORAGE[entry["dtype"]].itemsize
        if end - begin != size or base + end > len(blob):
            raise ValueError(f"{path.name}: {name}: {end - begin} bytes for {size}")
        placements[name] = Placement(entry["dtype"], shape, base + begin, size)
    return placements


def read_safetensors(path: Path) -> dict[str, RawTensor]:
    blob = path.read_bytes()
    return {
        name: RawTensor(p.dtype, p.shape, blob[p.offset : p.offset + p.nbytes])
        for name, p in read_placements(path).items()
    }


def read_directory(directory: Path) -> dict[str, RawTensor]:
    """All tensors of all shards; a name that two shards hold is an error."""
    tensors: dict[str, RawTensor] = {}
    for path in sorted(directory.glob("*.safetensors")):
        shard = read_safetensors(path)
        double = tensors.keys() & shard.keys()
        if double:
            raise ValueError(f"{path.name}: stored twice: {sorted(double)[0]}")
        tensors.update(shard)
    return tensors


def read_values(path: Path, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    raw = read_safetensors(path)
    return {name: raw[name].values() for name in (raw if names is None else names)}
