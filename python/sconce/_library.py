"""Opens libsconce_ops.so, which registers the operators of torch.ops.sconce."""
import os
from pathlib import Path

import torch

from ._version import LIBTORCH_VERSION, __version__


def _expect_torch() -> None:
    found = torch.__version__.split("+")[0]
    if found != LIBTORCH_VERSION:
        raise ImportError(f"sconce {__version__} needs torch {LIBTORCH_VERSION}, as it uses interfaces of LibTorch that change "
                          f"from version to version; this environment has torch {found}: pip install "
                          f"'torch=={LIBTORCH_VERSION}'")


def library_path() -> str:
    """The path of libsconce_ops.so, for a process without Python: any program with LibTorch may open it."""
    folder = os.environ.get("SCONCE_LIBRARY_DIR", Path(__file__).parent / "lib")
    return str(Path(folder) / "libsconce_ops.so")


def _open() -> None:
    if not Path(library_path()).exists():
        raise ImportError(f"sconce is not complete: {library_path()} is missing; install it again, or set SCONCE_LIBRARY_DIR "
                          "to the folder of the libraries")
    torch.ops.load_library(library_path())


_expect_torch()
_open()
ops = torch.ops.sconce
