"""Weights of a checkpoint directory as torch tensors of one precision."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from k3_config import K3Config, read_config
from mutations import NONE, Mutations
from safetensors_io import RawTensor, bf16_bits, read_directory
from tensor_shapes import PREFIX

# E2M1: bit 3 is the sign, bits 2..0 index the magnitude.
_MAGNITUDES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E2M1 = np.array(_MAGNITUDES + [-m for m in _MAGNITUDES], dtype=np.float32)
GROUP = 32  # elements per E8M0 scale


def scale_factors(scales: np.ndarray, mutations: Mutations = NONE) -> np.ndarray:
    """E8M0 bytes -> float32 factors; the NaN code 255 gives 0. 2^-127 is a denormal."""
    bias = 126 if "scale_bias_126" in mutations else 127
    exponent = scales.astype(np.int64) - bias
    factors = np.ldexp(1.0, np.minimum(exponent, 127)).astype(np.float32)
    nan_value = 1.0 if "scale_255_as_value" in mutations else 0.0
    return np.where(scales == 255, np.float32(nan_value), factors)


def dequantize_mxfp4(
    packed: np.ndarray,  # [rows, ceil(cols/2)] U8
    scales: np.ndarray,  # [rows, ceil(cols/32)] U8
    cols: int | None = None,
    mutations: Mutations = NONE,
) -> np.ndarray:  # [rows, cols] float32, by exact multiplication in float32
    cols = packed.shape[1] * 2 if cols is None else cols
    nibbles = [packed & 15, packed >> 4]
    if "swapped_nibbles" in mutations:
        nibbles.reverse()
    codes = np.stack(nibbles, axis=-1).reshape(packed.shape[0], -1)[:, :cols]
    factors = np.repeat(scale_factors(scales, mutations), GROUP, axis=1)[:, :cols]
    with np.errstate(over="ignore"):
        values = E2M1[codes] * factors
    dead = np.repeat(scales == 255, GROUP, axis=1)[:, :cols]
    keep = "scale_255_as_value" in mutations
    return values if keep else np.where(dead, np.float32(0.0), values)


class Checkpoint:
    """All tensors of a directory as they are stored, and the configuration."""

    def __init__(self, config: K3Config, raw: Mapping[str, RawTensor]) -> None:
        self.config = config
        self._raw = raw

    @classmethod
    def read(cls, directory: Path) -> Checkpoint:
        return cls(read_config(directory), read_directory(directory))

    def __getitem__(self, name: str) -> RawTensor:
        return self._raw[PREFIX + name]

    def model_weights(self, dtype: torch.dtype, mutations: Mutations = NONE) -> dict[str, Tensor]:
        names = ["embed_tokens", "output_attn_res_norm", "output_attn_res_proj", "norm"]
        full = [f"model.{name}.weight" for name in names] + ["lm_head.weight"]
        return {name: self._trunk(PREFIX + name, dtype, mutations) for name in full}

    def layer_weights(
        self, layer: int, dtype: torch.dtype, mutations: Mutations = NONE
    ) -> LazyWeights:
        """Keys without the prefix of the layer; experts as `...experts.X.w1` dequantised."""
        prefix = f"{PREFIX}model.layers.{layer}."

        def load(name: str) -> Tensor:
            if ".experts." in name:
                return self._expert(prefix + name, dtype, mutations)
            return self._trunk(prefix + name, dtype, mutations)

        return LazyWeights(load)

    def _trunk(self, name: str, dtype: torch.dtype, mutations: Mutations) -> Tensor:
        raw = self._raw[name]
        values = raw.values()
        if "f32_read_as_bf16" in mutations and raw.dtype in ("F32", "F16"):
            wide = bf16_bits(values.astype(np.float32)).astype(np.uint32) << 16
            values = wide.view(np.float32)
        # float16 and float32 both widen exactly
        return torch.from_numpy(values.astype(np.float32)).to(dtype)

    def _expert(self, name: str, dtype: torch.dtype, mutations: Mutations) -> Tensor:
        packed = self._raw[name + ".weight_packed"].values()
        scales = self._raw[name + ".weight_scale"].values()
        values = dequantize_mxfp4(packed, scales, None, mutations)
        return torch.from_numpy(values).to(dtype)


class LazyWeights(dict[str, Tensor]):
    """Loads a tensor when it is first asked for."""

    def __init__(self, load: Callable[[str], Tensor]) -> None:
        super().__init__()
        self._load = load

    def __missing__(self, name: str) -> Tensor:
        self[name] = self._load(name)
        return self[name]
