#!/usr/bin/python3
"""Writes tests/fixtures, or compares it with what it would write.

    make_fixtures.py [models|ops|all]     write
    make_fixtures.py --check [...]        regenerate in a temporary folder and compare
    make_fixtures.py --search MODEL       look for prompts whose answers do not hang on rounding
"""

from __future__ import annotations

import argparse
import dataclasses
import filecmp
import json
import math
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from checkpoint import pack_trunk, write_checkpoint, write_json
from fixture_answers import ModelAnswers, problems
from fixture_models import MODELS, FixtureModel, Prompt
from k3_weights import Checkpoint
from safetensors_io import read_safetensors, write_safetensors

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
# Reference answers are float64 rounded to float32; another libm or BLAS may move the last bits.
RELATIVE = 1e-6  # of the largest value of a tensor


def write_model(model: FixtureModel, out: Path) -> None:
    directory = out / "models" / model.name
    write_checkpoint(model.checkpoint, directory)
    if model.packed_trunk:
        pack_trunk(directory, out / "trunk" / model.name)
    document, tensors = ModelAnswers(model, Checkpoint.read(directory)).record()
    write_json(out / "models" / f"{model.name}.expected.json", document)
    write_safetensors(out / "models" / f"{model.name}.expected.safetensors", tensors)


def write_all(out: Path, parts: str) -> None:
    if parts in ("models", "all"):
        for model in MODELS.values():
            print(f"model {model.name}")
            write_model(model, out)
    elif parts in MODELS:
        write_model(MODELS[parts], out)


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


def main() -> int:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="?", default="all")
    parser.add_argument("--out", type=Path, default=FIXTURES)
    parser.add_argument("--search", metavar="MODEL")
    arguments = parser.parse_args()
    if arguments.search:
        search(arguments.search)
        return 0
    write_all(arguments.out, arguments.parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
