"""Argument files as a user writes them: torch.save((argument, ...), FILE). Good ones, and misfits.

`MODEL.inputs.pt` fits MODEL's forward. `MODEL_what.inputs.pt` is for the same model, and `what` says what is special.
"""
from pathlib import Path
from typing import Any, Callable

import torch

FOLDER = "inputs"
ABOUT = "argument files for `run`, fitting and not fitting"

ARGUMENTS: dict[str, Callable[[], Any]] = {
    "mlp": lambda: (torch.randn(4, 16),),
    "mlp_many_rows": lambda: (torch.randn(256, 16),),
    "mlp_list": lambda: [torch.randn(4, 16)],  # a list of arguments instead of a tuple
    "mlp_tensor": lambda: torch.randn(4, 16),  # the argument itself
    "mlp_nothing": lambda: (),
    "mlp_too_many": lambda: (torch.randn(4, 16), torch.randn(4, 16)),
    "mlp_wrong_type": lambda: ("sixteen numbers",),
    "mlp_wrong_dtype": lambda: (torch.randint(9, (4, 16)),),
    "mlp_wrong_shape": lambda: (torch.randn(4, 15),),
    "resnet18": lambda: (torch.randn(1, 3, 64, 64),),
    "resnet18_too_many": lambda: (torch.randn(1, 3, 64, 64), 1),
    "resnet18_wrong_type": lambda: (None,),
    "resnet18_wrong_dtype": lambda: (torch.randn(1, 3, 64, 64).double(),),
    "resnet18_wrong_shape": lambda: (torch.randn(1, 4, 64, 64),),
    "control_flow": lambda: (torch.randn(2, 8), 3, "large relu", [torch.rand(2), torch.rand(0)], None,
                             {"a": torch.ones(2), "b": torch.zeros(1)}),
    # The methods of control_flow that raise, with arguments for which they do and don't.
    "control_flow_raises": lambda: (torch.ones(2, 8), 0.5),
    "control_flow_raises_returning": lambda: (torch.ones(2, 8), 1.5),
    "control_flow_raises_after_writing": lambda: (torch.zeros(2, 3),),
    "control_flow_asserts": lambda: (-1,),
    "control_flow_picks": lambda: ([1, 2, 3], 3),
    "control_flow_divides": lambda: (1, 0),
    "control_flow_looks_up": lambda: ({"here": 1}, "there"),
    "control_flow_multiplies": lambda: (torch.ones(2, 3), torch.ones(2, 3)),
    "control_flow_nan": lambda: (torch.full((1, 8), float("nan")), 1, "small", [], None, {}),  # forward raises
    "lstm": lambda: (torch.randn(3, 2, 12), (torch.randn(4, 2, 16), torch.randn(4, 2, 16))),
    "none_and_optional": lambda: (None, torch.randn(2, 4), None, None),
}

FILES = [f"{name}.inputs.pt" for name in ARGUMENTS]


def write_argument_files(directory: Path) -> None:
    torch.manual_seed(0)
    for name, arguments in ARGUMENTS.items():
        torch.save(arguments(), directory / f"{name}.inputs.pt")
