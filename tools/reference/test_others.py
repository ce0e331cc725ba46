"""The reference against the data of others; skipped where that does not lie beside the checkout."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import k3_reference as k3
from checkpoint import pack_trunk
from fixture_answers import TOLERANCE
from k3_config import config_from_json
from k3_reference import K3Model
from k3_weights import Checkpoint, dequantize_mxfp4

SHARED = Path(__file__).resolve().parents[3] / "shared"
ROUNDING = 1e-6  # float64 answers against their float32 roundings, of the largest value


def shared(relative: str) -> Path:
    path = SHARED / relative
    if not path.exists():
        raise unittest.SkipTest(f"../shared/{relative} is not here: comparison skipped")
    return path


def relative_difference(values: Tensor, truth: np.ndarray) -> float:
    """Largest difference in units of the largest true value."""
    return float(np.abs(values.double().numpy() - truth).max() / np.abs(truth).max())


class Acceptance(unittest.TestCase):
    """A small checkpoint of others with their answers."""

    def setUp(self) -> None:
        self.root = shared("acceptance/released-like")
        self.expected = json.loads((self.root / "expected.json").read_text())
        self.checkpoint = Checkpoint.read(self.root / "model")

    def floats(self, name: str) -> np.ndarray:
        return np.fromfile(self.root / name, dtype="<f4")

    def test_prompts(self) -> None:
        reference = K3Model(self.checkpoint)
        for name, record in self.expected["prompts"].items():
            with self.subTest(prompt=name):
                logits = reference.forward(record["full_ids"]).logits
                truth = self.floats(record["tf_logits_file"]).reshape(logits.shape)
                self.assertLess(relative_difference(logits, truth), ROUNDING)
                self.assertEqual(logits.argmax(-1).tolist(), record["tf_pred"])
                last = logits[len(record["ids"]) - 1]
                truth = self.floats(record["logits_file"])
                self.assertLess(relative_difference(last, truth), ROUNDING)
        record = self.expected["prompts"]["p5"]
        self.assertEqual(reference.greedy(record["ids"], record["gen"]), record["generated_ids"])

    def test_float32(self) -> None:
        reference = K3Model(self.checkpoint, torch.float32)
        for name, record in self.expected["prompts"].items():
            with self.subTest(prompt=name):
                logits = reference.forward(record["full_ids"]).logits
                self.assertEqual(logits.argmax(-1).tolist(), record["tf_pred"])
                last = logits[len(record["ids"]) - 1]
                difference = relative_difference(last, self.floats(record["logits_file"]))
                self.assertLess(difference, TOLERANCE)

    def test_truncated(self) -> None:
        reference = K3Model(self.checkpoint)
        partial = self.expected["layers_partial"]
        for layers, record in partial["cases"].items():
            with self.subTest(layers=layers):
                logits = reference.forward(partial["ids"], int(layers)).logits[-1]
                truth = self.floats(record["logits_file"])
                self.assertLess(relative_difference(logits, truth), ROUNDING)
                generated = reference.greedy(partial["ids"], partial["gen"], int(layers))
                self.assertEqual(generated, record["generated_ids"])

    def test_packed_trunk(self) -> None:
        """Our packer lays the runs out as theirs did."""
        with tempfile.TemporaryDirectory() as folder:
            pack_trunk(self.root / "model", Path(folder))
            ours = json.loads((Path(folder) / "trunk.json").read_text())
            theirs = json.loads((self.root / "trunk/trunk.json").read_text())
            self.assertEqual(ours, theirs)
            packed = (Path(folder) / "trunk.bin").read_bytes()
            other = (self.root / "trunk/trunk.bin").read_bytes()
            self.assertEqual(len(packed), len(other))
            for layer in ours["layers"]:
                end = layer["file_off"] + max(
                    t["off"] + t["nbytes"] for t in layer["tensors"].values()
                )
                span = slice(layer["file_off"], end)
                self.assertEqual(packed[span], other[span], f"layer {layer['layer']}")


def tensor(entry: dict[str, Any]) -> Tensor:
    return torch.tensor(entry["data"], dtype=torch.float64).reshape(entry["shape"])


class PeerOps(unittest.TestCase):
    """Operations against others' float32 results; three of them are no better than 3 tolerances."""

    def setUp(self) -> None:
        self.root = shared("peer/ops")
        manifest = json.loads((self.root / "MANIFEST.json").read_text())
        self.config = config_from_json(manifest["config"])
        self.absolute = manifest["tolerance"]["fp32_abs"]
        self.relative = manifest["tolerance"]["fp32_rel"]

    def load(self, name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Scalars and other fields; tensors in float64."""
        document = json.loads((self.root / f"{name}.json").read_text())
        tensors = {k: tensor(v) for k, v in document.items() if isinstance(v, dict) and "data" in v}
        return document, tensors

    def assert_close(self, ours: Tensor, theirs: Tensor, factor: float = 1.0) -> None:
        allowed = factor * (self.absolute + self.relative * theirs.abs())
        excess = ((ours.reshape(theirs.shape) - theirs).abs() - allowed).max()
        self.assertLessEqual(float(excess), 0.0)

    def test_rmsnorm(self) -> None:
        document, t = self.load("rmsnorm")
        self.assert_close(k3.rmsnorm(t["in"], t["weight"], document["eps"]), t["out"])

    def test_situ_glu(self) -> None:
        document, t = self.load("situ_glu")
        gate, up = t["in"].chunk(2, -1)
        out = k3.situ_glu(gate, up, document["beta"], document["linear_beta"])
        self.assert_close(out, t["out"])

    def test_shortconv(self) -> None:
        _, t = self.load("shortconv")
        weight = t["weight"].squeeze(1)
        out, tail = k3.short_conv(t["in"][0], weight)
        self.assert_close(out, t["out"])
        self.assert_close(tail.T, t["state_after"])
        self.assert_close(k3.short_conv(t["in_next"][0], weight, tail)[0], t["out_next"])

    def test_kda_decay(self) -> None:
        document, t = self.load("kda_decay")
        z = t["z"][0].reshape(-1, self.config.kda_num_heads, self.config.kda_head_dim)
        g = k3.kda_decay(z, t["A_log"], t["dt_bias"], document["lower_bound"])
        self.assert_close(g, t["g"])
        self.assert_close(g.exp(), t["alpha"])

    def test_kda_recurrence(self) -> None:
        for name in ("kda_recur1", "kda_recur8"):
            with self.subTest(name=name):
                document, t = self.load(name)
                state = torch.zeros_like(t["state_out"])
                for step in range(document["T"]):
                    q = t["q"][step] * document["q_scale"]
                    k, v, alpha = t["k"][step], t["v"][step], t["alpha"][step]
                    o, state = k3.kda_step(state, q, k, v, alpha, t["beta"][step])
                    self.assert_close(o, t["out"][step])
                self.assert_close(state, t["state_out"])

    def test_kda_layer(self) -> None:
        names = {"f_a": "f_a_proj.weight", "f_b": "f_b_proj.weight", "A_log": "A_log"}
        names |= {"dt_bias": "dt_bias", "o_norm": "o_norm.weight"}
        names |= {f"{c}_conv": f"{c}_conv1d.weight" for c in "qkv"}
        names |= {f"{c}_proj": f"{c}_proj.weight" for c in "qkvgob"}
        for file, factor in (("kda_layer1", 1.0), ("kda_layer8", 3.0)):
            with self.subTest(name=file):
                _, t = self.load(file)
                weights = {f"self_attn.{theirs}": t[ours] for ours, theirs in names.items()}
                out, state = k3.kda_attention(t["in"][0], weights, self.config)
                self.assert_close(out, t["out"], factor)
                self.assert_close(state, t["state_out"], factor)

    def test_mla(self) -> None:
        _, t = self.load("mla")
        weights = {
            f"self_attn.{name.removesuffix('_weight')}.weight": value
            for name, value in t.items()
            if name.endswith("_weight")
        }
        self.assert_close(k3.mla_attention(t["in"][0], weights, self.config), t["out"])

    def test_router(self) -> None:
        document, t = self.load("router")
        route = k3.router(t["in"], t["gate_weight"], t["bias"], self.config)
        order = route.experts.sort(-1)
        theirs = t["topk_idx"].long().sort(-1)
        self.assertTrue(torch.equal(order.values, theirs.values))
        self.assert_close(
            route.weights.gather(-1, order.indices), t["topk_weight"].gather(-1, theirs.indices)
        )

    def test_aggregate(self) -> None:
        document, t = self.load("attnres")
        sources = [*t["block_residual"].unbind(1), t["prefix_sum"]]
        out = k3.aggregate(sources, t["norm_weight"], t["proj_weight"], document["eps"])
        self.assert_close(out, t["out"])

    def test_moe(self) -> None:
        _, t = self.load("moe")
        out, _ = k3.latent_moe(t["in"][0], moe_weights(t, ""), self.config)
        self.assert_close(out, t["out"], 3.0)

    def test_decoder_layer(self) -> None:
        for name, factor in (("layer_kda", 3.0), ("layer_mla", 1.0)):
            with self.subTest(name=name):
                document, t = self.load(name)
                weights = layer_weights(t)
                snapshots = list(t["block_residual_in"].unbind(1))
                out, _ = k3.decoder_layer(
                    document["layer_idx"], t["in"][0], snapshots, weights, self.config
                )
                self.assert_close(out, t["out"], factor)
                self.assert_close(torch.stack(snapshots, 1), t["block_residual_out"])

    def test_real_mxfp4_rows(self) -> None:
        document = json.loads((shared("peer") / "mxfp4.json").read_text())
        packed, scales = (
            np.array(document[k]["data"], dtype=np.uint8).reshape(document[k]["shape"])
            for k in ("packed", "scales")
        )
        wanted = np.array(document["expected"]["data"]).reshape(document["expected"]["shape"])
        np.testing.assert_array_equal(dequantize_mxfp4(packed, scales), wanted)
        swapped = dequantize_mxfp4(packed, scales, None, frozenset({"swapped_nibbles"}))
        first = document["expected_swapped_nibbles"]["first64"]
        np.testing.assert_array_equal(swapped.reshape(-1)[:64], first)


def moe_weights(t: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Their names of an expert layer -> ours."""
    names = {
        "gate_weight": "gate.weight",
        "e_score_correction_bias": "gate.e_score_correction_bias",
        "down_weight": "routed_expert_down_proj.weight",
        "up_weight": "routed_expert_up_proj.weight",
        "norm_weight": "routed_expert_norm.weight",
        "shared_w1_weight": "shared_experts.gate_proj.weight",
        "shared_w3_weight": "shared_experts.up_proj.weight",
        "shared_w2_weight": "shared_experts.down_proj.weight",
    }
    weights = {f"block_sparse_moe.{ours}": t[prefix + theirs] for theirs, ours in names.items()}
    for name, value in t.items():
        if name.startswith(prefix + "experts_"):
            _, expert, which, _ = name.removeprefix(prefix).split("_")
            weights[f"block_sparse_moe.experts.{expert}.{which}"] = value
    return weights


def layer_weights(t: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their names of a decoder layer with experts -> ours."""
    weights = moe_weights(t, "mlp_")
    for theirs, value in t.items():
        name = theirs.removesuffix("_weight")
        suffix = ".weight" if name != theirs else ""
        if name.startswith("self_attn_"):
            weights["self_attn." + name.removeprefix("self_attn_") + suffix] = value
        elif name.endswith(("layernorm", "_res_norm", "_res_proj")):
            weights[name + suffix] = value
    return weights
