#!/usr/bin/env python3
"""Every link of a page leads to a file and a heading that are there, and every path that a page quotes is there.

    links.py [--self-test]      as includes.py
"""
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
# Paths in words of the text; those with placeholders in capitals, wildcards or braces stand for several files.
QUOTED = re.compile(r"`((?:src|include|tests|docs|tools|bench|examples|cmake)/[a-z0-9_./]+)`")


def pages(root: Path) -> list:
    return sorted([*root.glob("*.md"), *(root / "docs").glob("*.md"), *(root / "src").rglob("*.md"),
                   *(root / "tests").glob("*.md"), *(root / "examples").rglob("*.md")])


def anchors(page: str) -> set:
    """The anchors that GitHub gives the headings of a page."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", page), re.MULTILINE):
        text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return found


def exists(root: Path, name: str) -> bool:
    """Whether a quoted path is a file, a folder with files or, as a source without its ending, several files.

    A folder without files is what git leaves when its files move; a fresh clone doesn't have it.
    """
    path = root / name
    return path.is_file() or any(file.is_file() for file in path.rglob("*")) or any(path.parent.glob(path.name + ".*"))


def violations(root: Path) -> list:
    found = []
    for page in pages(root):
        where, text = page.relative_to(root), FENCE.sub("", page.read_text())
        for link in LINK.findall(text):
            if "://" in link:
                continue
            target, _, anchor = link.partition("#")
            file = (page.parent / target).resolve() if target else page
            if not file.exists():
                found.append(f"{where}: links to {link}, which is not there")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
                found.append(f"{where}: links to {link}; the page has no such heading")
        found += [f"{where}: names {name}, which is not there" for name in QUOTED.findall(text) if not exists(root, name)]
    return found


def self_test() -> int:
    plants = {
        "a page that is gone": ("[x](gone.md)", "gone.md, which is not there"),
        "a heading that is gone": ("[x](#gone)", "no such heading"),
        "a heading of another page that is gone": ("[x](other.md#gone)", "no such heading"),
        "a source that is gone": ("`src/ir/gone.h`", "src/ir/gone.h, which is not there"),
        "a folder without files": ("`src/moved`", "src/moved, which is not there"),
    }
    harmless = "# A `b`: c's (d)\n[x](#a-b-cs-d) [y](other.md#two-words) [z](https://example.org/gone)\n```\n[x](gone.md)\n```\n"
    missed = []
    for name, (text, expected) in plants.items():
        with tempfile.TemporaryDirectory() as folder:
            docs = Path(folder) / "docs"
            docs.mkdir()
            (Path(folder) / "src/moved").mkdir(parents=True)
            (docs / "other.md").write_text("## Two words\n")
            (docs / "page.md").write_text(harmless)
            if violations(Path(folder)):
                missed.append("that links may be right")
            (docs / "page.md").write_text(harmless + text + "\n")
            if not any(expected in line for line in violations(Path(folder))):
                missed.append(name)
    print(f"{len(plants) - len(missed)} of {len(plants)} planted violations found")
    for name in missed:
        print(f"not found: {name}")
    return 1 if missed else 0


def main() -> int:
    if "--self-test" in sys.argv:
        return self_test()
    found = violations(ROOT)
    print("\n".join(found) if found else f"the links of {len(pages(ROOT))} pages lead to something")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
