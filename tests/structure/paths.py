"""Fails if a library or program that is shipped names a source file by its path in the build: messages quote __FILE__.

    paths.py SOURCE_DIR FILE...
    paths.py --self-test
"""

import re
import sys
import tempfile
from pathlib import Path


def paths_in(file: Path, source_dir: str) -> list[str]:
    pattern = re.escape(source_dir.encode()) + rb"/(?:src|include|tools)/[\w./-]+\.(?:cpp|h)"
    return sorted({found.decode() for found in re.findall(pattern, file.read_bytes())})


def self_test() -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "library.so"
        file.write_bytes(b'\0x at "C/sconce/src/ir/graph.cpp":12\0src/ir/node.cpp\0C/sconce/build/venv/lib:\0')
        found = paths_in(file, "C/sconce")
    if found != ["C/sconce/src/ir/graph.cpp"]:
        print(f"the self-test finds {found}")
        return 1
    return 0


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    source_dir, *files = sys.argv[1:]
    found = [f"{file}: has the path {path}" for file in files for path in paths_in(Path(file), source_dir)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
