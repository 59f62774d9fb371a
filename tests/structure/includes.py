#!/usr/bin/env python3
"""Holds the sources to the order of their folders.

- A folder of src/ includes itself and the folders named in its `sconce_folder(… DEPENDS …)` of src/CMakeLists.txt, which
  stand above it there (CMake checks that).
- The rooms of a folder, ROOMS below, include only those before them.
- A public header belongs to a folder of src/, OWNERS below, and is included as that folder's other headers are. Public
  headers include only public headers.
- Only tools/peers and the tests include LibTorch's executors, passes, autodiff and fusers; src/in_place, which stands in the
  place of an executor, includes the executor and the interpreter.
- The code generator and the terminal's output, which are compiled without LibTorch, include none of it.

    includes.py               checks the tree around this file
    includes.py --self-test   plants one violation of each kind in a copy and fails unless every one is reported
"""
import re
import shutil
import sys
import tempfile
from pathlib import Path

from replaced_headers import REPLACED

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)

# Opens the insides that passes are written with to their authors.
PASS_HEADER = Path("include/sconce/pass.h")
PASS_FOLDERS = ("base", "ops", "ir", "analysis", "pipeline")

# The folder that each public header belongs to.
OWNERS = {
    "explanation.h": "base",
    "headers_hash.h": "base",
    "log.h": "base",
    "script_error.h": "base",
    "step_trace.h": "plan",
    "version.h": "base",
    "pass.h": "pipeline",
    "pass_pipeline.h": "pipeline",
    "pass_plugin.h": "pipeline",
    "graph_executor.h": "executor",
    "module.h": "executor",
    "options.h": "executor",
    "status.h": "executor",
    "captured_optimizer.h": "training",
    "compiled_backward.h": "training",
    "data_parallel.h": "training",
    "trace.h": "training",
    "train_step.h": "training",
    "in_place.h": "in_place",
    "sconce.h": "training",
}

CODE_GENERATOR = "src/fusion/cpu/llvm"
TORCH_FREE = (CODE_GENERATOR, "tools/sconce/ui")

# The rooms of a folder: each includes those before it. "" stands for the folder's own files.
ROOMS = {
    "fusion": ("program", "group", "cpu", "cuda", ""),
    "plan": ("device", "", "autograd", "steps", "prepared", "captured", "timeline"),
}
# A run that somebody times tells the timer of its steps.
AGAINST_ROOMS = {("src/plan/run_plan.cpp", "plan/timeline/step_timer.h")}

# What the library of acceleration in place stands for.
IN_PLACE = re.compile(r"torch/csrc/jit/runtime/(graph_executor_impl|interpreter)\.h$")

LIBTORCH_HEADERS = re.compile(r"(torch|ATen|c10|caffe2)/")


def declared_folders(root: Path) -> dict:
    """folder -> the folders it may include, as src/CMakeLists.txt declares them."""
    text = (root / "src/CMakeLists.txt").read_text()
    folders = {}
    for name, rest in re.findall(r"^sconce_folder\((\w+)([^)]*)\)", text, re.MULTILINE):
        words = rest.split()
        allowed = words[words.index("DEPENDS") + 1:] if "DEPENDS" in words else []
        folders[name] = set(allowed[:allowed.index("EXCEPT")] if "EXCEPT" in allowed else allowed)
    return folders


def sources(root: Path, *folders: str):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                yield path


def room_of(path: str) -> int:
    """The place of the file in the order of its folder's rooms; -1 in a folder without rooms"""
    parts = path.split("/")
    rooms = ROOMS.get(parts[0])
    return -1 if rooms is None else rooms.index(parts[1] if len(parts) > 2 else "")


def violations(root: Path) -> list:
    allowed = declared_folders(root)
    found = []
    for path in sources(root, "src", "include", "tools", "bench", "examples"):
        where = path.relative_to(root)
        top, own = where.parts[0], where.parts[1]
        torch_free = any(where.is_relative_to(folder) for folder in TORCH_FREE)
        if top == "src" and len(where.parts) > 2 and own not in allowed:
            found.append(f"{where}: src/{own} is not declared in src/CMakeLists.txt")
            continue
        for bracket, target in INCLUDE.findall(path.read_text()):
            folder = target.split("/")[0]
            if (REPLACED.match(target) and (top, own) != ("tools", "peers")
                    and not ((top, own) == ("src", "in_place") and IN_PLACE.match(target))):
                found.append(f"{where}: includes {target}, which only tools/peers and the tests may")
            elif LIBTORCH_HEADERS.match(target) and torch_free:
                found.append(f"{where}: includes {target}, but is compiled without LibTorch")
            elif folder == "llvm" and not where.is_relative_to(CODE_GENERATOR):
                found.append(f"{where}: includes {target}, which only {CODE_GENERATOR} may")
            elif ".." in target.split("/"):
                found.append(f"{where}: includes {target}; name headers from the root")
            elif top not in ("src", "include"):
                continue
            elif folder == "sconce":
                includer = OWNERS.get(where.name) if top == "include" else own
                owner = OWNERS.get(target.split("/")[1])
                if owner is None or includer is None:
                    found.append(f"{where}: includes <{target}>; OWNERS of includes.py does not name both headers' folders")
                elif owner != includer and owner not in allowed[includer]:
                    found.append(f"{where}: includes <{target}> of src/{owner}, which src/{includer} may not see")
            elif bracket == "<":
                continue
            elif where == PASS_HEADER and folder in PASS_FOLDERS:
                continue
            elif top == "include":
                found.append(f'{where}: a public header includes "{target}"; public headers include <sconce/…> only')
            elif folder in allowed and len(where.parts) > 2:
                if folder != own and folder not in allowed[own]:
                    found.append(f'{where}: includes "{target}"; src/{own} may not see src/{folder}')
                elif (folder == own and room_of(target) > room_of("/".join(where.parts[1:]))
                      and (str(where), target) not in AGAINST_ROOMS):
                    found.append(f'{where}: includes "{target}" of a room behind it; ROOMS of includes.py has the order')
            elif folder in allowed:  # a file in src/ itself is part of libsconce, which opens libsconce_cuda at run time
                if folder == "cuda":
                    found.append(f'{where}: includes "{target}"; libsconce may not see src/cuda')
            elif "/" in target or not (path.parent / target).exists():
                found.append(f'{where}: includes "{target}", which is in no folder of src/')
    return found


def self_test() -> int:
    plants = {
        "an upward include": ("src/ir/planted.h", '#include "executor/compile.h"\n', "may not see src/executor"),
        "fusion and the executor": ("src/fusion/planted.cpp", '#include "executor/compile.h"\n', "may not see src/executor"),
        "the executor and cuda": ("src/executor/planted.h", '#include "cuda/driver.h"\n', "may not see src/cuda"),
        "an undeclared folder": ("src/misc/planted.h", '#include "ir/graph.h"\n', "not declared"),
        "a public header": ("include/sconce/planted.h", '#include "ir/graph.h"\n', "public header"),
        "a public header of an upper folder": ("src/plan/planted.h", "#include <sconce/options.h>\n", "may not see"),
        "one by way of another": ("include/sconce/explanation.h", "#include <sconce/options.h>\n", "may not see"),
        "a public header of nobody": ("src/executor/planted.h", "#include <sconce/nobody.h>\n", "OWNERS"),
        "a pass of LibTorch": ("src/passes/planted.cpp", "#include <torch/csrc/jit/passes/inliner.h>\n", "only tools/peers"),
        "a folder of nobody": ("src/ir/planted.cpp", '#include "misc/x.h"\n', "in no folder"),
        "a detour": ("src/plan/planted.cpp", '#include "../executor/compile.h"\n', "from the root"),
        "tools from src": ("src/executor/planted.cpp", '#include "tools/peers/peer.h"\n', "in no folder"),
        "a room behind another": ("src/fusion/program/planted.cpp", '#include "fusion/cpu/llvm_text.h"\n', "a room behind it"),
        "LLVM outside its folder": ("src/fusion/planted.cpp", "#include <llvm/IR/Module.h>\n", "only src/fusion/cpu/llvm"),
        "LibTorch in the code generator": ("src/fusion/cpu/llvm/planted.cpp", "#include <ATen/ATen.h>\n", "without LibTorch"),
        "LibTorch in the terminal's output": ("tools/sconce/ui/planted.h", "#include <c10/util/Exception.h>\n", "without LibTorch"),
        "LibTorch's executor": ("tools/sconce/planted.cpp", "#include <torch/csrc/jit/runtime/graph_executor.h>\n", "only tools/peers"),
    }
    missed = []
    for name, (path, text, message) in plants.items():
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder)
            for part in ("src", "include", "tools"):
                shutil.copytree(ROOT / part, copy / part)
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_text(text)
            if not any(path in line and message in line for line in violations(copy)):
                missed.append(name)
    print(f"{len(plants) - len(missed)} of {len(plants)} planted violations found")
    for name in missed:
        print(f"not found: {name}")
    return 1 if missed else 0


def main() -> int:
    if "--self-test" in sys.argv:
        return self_test()
    found = violations(ROOT)
    print("\n".join(found) if found else f"{len(list(sources(ROOT, 'src', 'include', 'tools')))} files, every include points down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
