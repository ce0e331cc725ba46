#!/usr/bin/python3
"""Writes tests/fixtures, or compares it with what it would write.

    make_fixtures.py [PART]               write: all, ops, or the name of a model
    make_fixtures.py --check [PART]       regenerate in a temporary folder and compare
    make_fixtures.py --search MODEL       look for prompts whose answers do not hang on rounding
    make_fixtures.py --table              print the mutations that the models show, for the README
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import torch

from checkpoint import pack_trunk, write_checkpoint, write_json
from fixture_answers import ModelAnswers, problems
from fixture_models import MODELS, FixtureModel
from fixture_ops import OPS
from k3_weights import Checkpoint
from mutations import CATALOGUE
from safetensors_io import read_safetensors, write_safetensors

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures"

# Answers are float64 rounded to float32; another libm or BLAS may move the last bits.
RELATIVE = 1e-6  # of the largest value of a tensor
# Fields that tell how float32 fares on the machine that made the fixtures.
MACHINE_FIELDS = {"f32_error", "f32_noise", "firmness", "order_firmness"}


# ---- writing ----------------------------------------------------------------------------------


def write_model(model: FixtureModel, out: Path) -> None:
    directory = out / "models" / model.name
    write_checkpoint(model.checkpoint, directory)
    if model.packed_trunk:
        pack_trunk(directory, out / "trunk" / model.name)
    document, tensors = ModelAnswers(model, Checkpoint.read(directory)).record()
    write_json(out / "models" / f"{model.name}.expected.json", document)
    write_safetensors(out / "models" / f"{model.name}.expected.safetensors", tensors)


def write_ops(out: Path) -> None:
    (out / "ops").mkdir(parents=True, exist_ok=True)
    for name, cases in OPS.items():
        write_safetensors(out / "ops" / f"{name}.safetensors", cases())


def write_part(part: str, out: Path) -> None:
    for name, model in MODELS.items():
        if part in (name, "all"):
            print(f"model {name}", flush=True)
            write_model(model, out)
    if part in ("ops", "all"):
        print("ops", flush=True)
        write_ops(out)


def search(name: str, tries: int = 200) -> None:
    """Prints the first fit variant of every prompt of a model."""
    model = MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / name
        write_checkpoint(model.checkpoint, directory)
        answers = ModelAnswers(model, Checkpoint.read(directory))
    for prompt in model.prompts:
        for variant in range(tries):
            candidate = dataclasses.replace(prompt, variant=variant)
            bare = answers.prompt(dataclasses.replace(candidate, gen=0))
            unfit = problems(bare) or problems(answers.prompt(candidate))
            if not unfit:
                print(f"{name}: Prompt({prompt.length}, {variant})", flush=True)
                break
            print(f"  {prompt.name} variant {variant}: {'; '.join(unfit)}", flush=True)


def print_table(committed: Path) -> None:
    """Largest logit difference of every mutant, in percent of the largest logit."""
    shown = {}
    for name in MODELS:
        text = (committed / "models" / f"{name}.expected.json").read_text()
        shown[name] = json.loads(text)["mutations"]
    print("| mutation | the wrong implementation |", *(f" {name} |" for name in MODELS), sep="")
    print("| --- | --- |" + " ---: |" * len(MODELS))
    for mutation, meaning in CATALOGUE.items():
        cells = (shown[name].get(mutation) for name in MODELS)
        row = "".join(f" {100 * cell:.3g} |" if cell else " |" for cell in cells)
        print(f"| `{mutation}` | {meaning} |{row}")


# ---- comparing --------------------------------------------------------------------------------


def differences(committed: Path, made: Path) -> Iterator[str]:
    """Every file of `made` must be in `committed`: checkpoints to the byte, answers to rounding."""
    for path in sorted(p for p in made.rglob("*") if p.is_file()):
        relative = path.relative_to(made)
        other = committed / relative
        if not other.exists():
            yield f"{relative}: missing"
        elif path.name.endswith(".expected.json"):
            yield from json_differences(
                str(relative), json.loads(other.read_text()), json.loads(path.read_text())
            )
        elif relative.parts[0] == "ops" or path.name.endswith(".expected.safetensors"):
            yield from tensor_differences(str(relative), other, path)
        elif other.read_bytes() != path.read_bytes():
            yield f"{relative}: other bytes"


def stray_files(committed: Path, made: Path) -> Iterator[str]:
    """For a full check: generated kinds of files that nothing makes any more."""
    for folder in ("models", "ops", "trunk"):
        for path in sorted((committed / folder).rglob("*")):
            relative = path.relative_to(committed)
            if path.is_file() and not (made / relative).exists():
                yield f"{relative}: nothing makes this file"


def json_differences(where: str, left: Any, right: Any) -> Iterator[str]:
    if isinstance(left, dict) and isinstance(right, dict):
        if left.keys() != right.keys():
            yield f"{where}: keys {sorted(left.keys() ^ right.keys())}"
        for key in left.keys() & right.keys() - MACHINE_FIELDS:
            yield from json_differences(f"{where}: {key}", left[key], right[key])
    elif isinstance(left, float) and isinstance(right, float):
        if not math.isclose(left, right, rel_tol=1e-4):
            yield f"{where}: {left} against {right}"
    elif left != right:
        yield f"{where}: {left} against {right}"


def tensor_differences(where: str, left: Path, right: Path) -> Iterator[str]:
    committed, made = read_safetensors(left), read_safetensors(right)
    if committed.keys() != made.keys():
        yield f"{where}: tensors {sorted(committed.keys() ^ made.keys())[:5]}"
    for name in sorted(committed.keys() & made.keys()):
        a, b = committed[name], made[name]
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            yield f"{where}: {name}: {a.dtype}{a.shape} against {b.dtype}{b.shape}"
        elif not close(a.values(), b.values()):
            yield f"{where}: {name}: other values"


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal where not finite or integral; else within RELATIVE of the largest value."""
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    left, right = a[finite].astype(np.float64), b[finite].astype(np.float64)
    scale = np.abs(left).max(initial=0.0)
    return bool(np.abs(left - right).max(initial=0.0) <= RELATIVE * scale)


def check(part: str, committed: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        write_part(part, made)
        found = list(differences(committed, made))
        if part == "all":
            found += stray_files(committed, made)
    print("\n".join(found) or "fixtures are as committed")
    return 1 if found else 0


def main() -> int:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description="Writes or checks tests/fixtures.")
    parser.add_argument("part", nargs="?", default="all", choices=["all", "ops", *MODELS])
    parser.add_argument("--out", type=Path, default=FIXTURES)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--search", metavar="MODEL", choices=list(MODELS))
    parser.add_argument("--table", action="store_true", help="print the table of the README")
    arguments = parser.parse_args()
    if arguments.table:
        print_table(arguments.out)
        return 0
    if arguments.search:
        search(arguments.search)
        return 0
    if arguments.check:
        return check(arguments.part, arguments.out)
    write_part(arguments.part, arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
