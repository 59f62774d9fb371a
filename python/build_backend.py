"""What pip calls to build the wheel: scikit-build-core, with the LibTorch that is there.

The build needs torch 2.11.0: of SCONCE_LIBTORCH_DIR, of build/venv (tools/setup.sh), or of the environment that the wheel is
installed into. Where none has it, pip downloads it for the build.
"""
import os
import sysconfig
from pathlib import Path

from scikit_build_core import build as _scikit
from scikit_build_core.build import *  # noqa: F403 (the other functions that pip may call)

_ROOT = Path(__file__).resolve().parents[1]
_TORCH = "torch==2.11.0"


def _libtorch() -> Path | None:
    candidates = [Path(os.environ["SCONCE_LIBTORCH_DIR"])] if os.environ.get("SCONCE_LIBTORCH_DIR") else []
    candidates += sorted(_ROOT.glob("build/venv/lib/python3*/site-packages/torch"))
    candidates.append(Path(sysconfig.get_path("platlib")) / "torch")
    return next((each for each in candidates if (each / "lib/libtorch_cpu.so").exists()), None)


def get_requires_for_build_wheel(config_settings=None):
    return _scikit.get_requires_for_build_wheel(config_settings) + ([] if _libtorch() else [_TORCH])


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    libtorch = _libtorch()
    if libtorch is None:
        import torch
        libtorch = Path(torch.__file__).parent
    os.environ["SCONCE_LIBTORCH_DIR"] = str(libtorch)
    return _scikit.build_wheel(wheel_directory, config_settings, metadata_directory)
