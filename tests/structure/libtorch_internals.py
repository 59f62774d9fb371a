"""Holds src/ to docs/libtorch_versions.md: which files include headers that LibTorch has for itself.

The page's table has a row for each such header. Another file that includes one, and a row that nothing stands for, fail.

    libtorch_internals.py               checks the tree around this file
    libtorch_internals.py --table       prints the rows that the tree has, without what they are for
    libtorch_internals.py --self-test   plants a violation of each kind in a copy and fails unless each is reported
"""
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
# Headers that are no part of LibTorch's documented C++ interface.
INTERNAL = re.compile(
    r"ATen/(native|detail)/|ATen/core/dispatch/OperatorEntry\.h|caffe2/|c10/core/impl/(COW|\w*GuardImpl\w*)\.h"
    r"|torch/csrc/dynamo/|torch/csrc/jit/runtime/(graph_executor_impl|interpreter|serialized_shape\w*)\.h"
    r"|torch/csrc/jit/frontend/tracer\.h|torch/csrc/jit/serialization/(import_read|storage_context|pickle)\.h"
    r"|torch/csrc/autograd/(engine|graph_task|input_buffer|saved_variable|function_hook|cpp_hook|anomaly_mode)\.h"
    r"|torch/csrc/autograd/functions/")
ROW = re.compile(r"^\| `([^`]+\.h)` \| ([^|]*) \|", re.MULTILINE)


def included(root: Path) -> dict[str, set[str]]:
    found = defaultdict(set)
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in (".h", ".cpp"):
            for header in INCLUDE.findall(path.read_text()):
                if INTERNAL.match(header):
                    found[header].add(str(path.relative_to(root / "src")))
    return found


def failures_of(root: Path) -> list[str]:
    found = included(root)
    page = (root / "docs/libtorch_versions.md").read_text()
    listed = {header: set(re.findall(r"`([^`]+)`", files)) for header, files in ROW.findall(page)}
    failures = [f"docs/libtorch_versions.md: {header}: says {sorted(listed.get(header, set()))}, src/ has {sorted(files)}"
                for header, files in sorted(found.items()) if listed.get(header) != files]
    return failures + [f"docs/libtorch_versions.md: {header}: no file includes it"
                       for header in sorted(set(listed) - set(found))]


def self_test() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "src", copy / "src")
        (copy / "docs").mkdir()
        shutil.copy(ROOT / "docs/libtorch_versions.md", copy / "docs")
        with open(copy / "src/base/arena.h", "a") as file:
            file.write("#include <ATen/native/Pool.h>\n")
        alone = copy / "src/pipeline/graph_file.cpp"
        alone.write_text(alone.read_text().replace("#include <torch/csrc/jit/serialization/pickle.h>", ""))
        reported = "\n".join(failures_of(copy))
    return [f"self-test: {planted} is not reported" for planted in ("ATen/native/Pool.h: says []", "pickle.h: no file")
            if planted not in reported]


if "--table" in sys.argv:
    for name, files in sorted(included(ROOT).items()):
        print(f"| `{name}` | {', '.join(f'`{each}`' for each in sorted(files))} | |")
    sys.exit(0)
failures = self_test() if "--self-test" in sys.argv else failures_of(ROOT)
print("\n".join(failures) or f"{len(included(ROOT))} headers of LibTorch's own, each where the page says")
sys.exit(1 if failures else 0)
