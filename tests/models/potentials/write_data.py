#!/usr/bin/env python3
"""Writes NAME.data.pt for each model: 12 cases with other numbers of atoms and edges, and targets for training.

    python write_data.py [NAME...]      # after models.py

NAME.data.pt is a TorchScript archive without methods, with the attributes

  inputs              List[Tuple[...]]  positional arguments of `forward`
  energies            List[Tensor]      target of the energy: a scalar; one for each molecule of `charges`
  forces              List[Tensor]      target of the forces, [N, 3]
  virials             List[Tensor]      target of the virial, [3, 3]; empty if the model has none
  positions_argument  int               which argument the positions are
  argument_names      List[str]
  learning_rate       float             of SGD, at which 300 steps lower the loss, and two runs that differ by rounding stay
                                        together
  adam_rate           float             of Adam
  force_weight        float             the loss is the mean square of the energy's error, plus this times that of the forces,
                                        plus virial_weight times that of the virial
  virial_weight       float

The targets are what a teacher computes: the same model with other parameters.
"""
import sys
from pathlib import Path
from typing import List, Tuple

import torch
from torch import Tensor

import models

ATOMS = [8, 13, 21, 10, 40, 17, 29, 9, 34, 12, 25, 15]  # 12 cases, neighbors in the list unlike
# found by tune.py
LEARNING_RATE = {"pair": 1e-4, "angular": 5e-4, "angular_ani": 2e-4, "message": 5e-5, "virial": 1e-5, "virial_restored": 1e-5,
                 "double_precision": 2e-4, "outside": 5e-5, "charges": 3e-4, "neighbors": 1e-4, "neighbors_class": 5e-5}
ADAM_RATE = {"angular": 3e-4, "virial": 3e-5, "virial_restored": 3e-5, "outside": 1e-4,
             "neighbors": 3e-4, "neighbors_class": 3e-4, "charges": 3e-4}  # of the others 1e-3
# energies and forces then have gradients of the parameters of like size, where rounding allows it
FORCE_WEIGHT = {"pair": 20, "angular": 80, "angular_ani": 300, "message": 1000, "virial": 100, "virial_restored": 100,
                "double_precision": 500, "outside": 2000, "charges": 400, "neighbors": 2000, "neighbors_class": 1000}


def write_attributes(path: Path, attributes: dict) -> None:
    """attributes: name -> (value, TorchScript type, or None to infer it)."""
    module = torch._C.ScriptModule("Cases", torch._C.CompilationUnit(), True)
    for name, (value, type_) in attributes.items():
        if type_ is None:
            type_ = torch._C._jit_try_infer_type(value).type()
        module._register_attribute(name, type_, value)
    torch.jit.save(torch.jit._recursive.wrap_cpp_module(module), str(path))


def random_cell(atoms: int, generator: torch.Generator) -> Tensor:
    side = (atoms / 0.06) ** (1 / 3)
    return torch.eye(3) * side + 0.3 * torch.rand(3, 3, generator=generator)


def random_positions(atoms: int, cell: Tensor, generator: torch.Generator, periodic: bool, closest: float = 1.15) -> Tensor:
    offsets = torch.cartesian_prod(*[torch.arange(-1.0, 2.0)] * 3) @ cell if periodic else torch.zeros(1, 3)
    placed: List[Tensor] = []
    while len(placed) < atoms:
        new = torch.rand(3, generator=generator) @ cell
        if all(((new - old + offsets).norm(dim=-1) > closest).all() for old in placed):
            placed.append(new)
    return torch.stack(placed)


def edges_within(positions: Tensor, cutoff: float) -> Tensor:
    distance = (positions.unsqueeze(0) - positions.unsqueeze(1)).norm(dim=-1).fill_diagonal_(2 * cutoff)
    return torch.nonzero(distance < cutoff).t().contiguous()


def periodic_edges(positions: Tensor, cell: Tensor, cutoff: float) -> Tuple[Tensor, Tensor]:
    """Returns edges (i, j) and the cells that j is shifted by."""
    offsets = torch.cartesian_prod(*[torch.arange(-1.0, 2.0)] * 3)
    vectors = positions[None, :, None] - positions[:, None, None] + (offsets @ cell)[None, None]
    distance = vectors.norm(dim=-1)
    found = torch.nonzero((distance < cutoff) & (distance > 1e-6))
    return found[:, :2].t().contiguous(), offsets[found[:, 2]]


def triplets_of(positions: Tensor, cutoff: float) -> Tensor:
    """Returns center, first and second atom of each angle, once."""
    edges = edges_within(positions, cutoff)
    rows = []
    for center in range(positions.size(0)):
        around = edges[1][edges[0] == center]
        pairs = torch.combinations(around, 2)
        rows.append(torch.cat([torch.full((pairs.size(0), 1), center), pairs], dim=1))
    return torch.cat(rows).t().contiguous()


def arguments(name: str, atoms: int, generator: torch.Generator) -> Tuple[List[str], tuple]:
    cell = random_cell(atoms, generator)
    species = torch.randint(models.SPECIES, (atoms,), generator=generator)
    if name.startswith("virial"):
        positions = random_positions(atoms, cell, generator, True)
        edges, shifts = periodic_edges(positions, cell, models.CUTOFF)
        return ["positions", "species", "edge_index", "shifts", "cell"], (positions, species, edges, shifts, cell)
    if name == "charges":
        # 2 to 5 molecules far from each other; edges are within a molecule
        molecules = 2 + atoms % 4
        sizes = [atoms // molecules + (1 if m < atoms % molecules else 0) for m in range(molecules)]
        parts = [random_positions(n, random_cell(n, generator), generator, False) + 50.0 * m for m, n in enumerate(sizes)]
        # molecules of a batch lie in the same place, as data loaders have them
        starts = [sum(sizes[:m]) for m in range(molecules)]
        edges = torch.cat([edges_within(p, models.CUTOFF) + s for p, s in zip(parts, starts)], dim=1)
        positions = torch.cat([p - 50.0 * m for m, p in enumerate(parts)])
        batch = torch.repeat_interleave(torch.arange(molecules), torch.tensor(sizes))
        total_charge = torch.randint(-1, 2, (molecules,), generator=generator).float()
        return ["positions", "species", "edge_index", "batch", "total_charge"], (positions, species, edges, batch, total_charge)
    positions = random_positions(atoms, cell, generator, False)
    if name.startswith("neighbors"):
        return ["positions", "species"], (positions, species)
    edges = edges_within(positions, models.CUTOFF)
    if name.startswith("angular"):
        triplets = triplets_of(positions, models.ANGULAR_CUTOFF)
        return ["species", "positions", "edge_index", "triplets"], (species, positions, edges, triplets)
    if name == "double_precision":
        positions = positions.double()
    return ["positions", "species", "edge_index"], (positions, species, edges)


def arguments_with_new_count(name: str, atoms: int, generator: torch.Generator, taken: List[int]) -> tuple:
    """Draws until the number of edges is none of those taken."""
    while True:
        names, case = arguments(name, atoms, generator)
        positions = case[names.index("positions")]
        edges = case[names.index("edge_index")] if "edge_index" in names else edges_within(positions, models.CUTOFF)
        if edges.size(1) not in taken:
            return names, case, edges.size(1)


def energy_and_forces(result, positions: Tensor) -> Tuple[Tensor, Tensor]:
    if isinstance(result, dict):
        return result["energy"], result["forces"]
    if isinstance(result, tuple):
        return result[0], result[1]
    return result, -torch.autograd.grad([result], [positions])[0]


def write(name: str) -> None:
    number = sorted(models.MODELS).index(name)
    generator = torch.Generator().manual_seed(100 + number)
    teacher = models.make(name).eval()
    with torch.no_grad():
        for parameter in teacher.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.15 * noise * parameter.abs().mean())
    names, inputs, energies, forces, virials = [], [], [], [], []
    counts = []
    for atoms in ATOMS:
        names, case, count = arguments_with_new_count(name, atoms, generator, counts)
        positions = case[names.index("positions")]
        fresh = tuple(a.clone() for a in case)
        result = teacher(*fresh)
        energy, force = energy_and_forces(result, fresh[names.index("positions")])
        if isinstance(result, dict) and "virials" in result:
            virials.append(result["virials"].detach().clone())
        inputs.append(case)
        energies.append(energy.detach().clone())
        forces.append(force.detach().clone())
        counts.append(count)
    assert len(set(ATOMS)) == len(ATOMS) and len(set(counts)) == len(counts), counts
    path = models.FOLDER / f"{name}.data.pt"
    tuple_type = torch._C.TupleType([torch._C.TensorType.get()] * len(names))
    tensors = torch._C.ListType(torch._C.TensorType.get())
    write_attributes(path, {
        "inputs": (inputs, torch._C.ListType(tuple_type)),
        "energies": (energies, tensors),
        "forces": (forces, tensors),
        "virials": (virials, tensors),
        "positions_argument": (names.index("positions"), None),
        "argument_names": (names, None),
        "learning_rate": (LEARNING_RATE[name], None),
        "adam_rate": (ADAM_RATE.get(name, 1e-3), None),
        "force_weight": (float(FORCE_WEIGHT[name]), None),
        "virial_weight": (0.01 * FORCE_WEIGHT[name], None),
    })
    print(f"{path.name}: {names}, edges {counts}, energies {[round(float(e.sum()), 3) for e in energies]},"
          f" forces to {max(float(f.abs().max()) for f in forces):.3g}")


def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[1:] or models.MODELS:
        write(name)


if __name__ == "__main__":
    main()
