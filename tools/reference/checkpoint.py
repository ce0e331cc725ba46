#!/usr/bin/python3
"""Makes small K3 checkpoints in the released layout, with weights that behave.

    checkpoint.py generate OUT --preset demo [--seed N] [--shards N] [--set hidden_size=152 ...]
    checkpoint.py pack-trunk CHECKPOINT OUT

Every tensor has its own random stream, seeded by the checkpoint's seed and the tensor's name. The
streams use integer arithmetic and correctly rounded operations only, so that the bytes are the
same on every machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, Iterator, Mapping

import numpy as np

from k3_config import K3Config, flat_document, nested_document
from safetensors_io import (
    HeaderStyle,
    Placement,
    RawTensor,
    encode,
    read_placements,
    write_safetensors,
)
from tensor_shapes import PREFIX, model_shapes, trunk_shapes

GROUP = 32  # elements per MXFP4 scale
TRUNK_ALIGN = 4096
EXPERT_PARTS = [f"w{n}.weight_{kind}" for n in (1, 2, 3) for kind in ("packed", "scale")]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the tensors are stored; the defaults are those of the release."""

    flat_config: bool = False
    group_in_config_groups: bool = False
    config_extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    shards: int | None = None  # None: the released rule; else layers by round robin
    index: bool = True
    vision: bool = True
    scatter_experts: bool = False  # the six tensors of an expert are not neighbours
    header_pad: int = 8  # the data of a shard begins on a multiple of this ...
    header_skew: int = 0  # ... plus this: an odd one leaves every tensor unaligned
    escaped_names: tuple[str, ...] = ()  # patterns of names that the header writes with escapes
    scale_dtype: str = "U8"  # or F8_E8M0
    dtypes: Mapping[str, str] = dataclasses.field(default_factory=dict)  # pattern -> dtype
    a_log_length: int | None = None  # stored length; None: as many as heads
    a_log_padding: str = "zero"  # zero, garbage (finite) or nan


@dataclasses.dataclass(frozen=True)
class CheckpointSpec:
    config: K3Config
    seed: int
    layout: Layout = Layout()
    gains: Mapping[str, float] = dataclasses.field(default_factory=dict)  # pattern -> factor
    special_scales: float = 0.0  # share of the scale bytes that become 255, and half of it 0


# ---- random streams ---------------------------------------------------------------------------


class Stream:
    """Random numbers of one tensor."""

    def __init__(self, seed: int, name: str) -> None:
        digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
        self._random = np.random.RandomState(np.frombuffer(digest, dtype="<u4").astype(np.int64))

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        return self._random.random_sample(shape)

    def bell(self, shape: tuple[int, ...]) -> np.ndarray:
        """Near normal, mean 0, variance 1, within +-3.47: four uniforms, without libm."""
        return (self.uniform((4, *shape)).sum(0) - 2.0) * np.sqrt(3.0)

    def order(self, count: int) -> list[int]:
        return [int(i) for i in self._random.permutation(count)]


# ---- values -----------------------------------------------------------------------------------

VISION_SHAPES: list[dict[str, tuple[str, tuple[int, ...]]]] = [
    {
        "mm_projector.proj.0.weight": ("BF16", (4, 8)),
        "mm_projector.proj.0.bias": ("F16", (4,)),
        "mm_projector.scale": ("F64", ()),
    },
    {
        "vision_tower.patch_embed.proj.weight": ("BF16", (8, 3, 2, 2)),
        "vision_tower.pos_emb.grid": ("I64", (1, 2, 3, 4, 1)),
        "vision_tower.mask": ("BOOL", (5,)),
        "vision_tower.encoder.empty": ("F32", (0, 7)),
    },
]


# Pattern of the tensor's name -> gain of a matrix (spread = gain / sqrt(columns)). First match.
_MATRIX_GAINS = [
    ("*.self_attn.[qkv]_proj.weight", 2.0),
    ("*.self_attn.f_b_proj.weight", 1.5),
    ("*.self_attn.b_proj.weight", 1.5),
    ("*.self_attn.q_b_proj.weight", 1.2),
    ("*.self_attn.kv_b_proj.weight", 1.2),
    ("*.routed_expert_up_proj.weight", 0.7),
    ("*.self_attn.o_proj.weight", 1.6),
    ("*.gate.weight", 1.2),
    ("*.experts.*.w?", 2.0),
    ("*.mlp.down_proj.weight", 0.7),
    ("*.mlp.*", 1.6),
    ("*.shared_experts.down_proj.weight", 0.6),
    ("*.shared_experts.*", 1.6),
    ("*_res_proj.weight", 1.1),
    ("*lm_head.weight", 2.5),
    ("*", 1.0),
]
_DTYPES = [
    ("*_conv1d.weight", "F32"),
    ("*.A_log", "F32"),
    ("*.dt_bias", "F32"),
    ("*.o_norm.weight", "F32"),
    ("*.e_score_correction_bias", "F32"),
    ("*", "BF16"),
]


def first_match(name: str, table: Iterator[tuple[str, Any]]) -> Any:
    return next((value for pattern, value in table if fnmatch.fnmatchcase(name, pattern)), None)


class Values:
    """Draws the tensors of a checkpoint."""

    def __init__(self, spec: CheckpointSpec) -> None:
        self._spec = spec

    def trunk(self, name: str, shape: tuple[int, ...]) -> RawTensor:
        layout = self._spec.layout
        dtype = first_match(name, iter([*layout.dtypes.items(), *_DTYPES]))
        values = self._values(name, shape)
        if name.endswith(".A_log"):
            values = self._pad_a_log(name, values)
        return encode(values, dtype)

    def expert(self, name: str, rows: int, cols: int) -> tuple[RawTensor, RawTensor]:
        """Packed codes and scales of the matrix `name`, `...experts.X.w1` for one."""
        stream = Stream(self._spec.seed, name)
        matrix = stream.bell((rows, cols)) * (self._gain(name) / np.sqrt(cols))
        packed, scales = quantize_mxfp4(matrix)
        share = self._spec.special_scales
        if share > 0.0:
            dice = stream.uniform(scales.shape)
            scales = np.where(dice < share, 255, scales)
            scales = np.where((dice >= share) & (dice < 1.5 * share), 0, scales)
        scale_dtype = self._spec.layout.scale_dtype
        return encode(packed, "U8"), encode(scales.astype(np.uint8), scale_dtype)

    def vision(self, name: str, dtype: str, shape: tuple[int, ...]) -> RawTensor:
        return encode(np.asarray(Stream(self._spec.seed, name).bell(shape) > 0), dtype)

    def _gain(self, name: str) -> float:
        own = first_match(name, iter(self._spec.gains.items()))
        return first_match(name, iter(_MATRIX_GAINS)) * (1.0 if own is None else own)

    def _values(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        stream = Stream(self._spec.seed, name)
        bell = stream.bell(shape)
        if name.endswith("self_attn.k_proj.weight"):
            # keys resemble queries; were q.k often near zero, the norm of o would magnify rounding
            query = Stream(self._spec.seed, name.replace("k_proj", "q_proj")).bell(shape)
            bell = 0.6 * bell + 0.8 * query
        if name.endswith("norm.weight"):
            return np.maximum(1.0 + 0.3 * bell, 0.25)
        own = first_match(name, iter(self._spec.gains.items()))
        factor = 1.0 if own is None else own
        if name.endswith(".A_log"):
            return stream.uniform(shape) * 1.6 - 0.7
        if name.endswith(".dt_bias"):
            return bell - 1.2
        if name.endswith("_conv1d.weight"):
            return 0.35 * bell + 0.35
        if name.endswith(".e_score_correction_bias"):
            return 0.2 * factor * bell
        if name.endswith("embed_tokens.weight"):
            return 2.0 * factor * bell
        return bell * (self._gain(name) / np.sqrt(shape[-1]))

    def _pad_a_log(self, name: str, values: np.ndarray) -> np.ndarray:
        layout = self._spec.layout
        extra = (layout.a_log_length or len(values)) - len(values)
        padding = {
            "zero": np.zeros(extra),
            "nan": np.full(extra, np.nan),
            "garbage": Stream(self._spec.seed, name + "/padding").uniform((extra,)) * 4.0 - 3.0,
        }
        return np.concatenate([values, padding[layout.a_log_padding]])


def quantize_mxfp4(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float [rows, cols] -> codes [rows, cols/2] (low nibble even) and E8M0 [rows, cols/32]."""
    rows, cols = matrix.shape
    groups = matrix.reshape(rows, cols // GROUP, GROUP)
    largest = np.abs(groups).max(-1)
    exponent = np.frexp(largest)[1] - 1 - 2  # the largest code, 6, is 1.5 * 2^2
    scaled = np.ldexp(groups, -exponent[..., None])
    magnitudes = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    nearest = np.abs(np.abs(scaled)[..., None] - magnitudes).argmin(-1)
    codes = (nearest + 8 * (scaled < 0)).astype(np.uint8).reshape(rows, cols)
    packed = codes[:, 0::2] | (codes[:, 1::2] << 4)
    return packed, np.clip(exponent + 127, 0, 254).astype(np.uint8)


# ---- files ------------------------------------------------------------------------------------


def layer_tensors(spec: CheckpointSpec, layer: int) -> dict[str, RawTensor]:
    """In the order in which they lie in the file: the trunk, then the experts, shuffled."""
    values, config = Values(spec), spec.config
    prefix = f"{PREFIX}model.layers.{layer}."
    shapes = trunk_shapes(config, layer)
    tensors = {prefix + name: values.trunk(prefix + name, s) for name, s in sorted(shapes.items())}
    if config.is_dense(layer):
        return tensors
    names = []
    for expert in Stream(spec.seed, prefix + "order").order(config.num_experts):
        names += [f"{prefix}block_sparse_moe.experts.{expert}.{part}" for part in EXPERT_PARTS]
    if spec.layout.scatter_experts:
        order = Stream(spec.seed, prefix + "scatter").order(len(names))
        names = [names[i] for i in order]
    drawn = expert_tensors(spec, prefix)
    return tensors | {name: drawn[name] for name in names}


def expert_tensors(spec: CheckpointSpec, prefix: str) -> dict[str, RawTensor]:
    values, config = Values(spec), spec.config
    latent, inner = config.routed_expert_hidden_size, config.moe_intermediate_size
    tensors = {}
    for expert in range(config.num_experts):
        for which in ("w1", "w2", "w3"):
            name = f"{prefix}block_sparse_moe.experts.{expert}.{which}"
            rows, cols = (latent, inner) if which == "w2" else (inner, latent)
            packed, scales = values.expert(name, rows, cols)
            tensors[name + ".weight_packed"] = packed
            tensors[name + ".weight_scale"] = scales
    return tensors


def shard_contents(spec: CheckpointSpec) -> list[dict[str, RawTensor]]:
    values, config, layout = Values(spec), spec.config, spec.layout
    layers = [layer_tensors(spec, layer) for layer in range(config.num_hidden_layers)]
    names = sorted(model_shapes(config).items())
    model = {PREFIX + name: values.trunk(PREFIX + name, shape) for name, shape in names}
    vision: list[dict[str, RawTensor]] = []
    if layout.vision:
        for part in VISION_SHAPES:
            vision.append({n: values.vision(n, dtype, s) for n, (dtype, s) in part.items()})
    if layout.shards is None:
        return [*layers, model, *vision]
    shards: list[dict[str, RawTensor]] = [{} for _ in range(layout.shards)]
    for place, part in enumerate([*layers, model, *vision]):
        shards[place % layout.shards].update(part)
    return shards


def write_checkpoint(spec: CheckpointSpec, directory: Path) -> None:
    """Replaces `directory`."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    write_json(directory / "config.json", config_document(spec))
    shards = shard_contents(spec)
    weight_map = {}
    for number, tensors in enumerate(shards, start=1):
        file_name = f"model-{number:05d}-of-{len(shards):06d}.safetensors"
        write_safetensors(directory / file_name, tensors, header_style(spec, number, tensors))
        weight_map.update({name: file_name for name in tensors})
    if spec.layout.index:
        total = sum(len(tensor.data) for tensors in shards for tensor in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        write_json(directory / "model.safetensors.index.json", index)


def header_style(
    spec: CheckpointSpec, number: int, tensors: Mapping[str, RawTensor]
) -> HeaderStyle:
    """The header lists the tensors in another order than the data."""
    names = sorted(tensors)
    order = Stream(spec.seed, f"header of shard {number}").order(len(names))
    patterns = spec.layout.escaped_names
    escaped = {n for n in names if any(fnmatch.fnmatchcase(n, p) for p in patterns)}
    return HeaderStyle(
        order=[names[i] for i in order],
        pad_to=spec.layout.header_pad,
        skew=spec.layout.header_skew,
        escaped=frozenset(escaped),
        metadata={"format": "pt"},
    )


def config_document(spec: CheckpointSpec) -> dict[str, Any]:
    layout = spec.layout
    if layout.flat_config:
        return flat_document(spec.config) | dict(layout.config_extra)
    document = nested_document(spec.config, layout.group_in_config_groups)
    document["text_config"].update(layout.config_extra)
    return document


def write_json(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")


# ---- packed trunk -----------------------------------------------------------------------------


def pack_trunk(checkpoint: Path, out: Path) -> None:
    """Copies the trunk of every layer, as it lies in its shard, to `trunk.bin`."""
    document = json.loads((checkpoint / "config.json").read_text())
    layers = document.get("text_config", document)["num_hidden_layers"]
    shards = {path: read_placements(path) for path in sorted(checkpoint.glob("*.safetensors"))}
    out.mkdir(parents=True, exist_ok=True)
    entries, file_off = [], 0
    with (out / "trunk.bin").open("wb") as packed:
        for layer in range(layers):
            entry, run = pack_layer(shards, layer)
            packed.write(run)
            entries.append({"layer": layer, **entry, "file_off": file_off})
            file_off += len(run)
    index = {"n_layers": layers, "align": TRUNK_ALIGN, "layers": entries}
    (out / "trunk.json").write_text(json.dumps(index) + "\n")


def pack_layer(
    shards: Mapping[Path, Mapping[str, Placement]], layer: int
) -> tuple[dict[str, Any], bytes]:
    """The entry of trunk.json, all but `layer` and `file_off`, and the padded run."""
    prefix = f"{PREFIX}model.layers.{layer}."

    def trunk_of(placements: Mapping[str, Placement]) -> dict[str, Placement]:
        mine = {name: p for name, p in placements.items() if name.startswith(prefix)}
        return {name: p for name, p in mine.items() if ".experts." not in name}

    holders = {path: trunk_of(placements) for path, placements in shards.items()}
    path, tensors = next((path, found) for path, found in holders.items() if found)
    start = min(p.offset for p in tensors.values())
    end = max(p.offset + p.nbytes for p in tensors.values())
    if sum(p.nbytes for p in tensors.values()) != end - start:
        raise ValueError(f"layer {layer}: its trunk is not one run in {path.name}")
    run = path.read_bytes()[start:end]
    run += bytes(-len(run) % TRUNK_ALIGN)
    listed = {}
    for name, p in tensors.items():
        place = {"off": p.offset - start, "nbytes": p.nbytes}
        listed[name] = {**place, "dtype": p.dtype, "shape": list(p.shape)}
    entry = {"shard": path.name, "run_start": start, "nbytes": len(run), "tensors": listed}
    return entry, run


# ---- command line -----------------------------------------------------------------------------


def with_settings(config: K3Config, settings: list[str]) -> K3Config:
    """Applies `key=value` pairs; the value is JSON."""
    changes = {}
    for setting in settings:
        key, _, text = setting.partition("=")
        value = json.loads(text)
        changes[key] = tuple(value) if isinstance(value, list) else value
    return dataclasses.replace(config, **changes)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Makes small K3 checkpoints.")
    commands = parser.add_subparsers(dest="command", required=True)
    generate = commands.add_parser("generate", help="write a checkpoint directory")
    generate.add_argument("out", type=Path)
    generate.add_argument("--preset", default="demo", help="a model of the fixtures (demo)")
    generate.add_argument("--seed", type=int)
    generate.add_argument("--shards", type=int, help="layers by round robin; 0: the released rule")
    generate.add_argument("--scatter", action="store_true", help="tear the experts apart")
    generate.add_argument("--set", action="append", default=[], metavar="KEY=JSON")
    pack = commands.add_parser("pack-trunk", help="write trunk.bin and trunk.json")
    pack.add_argument("checkpoint", type=Path)
    pack.add_argument("out", type=Path)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.command == "pack-trunk":
        pack_trunk(arguments.checkpoint, arguments.out)
        return
    from fixture_models import MODELS  # the presets; not needed by the library part

    spec = MODELS[arguments.preset].checkpoint
    layout = spec.layout
    if arguments.shards is not None:
        layout = dataclasses.replace(layout, shards=arguments.shards or None)
    if arguments.scatter:
        layout = dataclasses.replace(layout, scatter_experts=True)
    seed = spec.seed if arguments.seed is None else arguments.seed
    config = with_settings(spec.config, arguments.set)
    spec = dataclasses.replace(spec, config=config, seed=seed, layout=layout)
    write_checkpoint(spec, arguments.out)


if __name__ == "__main__":
    main()
