#!/usr/bin/env python3
"""Holds the sources to the order of their folders.

A folder of src/ includes itself and the folders named in its `sconce_folder(… DEPENDS …)` of src/CMakeLists.txt, the
public headers include only public headers, and nobody but tools/peers and the tests includes LibTorch's executors,
passes, autodiff and fusers.

    includes.py               checks the tree around this file
    includes.py --self-test   plants one violation of each kind in a copy and fails unless every one is reported
"""
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)

# What sconce replaces. The peers and the tests, to which it is the other side, may use it.
PEER_HEADERS = re.compile(
    r"torch/csrc/jit/(passes/|tensorexpr/|codegen/|runtime/(graph_executor|interpreter|autodiff|profiling_|"
    r"simple_graph_executor|symbolic_script|static/|argument_spec|graph_iterator))")


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


def violations(root: Path) -> list:
    allowed = declared_folders(root)
    found = []
    for path in sources(root, "src", "include", "tools"):
        where = path.relative_to(root)
        text = path.read_text()
        for bracket, target in INCLUDE.findall(text):
            if PEER_HEADERS.match(target) and where.parts[:2] != ("tools", "peers"):
                found.append(f"{where}: includes {target}, which only tools/peers and tests may")
            if bracket == "<":
                continue
            folder = target.split("/")[0]
            if where.parts[0] == "include":
                found.append(f'{where}: a public header includes "{target}"; public headers include <sconce/…> only')
            elif where.parts[0] == "src" and len(where.parts) > 2:
                own = where.parts[1]
                if own not in allowed:
                    found.append(f"{where}: src/{own} is not declared in src/CMakeLists.txt")
                elif folder in allowed:
                    if folder != own and folder not in allowed[own]:
                        found.append(f'{where}: includes "{target}"; src/{own} may not see src/{folder}')
                elif not (path.parent / target).exists() and not (root / "src" / target).exists():
                    found.append(f'{where}: includes "{target}", which is not there')
    return found


def self_test() -> int:
    plants = {
        "an upward include": ("src/ir/planted.h", '#include "executor/compile.h"\n', "may not see src/executor"),
        "fusion and autodiff": ("src/fusion/planted.cpp", '#include "autodiff/x.h"\n', "may not see src/autodiff"),
        "the executor and cuda": ("src/executor/planted.h", '#include "cuda/driver.h"\n', "may not see src/cuda"),
        "an undeclared folder": ("src/misc/planted.h", '#include "ir/graph.h"\n', "not declared"),
        "a public header": ("include/sconce/planted.h", '#include "ir/graph.h"\n', "public header"),
        "a pass of LibTorch": ("src/passes/planted.cpp", "#include <torch/csrc/jit/passes/inliner.h>\n", "only tools/peers"),
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
