#!/usr/bin/python3
"""Tests of the reference against the fixtures, of the fixtures against wrong models, and of both
against the data of others, where that lies beside the checkout.

    test_reference.py [-v] [TestCase[.test]]
"""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import k3_reference as k3
from checkpoint import pack_trunk, write_checkpoint
from fixture_answers import TOLERANCE, VISIBLE, ModelAnswers, mutation_difference
from fixture_models import MODELS
from k3_config import K3Config
from k3_reference import K3Model
from k3_weights import Checkpoint
from make_fixtures import FIXTURES, close, differences, write_ops
from mutations import CATALOGUE
from safetensors_io import Placement, read_placements, read_values
from test_others import ROUNDING, Acceptance, PeerOps, relative_difference

__all__ = ["Acceptance", "PeerOps"]  # run by unittest as tests of this module


@functools.lru_cache(maxsize=None)
def checkpoint(name: str) -> Checkpoint:
    return Checkpoint.read(FIXTURES / "models" / name)


@functools.lru_cache(maxsize=None)
def model(name: str, dtype: torch.dtype = torch.float64) -> K3Model:
    return K3Model(checkpoint(name), dtype)


@functools.lru_cache(maxsize=None)
def expected(name: str) -> dict[str, Any]:
    return json.loads((FIXTURES / "models" / f"{name}.expected.json").read_text())


@functools.lru_cache(maxsize=None)
def answers(name: str) -> dict[str, np.ndarray]:
    return read_values(FIXTURES / "models" / f"{name}.expected.safetensors")


class FixtureModels(unittest.TestCase):
    """The committed answers are what the reference computes."""

    def test_every_position(self) -> None:
        for name in MODELS:
            for prompt, record in expected(name)["prompts"].items():
                with self.subTest(model=name, prompt=prompt):
                    full = record["ids"] + record["generated_ids"]
                    forward = model(name).forward(full)
                    truth = answers(name)[f"{prompt}.logits"]
                    self.assertLess(relative_difference(forward.logits, truth), ROUNDING)
                    predicted = forward.logits.argmax(-1).tolist()
                    self.assertEqual(predicted, record["tf_pred"])
                    # causal, so that one pass over everything shows every greedy step
                    first = len(record["ids"]) - 1
                    self.assertEqual(predicted[first:-1], record["generated_ids"])
                    chosen = np.stack([route.experts.numpy() for route in forward.routes])
                    np.testing.assert_array_equal(chosen, answers(name)[f"{prompt}.experts"])

    def test_greedy_by_full_recompute(self) -> None:
        for name in MODELS:
            with self.subTest(model=name):
                record = expected(name)["prompts"]["p1"]
                generated = model(name).greedy(record["ids"], record["gen"])
                self.assertEqual(generated, record["generated_ids"])

    def test_float32_agrees(self) -> None:
        for name in MODELS:
            for prompt, record in expected(name)["prompts"].items():
                with self.subTest(model=name, prompt=prompt):
                    full = record["ids"] + record["generated_ids"]
                    logits = model(name, torch.float32).forward(full).logits
                    self.assertEqual(logits.dtype, torch.float32)
                    self.assertEqual(logits.argmax(-1).tolist(), record["tf_pred"])
                    truth = answers(name)[f"{prompt}.logits"]
                    last = len(record["ids"]) - 1
                    self.assertLess(relative_difference(logits[last], truth[last]), TOLERANCE)

    def test_residuals(self) -> None:
        for name in MODELS:
            with self.subTest(model=name):
                short = expected(name)["short_prompt"]
                forward = model(name).forward(expected(name)["prompts"][short]["ids"])
                truth = answers(name)[f"{short}.residuals"]
                self.assertEqual(len(truth), checkpoint(name).config.num_hidden_layers + 1)
                self.assertLess(relative_difference(forward.residuals, truth), ROUNDING)

    def test_truncated(self) -> None:
        for name in MODELS:
            for layers, record in expected(name)["layers_partial"].items():
                with self.subTest(model=name, layers=layers):
                    logits = model(name).forward(record["ids"], int(layers)).logits[-1]
                    truth = answers(name)[f"layers{layers}.logits"]
                    self.assertLess(relative_difference(logits, truth), ROUNDING)
                    generated = model(name).greedy(record["ids"], record["gen"], int(layers))
                    self.assertEqual(generated, record["generated_ids"])

    def test_numbers_stand_firm(self) -> None:
        for name in MODELS:
            for prompt, record in expected(name)["prompts"].items():
                with self.subTest(model=name, prompt=prompt):
                    vocab_size = checkpoint(name).config.vocab_size
                    self.assertTrue(all(0 <= i < vocab_size for i in record["ids"]))
                    largest = record["logits_absmax"]
                    self.assertGreater(record["min_margin"], 1e-3 * largest)
                    self.assertLess(record["f32_error"]["last"], TOLERANCE * largest)
                    self.assertGreater(record["router"]["firmness"], 30)

    def test_the_router_bias_decides(self) -> None:
        for name in MODELS:
            with self.subTest(model=name):
                ids = expected(name)["prompts"]["p1"]
                forward = model(name).forward(ids["ids"] + ids["generated_ids"])
                changed = total = 0
                for layer, route in zip(moe_layers(checkpoint(name).config), forward.routes):
                    weights = model(name).layer_weights(layer)
                    bias = weights["block_sparse_moe.gate.e_score_correction_bias"]
                    unbiased = route.selection - bias
                    k = route.experts.shape[1]
                    plain = unbiased.topk(k, dim=-1).indices.sort(-1).values
                    changed += int((plain != route.experts.sort(-1).values).any(-1).sum())
                    total += len(plain)
                self.assertGreater(changed, 0.1 * total)


def runs_of_experts(shards: list[dict[str, Placement]]) -> float:
    """Share of the experts whose six tensors are one run of bytes."""
    spans: dict[str, list[Placement]] = {}
    for name, placement in (item for shard in shards for item in shard.items()):
        if ".experts." in name:
            spans.setdefault(name.rpartition(".w")[0], []).append(placement)
    whole = 0
    for parts in spans.values():
        begin, end = min(p.offset for p in parts), max(p.offset + p.nbytes for p in parts)
        whole += end - begin == sum(p.nbytes for p in parts)
    return whole / len(spans)


def moe_layers(config: K3Config) -> list[int]:
    return [n for n in range(config.num_hidden_layers) if not config.is_dense(n)]


class Mutants(unittest.TestCase):
    """Every wrong implementation turns the comparison of some fixture red, by far."""

    def test_each_mutation_shows_somewhere(self) -> None:
        seen = {m for name in MODELS for m in expected(name)["mutations"]}
        self.assertEqual(set(CATALOGUE) - seen, set())

    def test_stored_mutants(self) -> None:
        for name in MODELS:
            reference = ModelAnswers(MODELS[name], checkpoint(name))
            record = expected(name)["prompts"][expected(name)["short_prompt"]]
            truth = reference.exact.forward(record["ids"]).logits
            for mutation in expected(name)["mutations"]:
                with self.subTest(model=name, mutation=mutation):
                    logits = reference.mutated(mutation, record["ids"])
                    assert logits is not None
                    stored = answers(name)[f"mutant.{mutation}.logits"]
                    self.assertLess(relative_difference(logits, stored), ROUNDING)
                    difference = mutation_difference(truth, torch.tensor(stored).double())
                    assert difference is not None
                    self.assertGreaterEqual(difference, VISIBLE)

    def test_an_unknown_mutation_changes_nothing(self) -> None:
        other = K3Model(checkpoint("edge"), torch.float64, frozenset({"no such mutation"}))
        truth = model("edge").forward([1, 2]).logits
        self.assertTrue(torch.equal(other.forward([1, 2]).logits, truth))

    def test_nan_padding_of_a_log_is_never_read(self) -> None:
        stored = checkpoint("nodense")["model.layers.1.self_attn.A_log"].values()
        heads = checkpoint("nodense").config.kda_num_heads
        self.assertTrue(np.isnan(stored[heads:]).all() and len(stored) > heads)
        broken = K3Model(checkpoint("nodense"), torch.float64, frozenset({"padded_a_log_garbage"}))
        self.assertTrue(torch.isnan(broken.forward([1]).logits).any())


class Generator(unittest.TestCase):
    """Storage may vary freely; the model stays the same."""

    def logits_of(self, **layout: Any) -> Tensor:
        spec = MODELS["edge"].checkpoint
        spec = dataclasses.replace(spec, layout=dataclasses.replace(spec.layout, **layout))
        with tempfile.TemporaryDirectory() as folder:
            directory = Path(folder) / "model"
            write_checkpoint(spec, directory)
            return K3Model(Checkpoint.read(directory)).forward([3, 1, 4]).logits

    def test_layouts_hold_the_same_model(self) -> None:
        truth = model("edge").forward([3, 1, 4]).logits
        for layout in (
            {"flat_config": True, "shards": 1, "index": False, "header_pad": 1},
            {"shards": 2, "scatter_experts": True, "scale_dtype": "F8_E8M0", "vision": False},
            {"a_log_length": 9, "a_log_padding": "nan", "group_in_config_groups": True},
        ):
            with self.subTest(layout=layout):
                self.assertTrue(torch.equal(self.logits_of(**layout), truth))

    def test_wider_types_hold_another_model(self) -> None:
        wide = self.logits_of(dtypes={"*_proj.weight": "F32"})
        difference = (wide - model("edge").forward([3, 1, 4]).logits).abs().max()
        self.assertGreater(float(difference), 1e-4)

    def test_committed_checkpoints(self) -> None:
        """The bytes of tests/fixtures are those that the generator makes."""
        for name, fixture in MODELS.items():
            with self.subTest(model=name), tempfile.TemporaryDirectory() as folder:
                made = Path(folder)
                write_checkpoint(fixture.checkpoint, made / "models" / name)
                if fixture.packed_trunk:
                    pack_trunk(made / "models" / name, made / "trunk" / name)
                self.assertEqual(list(differences(FIXTURES, made)), [])

    def test_check_sees_one_changed_value(self) -> None:
        values = np.linspace(-1.0, 1.0, 7)
        self.assertTrue(close(values, values + 1e-7))
        self.assertFalse(close(values, values + 1e-5 * (values > 0.9)))
        self.assertFalse(close(np.array([1.0, np.nan]), np.array([1.0, 2.0])))
        self.assertFalse(close(np.array([1, 2]), np.array([1, 3])))

    def test_storage_is_as_awkward_as_the_readme_says(self) -> None:
        places = {
            name: [read_placements(p) for p in sorted((FIXTURES / "models" / name).glob("*.s*s"))]
            for name in MODELS
        }
        for shard in places["edge"]:
            self.assertEqual(min(p.offset for p in shard.values()) % 8, 3)
        first = (FIXTURES / "models/edge/model-00001-of-000006.safetensors").read_bytes()
        self.assertIn(b"self_attn\\u002eo_proj\\u002eweight", first)
        self.assertIn("language_model.model.layers.0.self_attn.o_proj.weight", places["edge"][0])
        self.assertLess(runs_of_experts(places["nodense"]), 0.2)
        self.assertEqual(runs_of_experts(places["demo"]), 1.0)
        odd = {p.dtype for n, p in places["odd"][0].items() if n.endswith("_proj.weight")}
        self.assertEqual(odd, {"BF16", "F32", "F16"})  # F16: the projections of mlp_res
        ranks = {len(p.shape) for shard in places["demo"] for p in shard.values()}
        self.assertEqual(ranks, {0, 1, 2, 3, 4, 5})
        self.assertFalse((FIXTURES / "models/odd/model.safetensors.index.json").exists())

    def test_shard_counts(self) -> None:
        self.assertEqual(len(list((FIXTURES / "models/demo").glob("*.safetensors"))), 16)
        self.assertEqual(len(list((FIXTURES / "models/deep").glob("*.safetensors"))), 5)


class FixtureOps(unittest.TestCase):
    def test_committed_ops(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            write_ops(Path(folder))
            self.assertEqual(list(differences(FIXTURES, Path(folder))), [])

    def test_every_value_of_mxfp4(self) -> None:
        """Against the definition, number by number."""
        case = read_values(FIXTURES / "ops/mxfp4.safetensors")
        magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
        for scale in range(256):
            for column in range(32):
                code = column % 16
                value = (-1.0 if code & 8 else 1.0) * magnitudes[code & 7] * 2.0 ** (scale - 127)
                with np.errstate(over="ignore"):
                    wanted = np.float32(0.0 if scale == 255 else value)
                self.assertEqual(case["every_scale.out"][scale, column], wanted)
        dead = case["every_scale.out"][255]
        self.assertFalse(np.signbit(dead).any(), "255 counts as +0")

    def test_router_ties_go_to_the_lower_index(self) -> None:
        case = read_values(FIXTURES / "ops/router.safetensors")
        for experts in case["ties.experts"]:
            self.assertEqual(experts[1], experts[0] + 1)
            self.assertEqual(experts[2], experts[0] + 2)
            self.assertEqual(experts[0] % 3, 0)
        self.assertTrue((case["zeros.experts"] == np.arange(4)).all())

    def test_absorbed_attention_is_the_same(self) -> None:
        """Section 5: keys and values need not be expanded."""
        file = read_values(FIXTURES / "ops/mla.safetensors")
        names = ("q_nope", "q_rope", "latent", "k_rope", "kv_b", "out")
        case = {name: torch.tensor(file[f"p150.{name}"]).double() for name in names}
        tokens, heads, nope = case["q_nope"].shape
        kv_b = case["kv_b"].reshape(heads, -1, case["latent"].shape[1])
        absorbed = torch.einsum("thd,hdl->thl", case["q_nope"], kv_b[:, :nope])
        scores = torch.einsum("thl,pl->htp", absorbed, case["latent"])
        scores += torch.einsum("thd,pd->htp", case["q_rope"], case["k_rope"])
        scores *= (nope + case["q_rope"].shape[2]) ** -0.5
        for t in range(tokens):
            scores[:, t, 150 - tokens + t + 1 :] = -torch.inf
        mixed = torch.einsum("htp,pl->thl", scores.softmax(-1), case["latent"])
        out = torch.einsum("thl,hvl->thv", mixed, kv_b[:, nope:])
        self.assertLess(relative_difference(out, case["out"].numpy()), ROUNDING)


class Definitions(unittest.TestCase):
    """Operations against their definitions, written out element by element or by torch itself."""

    def draw(self, *shape: int) -> Tensor:
        generator = torch.Generator().manual_seed(7)
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    def test_short_conv(self) -> None:
        for kernel in (2, 3, 4):
            x, weight = self.draw(6, 5), self.draw(5, kernel)
            padded = torch.nn.functional.pad(x.T.unsqueeze(0), (kernel - 1, 0))
            y = torch.nn.functional.conv1d(padded, weight.unsqueeze(1), groups=5)[0].T
            whole, tail = k3.short_conv(x, weight)
            torch.testing.assert_close(whole, torch.nn.functional.silu(y))
            first, state = k3.short_conv(x[:4], weight)
            second, state = k3.short_conv(x[4:], weight, state)
            torch.testing.assert_close(torch.cat([first, second]), whole)
            torch.testing.assert_close(state, tail)

    def test_kda_step(self) -> None:
        width = 3
        state, q, k, v = self.draw(1, width, width), *self.draw(3, 1, width)
        alpha, beta = torch.sigmoid(self.draw(1, width)), torch.sigmoid(self.draw(1))
        o, new = k3.kda_step(state, q, k, v, alpha, beta)
        rows = range(width)
        for j in rows:  # column by column
            decayed = [float(alpha[0, i] * state[0, i, j]) for i in rows]
            u = sum(decayed[i] * float(k[0, i]) for i in rows)
            write = float(beta[0]) * (float(v[0, j]) - u)
            column = [decayed[i] + float(k[0, i]) * write for i in rows]
            read = sum(column[i] * float(q[0, i]) for i in rows)
            self.assertAlmostEqual(float(o[0, j]), read, places=12)
            for i in rows:
                self.assertAlmostEqual(float(new[0, i, j]), column[i], places=12)

    def test_norms(self) -> None:
        x = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
        weight = torch.tensor([1.0, 2.0], dtype=torch.float64)
        wanted = torch.tensor([[3.0, 8.0]], dtype=torch.float64)
        torch.testing.assert_close(k3.rmsnorm(x, weight, 0.5), wanted / 13.0**0.5)
        torch.testing.assert_close(k3.l2norm(x), x / (25.0 + 1e-6) ** 0.5)

    def test_situ_glu(self) -> None:
        for gate, up in ((0.7, -3.0), (9.0, 80.0), (-6.0, 2.0)):
            wanted = 4 * np.tanh(gate / 4) / (1 + np.exp(-gate)) * 25 * np.tanh(up / 25)
            pair = torch.tensor([gate, up], dtype=torch.float64)
            found = float(k3.situ_glu(pair[0], pair[1], 4.0, 25.0))
            self.assertAlmostEqual(found, wanted, places=12)

    def test_one_source_is_its_own_aggregate(self) -> None:
        x = self.draw(2, 8)
        out = k3.aggregate([x], self.draw(8), self.draw(1, 8), 1e-5)
        torch.testing.assert_close(out, x)

    def test_aggregate(self) -> None:
        sources, norm, proj = self.draw(3, 1, 4), self.draw(4), self.draw(4)
        scores = []
        for source in sources[:, 0]:
            key = source / (source.square().mean() + 1e-5).sqrt()
            scores.append(float((key * norm * proj).sum()))
        p = np.exp(scores) / np.exp(scores).sum()
        wanted = sum(float(p[s]) * sources[s] for s in range(3))
        torch.testing.assert_close(k3.aggregate(list(sources), norm, proj, 1e-5), wanted)

    def test_a_longer_sequence_leaves_its_beginning_alone(self) -> None:
        for name in MODELS:
            with self.subTest(model=name):
                ids = [5, 17, 2, 99, 40]
                whole = model(name).forward(ids).logits
                torch.testing.assert_close(model(name).forward(ids[:3]).logits, whole[:3])


class Documents(unittest.TestCase):
    def test_readme_names_every_mutation(self) -> None:
        text = (FIXTURES / "README.md").read_text()
        self.assertEqual([m for m in CATALOGUE if f"`{m}`" not in text], [])


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
