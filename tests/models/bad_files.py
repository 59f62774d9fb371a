"""Files that must be refused, or found wrong, with a clear message: damaged models and CASES files with mistakes."""
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Callable

import torch
from torch import Tensor, nn

from cases import STRING, empty_module, set_attributes, write_model
from operators import write_operators
from recipe import RECIPES

FOLDER = "bad"
ABOUT = "damaged models, and CASES files with mistakes"


def flipped(content: bytes, at: int, count: int = 16) -> bytes:
    return content[:at] + bytes(byte ^ 0xFF for byte in content[at:at + count]) + content[at + count:]


def place_of(path: Path, entry: str) -> int:
    """Where in the archive the bytes of the first entry whose name ends so begin, as they are stored."""
    with zipfile.ZipFile(path) as archive:
        header = next(info.header_offset for info in archive.infolist() if info.filename.endswith(entry))
    # A local header: 30 bytes, the last four of which are the lengths of the name and of the extra field.
    name_length, extra_length = struct.unpack_from("<HH", path.read_bytes(), header + 26)
    return header + 30 + name_length + extra_length


def text_file(path: Path) -> None:
    path.write_text("This is not a model.\n" * 50)


def plain_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes/readme.txt", "An archive, but not TorchScript's.")


def state_dict(path: Path) -> None:
    torch.manual_seed(0)
    torch.save(nn.Linear(3, 2).state_dict(), path)


class Holder(nn.Module):
    """Adds a matrix of its own to its argument."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix)

    def forward(self, x: Tensor) -> Tensor:
        return self.matrix.to_dense() + x


def sparse_out_of_range(path: Path) -> None:
    indices = torch.tensor([[0, 1], [2, 1_000_000]])  # of columns, of which there are four
    matrix = torch.sparse_coo_tensor(indices, torch.ones(2), (3, 4), check_invariants=False)
    torch.jit.script(Holder(matrix)).save(str(path))


def csr_out_of_range(path: Path) -> None:
    matrix = torch.sparse_csr_tensor(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 1_000_000]), torch.ones(2), (3, 4),
                                     check_invariants=False)
    torch.jit.script(Holder(matrix)).save(str(path))


def pickled_tensor(path: Path) -> None:
    torch.save(torch.ones(2), path)


# Each made of a good model's path and content.
DAMAGED_MODELS: dict[str, Callable[[Path, bytes], bytes]] = {
    "truncated.pt": lambda path, content: content[:len(content) // 2],
    "truncated_by_one_byte.pt": lambda path, content: content[:-1],
    "flipped_start.pt": lambda path, content: flipped(content, 0),
    "flipped_code.pt": lambda path, content: flipped(content, place_of(path, ".py") + 8),
    "flipped_pickle.pt": lambda path, content: flipped(content, place_of(path, "/data.pkl") + 8),
    # LibTorch loads this one: it doesn't compare checksums. The archive's own say that it is damaged.
    "flipped_weights.pt": lambda path, content: flipped(content, place_of(path, "/data/0") + 8),
    "flipped_directory.pt": lambda path, content: flipped(content, content.rindex(b"PK\x01\x02")),
    "empty.pt": lambda path, content: b"",
}

OTHER_FILES: dict[str, Callable[[Path], None]] = {
    "text.pt": text_file,
    "zip.pt": plain_zip,
    "state_dict.pt": state_dict,
    "tensor.pt": pickled_tensor,
    "sparse_out_of_range.pt": sparse_out_of_range,
    "csr_out_of_range.pt": csr_out_of_range,
}


def off_by_one(tensors: list[Tensor]) -> list[Tensor]:
    """The same tensors, but for one element of the last."""
    last = tensors[-1].clone()
    last.view(-1)[-1] += 1
    return [*tensors[:-1], last]


# File name: (its model, the attribute that is wrong, what becomes of its value). For the operators, which are one
# file, the damaged file is model and cases.
WRONG_CASES: dict[str, tuple[str, str, Callable]] = {
    "mlp_wrong_output.cases.pt": ("mlp", "outputs", off_by_one),
    "mlp_too_few_outputs.cases.pt": ("mlp", "outputs", lambda outputs: outputs[:-1]),
    "mlp_wrong_grad.cases.pt": ("mlp", "grads", off_by_one),
    "mlp_unknown_parameter.cases.pt": ("mlp", "grad_names", lambda names: [*names[:-1], "nowhere.weight"]),
    "mlp_unknown_method.cases.pt": ("mlp", "method", lambda method: "backwards"),
    "mlp_wrong_dtype_inputs.cases.pt": ("mlp", "inputs", lambda inputs: [(x.long(),) for x, in inputs]),
    "conv_bn_small_train_wrong_buffer.cases.pt": ("conv_bn_small_train", "buffers_after", off_by_one),
    "operators_wrong_output.cases.pt": ("operators", "outputs", lambda outputs: [off_by_one(outputs[0]), *outputs[1:]]),
    "operators_wrong_grad.cases.pt": ("operators", "grads", lambda grads: [off_by_one(grads[0]), *grads[1:]]),
}


def without_inputs(path: Path) -> None:
    """A CASES file that lacks what every one has."""
    cases = empty_module("Cases")
    set_attributes(cases, {"method": (STRING, "forward")})
    torch.jit.save(cases, str(path))


OTHER_FILES["mlp_without_inputs.cases.pt"] = without_inputs

FILES = [*DAMAGED_MODELS, *WRONG_CASES, *OTHER_FILES]


def write_bad_files(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        good = Path(scratch)
        for name in ("mlp", "conv_bn_small_train"):
            write_model(RECIPES[name], good)
        write_operators(good)

        model = good / "mlp.pt"
        for name, damage in DAMAGED_MODELS.items():
            (directory / name).write_bytes(damage(model, model.read_bytes()))
        for name, (model_name, attribute, change) in WRONG_CASES.items():
            cases = torch.jit.load(str(good / f"{model_name}.cases.pt"))
            cases._c.setattr(attribute, change(getattr(cases, attribute)))
            torch.jit.save(cases, str(directory / name))
    for name, write in OTHER_FILES.items():
        write(directory / name)
