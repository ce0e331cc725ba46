"""What the reference answers for a fixture model: ids, logits, residuals, mutants, margins."""

from __future__ import annotations

import dataclasses
from typing import Any, Sequence

import numpy as np
import torch

from fixture_models import FixtureModel, Prompt
from k3_reference import Forward, K3Model, Route
from k3_weights import Checkpoint
from mutations import CATALOGUE
from safetensors_io import RawTensor, encode

TOLERANCE = 2e-5  # of the largest logit of a position: what an engine may differ by
VISIBLE = 100 * TOLERANCE  # a mutation shows in a model when it differs by more


@dataclasses.dataclass(frozen=True)
class PromptAnswer:
    """A prompt continued greedily, and how firmly the numbers stand."""

    ids: list[int]
    generated: list[int]
    exact: Forward  # float64, over ids + generated
    single: Forward  # float32, the same

    @property
    def last(self) -> int:
        """Index of the last prompt position."""
        return len(self.ids) - 1

    def logits(self) -> np.ndarray:
        return self.exact.logits.numpy()

    def f32_error(self) -> np.ndarray:
        """Largest error of float32 at every position."""
        return np.abs(self.single.logits.double().numpy() - self.logits()).max(-1)

    def margins(self) -> np.ndarray:
        top = np.sort(self.logits(), axis=-1)
        return top[:, -1] - top[:, -2]

    def same_ids_in_f32(self) -> bool:
        return bool(torch.equal(self.exact.logits.argmax(-1), self.single.logits.argmax(-1)))


def answer(exact: K3Model, single: K3Model, ids: list[int], gen: int) -> PromptAnswer:
    """With `gen` 0 the prompt alone."""
    generated = exact.greedy(ids, gen)
    full = ids + generated
    return PromptAnswer(ids, generated, exact.forward(full), single.forward(full))


@dataclasses.dataclass(frozen=True)
class RouterReport:
    """How firmly the router's decisions stand. A firmness is a gap between two neighbouring
    selection scores, in units of float32's error in the scores of that token."""

    decisions: int
    min_gap: float  # between the last selected and the first rejected expert
    f32_noise: float  # largest error of a selection score in float32
    firmness: float  # of who is selected
    order_firmness: float  # of the order among the selected
    same_in_f32: bool


def router_report(exact: Sequence[Route], single: Sequence[Route]) -> RouterReport:
    gaps, order_gaps, noises = [], [], []
    same = True
    for wide, narrow in zip(exact, single):
        k = wide.experts.shape[1]
        ranked = torch.sort(wide.selection, dim=-1, descending=True).values[:, : k + 1]
        steps = ranked[:, :-1] - ranked[:, 1:]  # [T, k]
        gaps.append(steps[:, -1])
        order_gaps.append(steps.min(-1).values)
        noises.append((wide.selection - narrow.selection.double()).abs().max(-1).values)
        same = same and torch.equal(wide.experts, narrow.experts)
    gap, order_gap, noise = torch.cat(gaps), torch.cat(order_gaps), torch.cat(noises)
    return RouterReport(
        decisions=len(gap),
        min_gap=float(gap.min()),
        f32_noise=float(noise.max()),
        firmness=float((gap / noise).min()),
        order_firmness=float((order_gap / noise).min()),
        same_in_f32=same,
    )


def problems(result: PromptAnswer) -> list[str]:
    """Why a prompt is unfit for a fixture: some number hangs on rounding."""
    found = []
    largest = np.abs(result.logits()).max(-1)
    router = router_report(result.exact.routes, result.single.routes)
    margins = result.margins() / largest
    if margins.min() < 1e-3 or margins[result.last :].min() < 3e-3:
        found.append(f"margin {margins.min():.1e} of the largest logit")
    if not result.same_ids_in_f32() or not router.same_in_f32:
        found.append("float32 decides otherwise")
    if router.firmness < 30 or router.order_firmness < 6:
        found.append(f"router firmness {router.firmness:.0f}, {router.order_firmness:.1f}")
    error = result.f32_error() / largest
    if error[result.last] > 0.3 * TOLERANCE or error.max() > 2 * TOLERANCE:
        found.append(f"float32 is off by {error[result.last]:.1e}, {error.max():.1e}")
    return found


def prompt_record(result: PromptAnswer) -> dict[str, Any]:
    logits, error = result.logits(), result.f32_error()
    router = router_report(result.exact.routes, result.single.routes)
    return {
        "ids": result.ids,
        "gen": len(result.generated),
        "generated_ids": result.generated,
        "tf_pred": logits.argmax(-1).tolist(),
        "logits_absmax": rounded(np.abs(logits[result.last]).max()),
        "absmax_all": rounded(np.abs(logits).max()),
        "f32_error": {"last": rounded(error[result.last]), "all": rounded(error.max())},
        "min_margin": rounded(result.margins()[result.last : -1].min()),
        "tf_min_margin": rounded(result.margins().min()),
        "router": {
            "decisions": router.decisions,
            "min_gap": rounded(router.min_gap),
            "f32_noise": rounded(router.f32_noise),
            "firmness": rounded(router.firmness),
            "order_firmness": rounded(router.order_firmness),
        },
    }


def rounded(value: float) -> float:
    return float(f"{float(value):.6g}")


class ModelAnswers:
    """Everything that is committed beside a fixture checkpoint."""

    def __init__(self, model: FixtureModel, checkpoint: Checkpoint) -> None:
        self.model = model
        self.checkpoint = checkpoint
        self.exact = K3Model(checkpoint, torch.float64)
        self.single = K3Model(checkpoint, torch.float32)

    def prompt(self, prompt: Prompt) -> PromptAnswer:
        ids = prompt.ids(self.checkpoint.config.vocab_size)
        return answer(self.exact, self.single, ids, prompt.gen)

    def record(self) -> tuple[dict[str, Any], dict[str, RawTensor]]:
        """The contents of `<name>.expected.json` and `<name>.expected.safetensors`."""
        tensors: dict[str, RawTensor] = {}
        prompts: dict[str, Any] = {}
        for prompt in self.model.prompts:
            result = self.prompt(prompt)
            unfit = problems(result)
            if unfit:
                raise ValueError(f"{self.model.name} {prompt.name}: {'; '.join(unfit)}")
            prompts[prompt.name] = prompt_record(result)
            tensors[f"{prompt.name}.logits"] = encode(result.logits(), "F32")
            tensors[f"{prompt.name}.experts"] = encode(experts(result.exact.routes), "I32")
        short = self.model.short
        ids = self.model.ids(short)
        residuals = self.exact.forward(ids).residuals
        tensors[f"{short}.residuals"] = encode(residuals.numpy(), "F32")
        partial = self.partial(ids, tensors)
        visible = self.mutants(ids, tensors)
        document = {
            "model": self.model.name,
            "short_prompt": short,
            "tolerance": TOLERANCE,
            "prompts": prompts,
            "layers_partial": partial,
            "mutations": visible,
        }
        return document, tensors

    def partial(self, ids: list[int], tensors: dict[str, RawTensor]) -> dict[str, Any]:
        found = {}
        for layers in self.model.partial_layers:
            logits = self.exact.forward(ids, layers).logits[-1]
            tensors[f"layers{layers}.logits"] = encode(logits.numpy(), "F32")
            generated = self.exact.greedy(ids, 4, layers)
            if self.single.greedy(ids, 4, layers) != generated:
                raise ValueError(f"{self.model.name}: {layers} layers: float32 decides otherwise")
            found[str(layers)] = {
                "ids": ids,
                "gen": 4,
                "generated_ids": generated,
                "logits_absmax": rounded(logits.abs().max()),
            }
        return found

    def mutants(self, ids: list[int], tensors: dict[str, RawTensor]) -> dict[str, float]:
        """Stores the mutants that show; returns the difference in units of the largest logit."""
        truth = self.exact.forward(ids).logits
        visible = {}
        for mutation in CATALOGUE:
            logits = self.mutated(mutation, ids)
            difference = mutation_difference(truth, logits)
            if difference is not None and difference >= VISIBLE:
                visible[mutation] = rounded(difference)
                tensors[f"mutant.{mutation}.logits"] = encode(logits.numpy(), "F32")
        return visible

    def mutated(self, mutation: str, ids: list[int]) -> torch.Tensor | None:
        """Logits [T, V], or None where the model lacks what the mutation reads."""
        try:
            model = K3Model(self.checkpoint, torch.float64, frozenset({mutation}))
            return model.forward(ids).logits
        except (RuntimeError, KeyError):
            return None


def mutation_difference(truth: torch.Tensor, logits: torch.Tensor | None) -> float | None:
    """At the last position, in units of the largest logit; None unless finite."""
    if logits is None or not torch.isfinite(logits).all():
        return None
    return float((logits[-1] - truth[-1]).abs().max() / truth[-1].abs().max())


def experts(routes: Sequence[Route]) -> np.ndarray:
    """[layer with experts, T, k], in selection order."""
    return np.stack([route.experts.numpy() for route in routes])
