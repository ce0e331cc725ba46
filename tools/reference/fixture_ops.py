"""Per-operation cases of tests/fixtures/ops: float32 inputs, answers computed in float64.

A file holds several named cases: tensor `<case>.<name>`. Scalars have the shape [1]. The inputs are
rounded to their stored type first; the answers are exact for those and then rounded to float32.
"""

from __future__ import annotations

import dataclasses
from typing import Callable

import numpy as np
import torch
from torch import Tensor

import k3_reference as k3
from checkpoint import Stream, quantize_mxfp4
from fixture_models import MODELS
from k3_weights import GROUP, dequantize_mxfp4
from safetensors_io import RawTensor, encode

Tensors = dict[str, RawTensor]


class Case:
    """Collects the tensors of one case."""

    def __init__(self, file: Tensors, name: str, seed: int = 0) -> None:
        self._file = file
        self._name = name
        self._seed = seed

    def draw(self, name: str, *shape: int, spread: float = 1.0) -> Tensor:
        """A random float32 input."""
        values = Stream(self._seed, f"{self._name}.{name}").bell(shape) * spread
        return self.put(name, values)

    def uniform(self, name: str, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        values = Stream(self._seed, f"{self._name}.{name}").uniform(shape)
        return self.put(name, low + (high - low) * values)

    def put(self, name: str, values: np.ndarray | Tensor, dtype: str = "F32") -> Tensor:
        """Stores an input; returns what was stored, in float64 where it is a float."""
        raw = encode(np.asarray(values), dtype)
        self._file[f"{self._name}.{name}"] = raw
        stored = torch.from_numpy(raw.values().copy())
        return stored.double() if stored.is_floating_point() else stored

    def scalar(self, name: str, value: float, dtype: str = "F32") -> float:
        return float(self.put(name, np.array([value]), dtype)[0])

    def answer(self, name: str, values: Tensor, dtype: str = "F32") -> None:
        with np.errstate(over="ignore"):
            self._file[f"{self._name}.{name}"] = encode(values.numpy(), dtype)


def rmsnorm_cases() -> Tensors:
    file: Tensors = {}
    # rows x columns, spread: the huge one overflows a float32 square, the tiny one is all eps
    shapes = [(1, 1, 1.0), (3, 7, 1.0), (2, 33, 1e-4), (3, 128, 1.0)]
    shapes += [(1, 257, 1e19), (1, 1000, 3.0)]
    for number, (rows, cols, spread) in enumerate(shapes):
        case = Case(file, f"case{number}")
        x = case.draw("x", rows, cols, spread=spread)
        weight = case.draw("weight", cols, spread=0.3) + 1.0
        weight = case.put("weight", weight.numpy())
        eps = case.scalar("eps", 1e-5)
        case.answer("out", k3.rmsnorm(x, weight, eps))
    return file


def l2norm_cases() -> Tensors:
    file: Tensors = {}
    for number, (heads, width) in enumerate([(3, 5), (4, 16), (3, 24), (2, 40), (2, 128)]):
        case = Case(file, f"case{number}")
        # from an ordinary head down to one whose norm the 1e-6 outweighs
        spread = 10.0 ** -np.arange(0.0, heads)[:, None] / np.sqrt(width)
        values = Stream(0, f"l2norm{number}").bell((heads, width)) * spread
        values[-1] *= 0.1
        case.answer("out", k3.l2norm(case.put("x", values)))
    case = Case(file, "zero")
    case.answer("out", k3.l2norm(case.put("x", np.zeros((1, 16)))))
    return file


def elementary_cases() -> Tensors:
    """x F32; sigmoid, silu and tanh at all points, exp where it is finite: F64."""
    file: Tensors = {}
    around_zero = np.linspace(-12.0, 12.0, 1201)
    far = np.linspace(-110.0, 110.0, 441)
    special = [0.0, -0.0, 1e-45, 1e-38, 1e-10, 0.625, 0.6249999, 87.3, 88.0, 103.9, 1e4, 3e38]
    points = np.concatenate([around_zero, far, special, np.negative(special)])
    case = Case(file, "all")
    x = case.put("x", points)
    case.answer("sigmoid", k3.sigmoid(x), "F64")
    case.answer("silu", k3.silu(x), "F64")
    case.answer("tanh", torch.tanh(x), "F64")
    case = Case(file, "exp")
    x = case.put("x", points[(points <= 88.7) & (points >= -120.0)])
    case.answer("exp", torch.exp(x), "F64")
    return file


def situ_glu_cases() -> Tensors:
    file: Tensors = {}
    extremes = np.array([-1000.0, -100.0, -25.0, -4.0, -0.1, 0.0, 0.1, 4.0, 25.0, 100.0, 1000.0])
    grid = np.meshgrid(extremes, extremes, indexing="ij")
    for name, (b1, b2) in {"released": (4.0, 25.0), "other": (3.0, 20.0)}.items():
        case = Case(file, name)
        gate = np.concatenate([grid[0].ravel(), Stream(1, name).bell((79,)) * 4.0])
        up = np.concatenate([grid[1].ravel(), Stream(2, name).bell((79,)) * 20.0])
        b1, b2 = case.scalar("b1", b1), case.scalar("b2", b2)
        case.answer("out", k3.situ_glu(case.put("gate", gate), case.put("up", up), b1, b2))
    return file


def shortconv_cases() -> Tensors:
    """x [T, C], weight [C, K] oldest tap first, tail [K-1, C] oldest input first."""
    file: Tensors = {}
    shapes = [(2, 1, 5), (2, 6, 33), (3, 1, 24), (3, 5, 19), (4, 1, 40), (4, 2, 64), (4, 9, 17)]
    for kernel, tokens, channels in shapes:
        case = Case(file, f"k{kernel}_t{tokens}")
        x = case.draw("x", tokens, channels, spread=2.0)
        weight = case.draw("weight", channels, kernel)
        tail = case.draw("tail_in", kernel - 1, channels, spread=2.0)
        out, tail = k3.short_conv(x, weight, tail)
        case.answer("out", out)
        case.answer("tail_out", tail)
    return file


def kda_decay_cases() -> Tensors:
    """z [T, H, D], a_log longer than H, dt_bias [H*D] -> g and alpha [T, H, D]."""
    file: Tensors = {}
    for number, (tokens, heads, width, spread) in enumerate([(2, 3, 16, 1.5), (1, 2, 24, 40.0)]):
        case = Case(file, f"case{number}")
        z = case.draw("z", tokens, heads, width, spread=spread)
        padded = Stream(0, f"decay{number}").uniform((heads + 5,)) * 2.0 - 0.7
        padded[heads:] = np.nan
        a_log = case.put("a_log", padded)
        dt_bias = case.draw("dt_bias", heads * width)
        lower_bound = case.scalar("lower_bound", -5.0 if number == 0 else -3.5)
        g = k3.kda_decay(z, a_log, dt_bias, lower_bound)
        case.answer("g", g)
        case.answer("alpha", g.exp())
    return file


def kda_step_cases() -> Tensors:
    """q (scaled), k, v, alpha [T, H, D], beta [T, H], state [H, D key, D value] -> out, state."""
    file: Tensors = {}
    for tokens, heads, width in [(1, 1, 5), (4, 2, 16), (7, 3, 24), (3, 2, 40), (2, 1, 64)]:
        case = Case(file, f"d{width}")
        shape = (tokens, heads, width)
        directions = Stream(0, f"step{width}").bell((2, *shape))
        unit = k3.l2norm(torch.from_numpy(directions))
        q = case.put("q", (unit[0] * width**-0.5).numpy())
        k = case.put("k", unit[1].numpy())
        v = case.draw("v", *shape)
        alpha = case.uniform("alpha", *shape, low=0.01)
        beta = case.uniform("beta", tokens, heads)
        state = case.draw("state_in", heads, width, width, spread=0.5)
        outputs = []
        for t in range(tokens):
            o, state = k3.kda_step(state, q[t], k[t], v[t], alpha[t], beta[t])
            outputs.append(o)
        case.answer("out", torch.stack(outputs))
        case.answer("state_out", state)
    return file


def kda_output_cases() -> Tensors:
    """o [T, H, D], gate [T, H*D] before its sigmoid, o_norm [D], eps -> out [T, H*D]."""
    file: Tensors = {}
    for tokens, heads, width in [(2, 3, 16), (1, 3, 24), (1, 2, 40)]:
        case = Case(file, f"d{width}")
        o = case.draw("o", tokens, heads, width, spread=0.01)
        gate = case.draw("gate", tokens, heads * width, spread=2.0)
        gain = case.uniform("o_norm", width, low=0.5, high=1.5)
        eps = case.scalar("eps", 1e-5)
        opened = k3.sigmoid(gate).reshape(o.shape)
        case.answer("out", k3.kda_output(o, opened, gain, eps).reshape(tokens, -1))
    return file


def mla_cases() -> Tensors:
    """q_nope [T, H, nope], q_rope [T, H, rope], latent [P, kv_lora], k_rope [P, rope],
    kv_b [H*(nope+v), kv_lora]: per head the keys, then the values -> out [T, H, v].
    The T queries belong to the last T of the P positions."""
    file: Tensors = {}
    # positions, tokens, heads, nope, rope, v, kv_lora, spread of the queries
    shapes = [
        (1, 1, 2, 8, 4, 8, 12, 1.0),
        (2, 2, 3, 20, 6, 28, 20, 1.0),
        (17, 1, 2, 16, 8, 16, 24, 1.0),
        (33, 5, 2, 12, 4, 20, 16, 2.0),
        (64, 1, 2, 24, 8, 16, 32, 1.0),
        (65, 1, 1, 16, 16, 12, 24, 6.0),
        (150, 3, 2, 20, 12, 24, 40, 1.5),
    ]
    for positions, tokens, heads, nope, rope, v, kv_lora, spread in shapes:
        case = Case(file, f"p{positions}")
        q_nope = case.draw("q_nope", tokens, heads, nope, spread=spread)
        q_rope = case.draw("q_rope", tokens, heads, rope, spread=spread)
        latent = case.draw("latent", positions, kv_lora)
        k_rope = case.draw("k_rope", positions, rope)
        kv_b = case.draw("kv_b", heads * (nope + v), kv_lora, spread=kv_lora**-0.5)
        case.answer("out", k3.mla_scores_values(q_nope, q_rope, latent, k_rope, kv_b))
    return file


def aggregate_cases() -> Tensors:
    """sources [S, T, E] in the order of the scores, norm and proj [E], eps -> out [T, E]."""
    file: Tensors = {}
    for count, tokens, hidden in [(1, 1, 8), (2, 2, 33), (3, 1, 152), (5, 3, 40), (9, 2, 96)]:
        case = Case(file, f"s{count}")
        # sources of very different size: their keys are alike, their values are not
        sizes = 0.1 * 3.0 ** np.arange(count)[:, None, None]
        values = Stream(0, f"aggregate{count}").bell((count, tokens, hidden)) * sizes
        sources = case.put("sources", values)
        norm = case.uniform("norm", hidden, low=0.5, high=1.5)
        proj = case.draw("proj", hidden, spread=1.5 * hidden**-0.5)
        eps = case.scalar("eps", 1e-5)
        case.answer("out", k3.aggregate(list(sources), norm, proj, eps))
    return file


def router_cases() -> Tensors:
    """x [T, E], gate [N, E], bias [N], topk, renormalize, scaling -> experts, weights [T, topk]."""
    file: Tensors = {}
    names = ["plain", "biased", "not_renormalized", "ties", "zeros"]
    names += ["single", "single_renormalized"]
    for name in names:
        case = Case(file, name)
        hidden, count, top = (40, 12, 4) if "single" not in name else (24, 7, 1)
        gate = Stream(0, f"{name}.gate").bell((count, hidden)) * (1.5 * hidden**-0.5)
        bias = Stream(0, f"{name}.bias").bell((count,)) * (0.6 if name == "biased" else 0.1)
        if name == "ties":  # experts 3k, 3k+1 and 3k+2 tie exactly
            gate, bias = gate[np.arange(count) // 3], bias[np.arange(count) // 3]
        if name == "zeros":  # all tie
            gate, bias = np.zeros_like(gate), np.zeros_like(bias)
        config = dataclasses.replace(
            MODELS["demo"].checkpoint.config,
            num_experts=count,
            num_experts_per_token=top,
            moe_renormalize=name not in ("not_renormalized", "single"),
            routed_scaling_factor=2.5 if name in ("biased", "single_renormalized") else 1.0,
        )
        x = case.draw("x", 5, hidden)
        case.put("topk", np.array([top]), "I32")
        case.put("renormalize", np.array([config.moe_renormalize]), "U8")
        case.put("scaling", np.array([config.routed_scaling_factor]))
        route = k3.router(x, case.put("gate", gate), case.put("bias", bias), config)
        case.answer("experts", route.experts, "I32")
        case.answer("weights", route.weights)
    return file


def mxfp4_cases() -> Tensors:
    """packed [rows, ceil(cols/2)], scales [rows, ceil(cols/32)], cols -> out [rows, cols]."""
    file: Tensors = {}
    codes = np.arange(GROUP) % 16  # row r: every code, with the scale byte r
    all_codes = np.tile(codes[0::2] | (codes[1::2] << 4), (256, 1))
    put_mxfp4(Case(file, "every_scale"), all_codes, np.arange(256)[:, None], GROUP)
    for cols in (1, 33, 64, 70, 96):
        stream = Stream(0, f"mxfp4 {cols}")
        packed = stream.uniform((4, -(-cols // 2))) * 256
        scales = stream.uniform((4, -(-cols // GROUP))) * 12 + 115
        scales[1, -1], scales[2, 0], scales[3, -1] = 255, 0, 1
        put_mxfp4(Case(file, f"cols{cols}"), packed, scales, cols)
    return file


def put_mxfp4(case: Case, packed: np.ndarray, scales: np.ndarray, cols: int) -> Tensor:
    """Stores a matrix and its exact values; returns these in float64."""
    packed, scales = packed.astype(np.uint8), scales.astype(np.uint8)
    case.put("packed", packed, "U8")
    case.put("scales", scales, "U8")
    case.put("cols", np.array([cols]), "I32")
    values = torch.from_numpy(dequantize_mxfp4(packed, scales, cols))
    case.answer("out", values)
    return values.double()


def matmul_cases() -> Tensors:
    """weight [rows, cols] of three types, x [T, cols] -> out [T, rows]; rms of out.

    An error of a product is judged in units of rms: single results may cancel."""
    file: Tensors = {}
    for cols, rows in [(33, 9), (70, 7), (1024, 4), (1500, 2), (3000, 2)]:
        for dtype in ("BF16", "F32"):
            case = Case(file, f"{dtype.lower()}_{cols}")
            values = Stream(0, f"weight {cols}").bell((rows, cols)) * cols**-0.5
            put_product(case, case.put("weight", values, dtype), cols)
    for cols, rows in [(64, 6), (1120, 3), (2080, 2)]:
        case = Case(file, f"mxfp4_{cols}")
        packed, scales = quantize_mxfp4(Stream(0, f"weight {cols}").bell((rows, cols)))
        scales[0, 1], scales[-1, 0] = 255, 0
        weight = torch.from_numpy(dequantize_mxfp4(packed, scales, cols)).double()
        case.put("packed", packed, "U8")
        case.put("scales", scales, "U8")
        put_product(case, weight, cols)
    return file


def put_product(case: Case, weight: Tensor, cols: int) -> None:
    values = Stream(0, f"x {cols}").bell((2, cols))
    values[1, :: max(1, cols // 5)] *= 100.0  # outliers
    out = k3.linear(weight, case.put("x", values))
    case.answer("out", out)
    case.answer("rms", out.square().mean(-1).sqrt())


OPS: dict[str, Callable[[], Tensors]] = {
    "rmsnorm": rmsnorm_cases,
    "l2norm": l2norm_cases,
    "elementary": elementary_cases,
    "situ_glu": situ_glu_cases,
    "shortconv": shortconv_cases,
    "kda_decay": kda_decay_cases,
    "kda_step": kda_step_cases,
    "kda_output": kda_output_cases,
    "mla": mla_cases,
    "aggregate": aggregate_cases,
    "router": router_cases,
    "mxfp4": mxfp4_cases,
    "matmul": matmul_cases,
}
