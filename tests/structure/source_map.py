#!/usr/bin/env python3
"""Holds src/README.md and the list of passes to the sources.

- Each folder that src/CMakeLists.txt declares has a paragraph `## NAME: STATUS` in src/README.md, in the same order, and
  stands in the drawing. STATUS is one of three words.
- Each file that a paragraph names is there, and each subfolder of src/passes is in the table.
- A header that is *waiting* (a `*Waiting:*` sentence, or a paragraph with that status) is included by no .cpp file of
  another folder in use.
- The passes that src/executor/stages.cpp runs have the stage in src/pipeline/pass_list.cpp under which it runs them first.
  The passes that it does not run are on request, and src/README.md names them.
- The header of a pass begins with the sentence that the list has of it.

    source_map.py [--self-test]      as includes.py
"""
import re
import shutil
import sys
import tempfile
from pathlib import Path

from includes import INCLUDE, declared_folders

ROOT = Path(__file__).resolve().parents[2]
STATUSES = ("in use", "on request", "waiting")

# The functions of stages.cpp that run passes, and the stage of each.
STAGES = {
    "required_passes": "kRequired",
    "freeze_method": "kOptimize",
    "optimizing_passes": "kOptimize",
    "pointwise_products": "kSpecialize",
    "inline_and_simplify": "kOptimize",
    "remove_dead_code": "kOptimize",
    "subgraph_passes": "kSpecialize",
    "backward_passes": "kSpecialize",
    "differentiable_passes": "kSpecialize",
    "autocast_passes": "kSpecialize",
    "specializing_passes": "kSpecialize",
    "fuse_passes": "kFuse",
    "record_passes": "kFuse",
}
ORDER = ("kRequired", "kOptimize", "kSpecialize", "kFuse", "kOnRequest")


def paragraphs(root: Path) -> dict:
    """folder -> (status, text), as src/README.md has them"""
    text = (root / "src/README.md").read_text()
    found = {}
    for name, status, body in re.findall(r"^## (\w+): (.*)\n((?:(?!^## ).*\n?)*)", text, re.MULTILINE):
        found[name] = (status, body)
    return found


def sentence_after(mark: str, text: str) -> str:
    """The first sentence after "*MARK:*", or nothing."""
    found = re.search(rf"\*{mark}:\*\s(.*?)(?:\.\s|\.?\Z)", text, re.DOTALL)
    return found.group(1) if found else ""


def quoted_files(text: str) -> list:
    return re.findall(r"`([\w/]+\.(?:h|cpp|md))`", text)


def folder_violations(root: Path) -> list:
    declared, described = list(declared_folders(root)), paragraphs(root)
    found = []
    for name in declared:
        if name not in described:
            found.append(f"src/README.md: no paragraph '## {name}: …' for the folder that src/CMakeLists.txt declares")
        elif described[name][0] not in STATUSES:
            found.append(f"src/README.md: {name} has the status '{described[name][0]}'; there are {', '.join(STATUSES)}")
    found += [f"src/README.md: '## {name}', which src/CMakeLists.txt does not declare" for name in described if name not in declared]
    if not found and list(described) != declared:
        found.append("src/README.md: the paragraphs are not in the order of src/CMakeLists.txt")
    drawing = re.search(r"```\n(.*?)```", (root / "src/README.md").read_text(), re.DOTALL)
    drawn = [word for word in re.findall(r"[\w/]+", drawing.group(1)) if word in declared]
    if drawn != declared:
        found.append(f"src/README.md: draws {' '.join(drawn)}; src/CMakeLists.txt declares {' '.join(declared)}")
    for name, (_, body) in described.items():
        for file in quoted_files(body):
            if not any((root / "src" / place / file).exists() for place in (name, "", "passes")):
                found.append(f"src/README.md: {name} names {file}, which is not there")
    table = re.findall(r"^\| `(\w+)/` \|", described.get("passes", ("", ""))[1], re.MULTILINE)
    folders = [path.name for path in (root / "src/passes").iterdir() if path.is_dir()]
    for name in sorted(set(table) ^ set(folders)):
        found.append(f"src/README.md: the table of passes and src/passes do not both have {name}/")
    return found


def waiting_headers(root: Path) -> dict:
    """header -> the folder whose paragraph says that it waits"""
    found = {}
    for name, (status, body) in paragraphs(root).items():
        if status == "waiting":
            for path in (root / "src" / name).rglob("*.h"):
                found[path.relative_to(root / "src").as_posix()] = name
        for file in quoted_files(sentence_after("Waiting", body)):
            found[f"{name}/{file}"] = name
    return found


def waiting_violations(root: Path) -> list:
    waiting = waiting_headers(root)
    whole_folders = {name for name, (status, _) in paragraphs(root).items() if status == "waiting"}
    found = []
    for path in sorted((root / "src").rglob("*.cpp")):
        where = path.relative_to(root / "src")
        if where.parts[0] in whole_folders:
            continue
        for _, target in INCLUDE.findall(path.read_text()):
            if target in waiting and where.parent.as_posix() != Path(target).parent.as_posix():
                found.append(f"src/{where}: includes {target}, which src/README.md calls waiting")
    return found


def named_stages(root: Path) -> dict:
    """pass -> its stage in pass_list.cpp"""
    text = (root / "src/pipeline/pass_list.cpp").read_text()
    return dict(re.findall(r'PassInfo\{"(\w+)", \w+, Stage::(\w+)', text))


def unnamed_passes(root: Path) -> set:
    """The passes that need what only a compile has."""
    text = (root / "src/pipeline/pass_list.cpp").read_text()
    return set(re.findall(r'"(\w+)"', re.search(r"kPassesWithArguments = \{(.*?)\};", text, re.DOTALL).group(1)))


def run_stages(root: Path) -> tuple:
    """pass -> the stage in which stages.cpp runs it first; and what is wrong with stages.cpp"""
    text = (root / "src/executor/stages.cpp").read_text()
    simplified = re.findall(r'changes\("(\w+)"', (root / "src/passes/simplify/simplify.cpp").read_text())
    found, stages = [], {}
    definition = re.compile(r"^(?!namespace)\S.*?\b(\w+)\([^;]*?\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
    for function, body in definition.findall(text):
        passes = re.findall(r'\.run\(\s*"(\w+)"', body) + re.findall(r'find_pass\("(\w+)"\)', body)
        passes += simplified if re.search(r"\bsimplify\(", body) else []
        if function == "run_stage":
            continue  # one case for each stage
        if passes and function not in STAGES:
            found.append(f"src/executor/stages.cpp: {function} runs {passes[0]}; STAGES of source_map.py does not know its stage")
            continue
        for name in passes:
            stages[name] = min(stages.get(name, "kOnRequest"), STAGES[function], key=ORDER.index)
    return stages, found


def pass_violations(root: Path) -> list:
    named = named_stages(root)
    run, found = run_stages(root)
    unnamed = unnamed_passes(root)
    for name, stage in run.items():
        if name not in named and name not in unnamed:
            found.append(f"src/executor/stages.cpp: runs {name}, which src/pipeline/pass_list.cpp does not list")
        elif name in named and named[name] != stage:
            found.append(f"src/pipeline/pass_list.cpp: {name} is {named[name]}; src/executor/stages.cpp runs it first in {stage}")
    on_request = {name for name, stage in named.items() if stage == "kOnRequest"}
    found += [f"src/pipeline/pass_list.cpp: {name} is {stage}; src/executor/stages.cpp does not run it"
              for name, stage in named.items() if name not in run and stage != "kOnRequest"]
    described = {Path(name).name for name in re.findall(r"`([\w/]+)`", sentence_after("On request", paragraphs(root)["passes"][1]))}
    found += [f"src/README.md: {name} is either named on request and runs in a compile, or the reverse"
              for name in sorted(on_request ^ described)]
    return found


def sentence_violations(root: Path) -> list:
    text = (root / "src/pipeline/pass_list.cpp").read_text()
    headers = {path.stem: path for path in (root / "src").rglob("*.h")}
    found = []
    for name, quoted in re.findall(r'PassInfo\{"(\w+)",\s*\w+,\s*Stage::\w+,\s*((?:"[^"]*"\s*)+)', text):
        sentence = "".join(re.findall(r'"([^"]*)"', quoted))
        sentence = sentence[0].upper() + sentence[1:] + "."
        header = headers[name].read_text() if name in headers else ""
        opening = header.split("#pragma once")[0].replace("\n//", "").removeprefix("// ")
        if not opening.startswith(sentence):
            found.append(f"src/pipeline/pass_list.cpp: the header of {name} does not begin with '{sentence}'")
    return found


def violations(root: Path) -> list:
    return folder_violations(root) + waiting_violations(root) + pass_violations(root) + sentence_violations(root)


def self_test() -> int:
    readme, lists, driver = "src/README.md", "src/pipeline/pass_list.cpp", "src/executor/stages.cpp"
    # what is planted: (file, text, replacement, what the report says)
    plants = {
        "a folder without a paragraph": (readme, "## autodiff: in use\n", "", "no paragraph"),
        "a status of its own": (readme, "## plan: in use", "## plan: nearly done", "nearly done"),
        "a folder that is not drawn": (readme, "autodiff plan", "plan", "draws"),
        "a file that is gone": (readme, "`effects.h`", "`effect.h`", "effect.h"),
        "a subfolder of passes": (readme, "| `layout/` |", "| `layouts/` |", "layout"),
        "a waiting header in use": (readme, "*On request:* `dot.h` draws", "*Waiting:* `escapes.h` draws", "escapes.h"),
        "a waiting folder in use": (readme, "## shapes: in use", "## shapes: waiting", "waiting"),
        "a pass on request that runs": (lists, "unroll_loops, Stage::kOptimize", "unroll_loops, Stage::kOnRequest", "runs it first"),
        "a pass that no stage runs": (driver, 'runner.run("check_inplace", check_inplace, graph);', "", "does not run it"),
        "a pass without a name": (driver, 'runner.run("check_inplace"', 'runner.run("check_in_place"', "does not list"),
        "a function without a stage": (driver, "void required_passes(", "void first_passes(", "does not know its stage"),
        "a sentence of a pass that is another in its header": (lists, "unrolls loops with", "unrolls all loops with", "does not begin"),
        "a pass on request without a word": (readme, "`loops/partially_unroll_loops`", "`loops/unroll_loops`", "on request"),
    }
    missed = []
    for name, (file, text, replacement, expected) in plants.items():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "src", Path(folder) / "src")
            target = Path(folder) / file
            before = target.read_text()
            target.write_text(before.replace(text, replacement))
            if text not in before or not any(expected in line for line in violations(Path(folder))):
                missed.append(name)
    print(f"{len(plants) - len(missed)} of {len(plants)} planted violations found")
    for name in missed:
        print(f"not found: {name}")
    return 1 if missed else 0


def main() -> int:
    if "--self-test" in sys.argv:
        return self_test()
    found = violations(ROOT)
    print("\n".join(found) if found else f"{len(declared_folders(ROOT))} folders are as src/README.md says, "
          f"{len(waiting_headers(ROOT))} headers wait, {len(run_stages(ROOT)[0])} passes have their stages")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
