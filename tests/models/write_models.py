#!/usr/bin/env python3
"""Writes the models that sconce is tested on, with the answers LibTorch gives for them.

    NAME.pt, NAME.cases.pt      a scripted model and its CASES file, per name of --list
    torchvision_ops/            the same for models that need the operators of tests/plugins/torchvision_ops.cpp
    operators.cases.pt          the operator suite: model and cases in one file
    bad/                        files that must be refused or found wrong
    inputs/                     argument files for `sconce run`

Weights and inputs are random with fixed seeds; nothing is downloaded. Whatever is newer than its sources is left
alone. A file is never seen half written.
"""
import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import torch

import argument_files
import bad_files
import calls  # noqa: F401
import decoding  # noqa: F401
import detection  # noqa: F401
import language  # noqa: F401  (the families register their recipes)
import memory  # noqa: F401
import numerics  # noqa: F401
import operators
import quantized  # noqa: F401
import recurrent  # noqa: F401
import sequence  # noqa: F401
import serving  # noqa: F401
import snippets
import streaming  # noqa: F401
import text  # noqa: F401
import traced  # noqa: F401
import vision  # noqa: F401
import vision_zoo  # noqa: F401
from cases import write_model
from recipe import RECIPES

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Product:
    """Files that are written together, into `folder` of the output directory."""

    name: str
    about: str
    files: list[str]
    sources: list[Path]
    write: Callable[[Path], None]
    folder: str = ""

    def paths(self, out: Path) -> list[Path]:
        return [out / self.folder / file for file in self.files]

    def is_current(self, out: Path) -> bool:
        paths = self.paths(out)
        # A new LibTorch gives new answers.
        sources = [*self.sources, HERE / "cases.py", HERE / "recipe.py", Path(torch.version.__file__)]
        return (all(path.exists() for path in paths)
                and min(path.stat().st_mtime for path in paths) > max(path.stat().st_mtime for path in sources))

    def make(self, out: Path) -> None:
        """Writes into a scratch folder of the same file system, then moves each file to its place."""
        target = out / self.folder
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".writing-") as scratch:
            self.write(Path(scratch))
            for file in self.files:
                os.replace(Path(scratch) / file, target / file)


def products() -> list[Product]:
    models = [Product(recipe.name, recipe.about, [f"{recipe.name}.pt", f"{recipe.name}.cases.pt"], [recipe.source],
                      lambda directory, recipe=recipe: write_model(recipe, directory), recipe.folder)
              for recipe in RECIPES.values()]
    # Damaged files are made of good ones, which come from anywhere in this folder.
    everything = sorted(HERE.glob("*.py"))
    return [
        *models,
        Product("operators", operators.ABOUT, [operators.NAME], [HERE / "operators.py"], operators.write_operators),
        Product(snippets.FOLDER, snippets.ABOUT, snippets.FILES, sorted(HERE.glob("snippets/*.py")), snippets.write_snippets,
                snippets.FOLDER),
        Product("bad", bad_files.ABOUT, bad_files.FILES, everything, bad_files.write_bad_files, bad_files.FOLDER),
        Product("inputs", argument_files.ABOUT, argument_files.FILES, [HERE / "argument_files.py"],
                argument_files.write_argument_files, argument_files.FOLDER),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUTDIR", nargs="?", type=Path)
    parser.add_argument("--only", metavar="NAME", nargs="+", help="only these of --list")
    parser.add_argument("--list", action="store_true", help="tell what there is, and write nothing")
    parser.add_argument("--force", action="store_true", help="also write what is up to date")
    options = parser.parse_args()

    wanted = products()
    if options.only:
        unknown = set(options.only) - {product.name for product in wanted}
        if unknown:
            parser.error(f"no model is called {', '.join(sorted(unknown))} (see --list)")
        wanted = [product for product in wanted if product.name in options.only]
    if options.list:
        width = max(len(product.name) for product in wanted)
        for product in wanted:
            print(f"{product.name:{width}}  {product.about}")
        return 0
    if options.out is None:
        parser.error("OUTDIR is missing")

    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    for count, product in enumerate(wanted, 1):
        print(f"[{count}/{len(wanted)}] {product.name} … ", end="", flush=True)
        if not options.force and product.is_current(options.out):
            print("up to date")
            continue
        start = time.monotonic()
        try:
            product.make(options.out)
        except Exception as error:
            print("failed", flush=True)
            error.add_note(f"while writing {product.name}")
            raise
        print(f"{time.monotonic() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
