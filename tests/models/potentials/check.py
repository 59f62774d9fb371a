#!/usr/bin/env python3
"""Checks the models and data of this folder, in Python, operator by operator.

    python check.py [NAME...]

For each model: it loads; eval and train give finite energies and forces in all cases; the scripted and the unscripted model
agree; in float64, forces (and virials) are finite differences of the energy, and the gradient of the loss with respect to the
parameters (double backward) is a finite difference of the loss; a step of SGD lowers the loss of its case; what the argument
is after a call.
"""
import sys

import torch
from torch import Tensor

import models

torch.set_num_threads(1)
torch._C._set_graph_executor_optimize(False)
mse = torch.nn.functional.mse_loss


def unpack(result, positions: Tensor, create_graph: bool):
    if isinstance(result, dict):
        return result["energy"], result["forces"]
    if isinstance(result, tuple):
        return result[0], result[1]
    return result, -torch.autograd.grad([result], [positions], create_graph=create_graph)[0]


def call(module, case, data, create_graph=False):
    fresh = tuple(a.clone() for a in case)
    result = module(*fresh)
    energy, forces = unpack(result, fresh[data.positions_argument], create_graph)
    return result, energy, forces, fresh[data.positions_argument]


def loss_of(module, k: int, data, case, create_graph=True) -> Tensor:
    result, energy, forces, _ = call(module, case, data, create_graph)
    loss = mse(energy, data.energies[k].to(energy.dtype)) + data.force_weight * mse(forces, data.forces[k].to(forces.dtype))
    if isinstance(result, dict) and "virials" in result:
        loss = loss + data.virial_weight * mse(result["virials"], data.virials[k].to(forces.dtype))
    return loss


def as_double(case):
    return tuple(a.double() if a.is_floating_point() else a for a in case)


def check(name: str) -> None:
    if name == "neighbors_class":
        models.load_neighbor_library()
    data = torch.jit.load(str(models.FOLDER / f"{name}.data.pt"))
    path = str(models.FOLDER / f"{name}.pt")
    plain = models.make(name)
    said = []
    for mode in ("eval", "train"):
        module = torch.jit.load(path).train(mode == "train")
        plain.train(mode == "train")
        for case in data.inputs:
            result, energy, forces, positions = call(module, case, data, mode == "train")
            assert energy.isfinite().all() and forces.isfinite().all(), (name, mode)
            assert forces.abs().max() > 1e-3, (name, mode)
            _, e, f, _ = call(plain, case, data, mode == "train")
            assert torch.allclose(e, energy, rtol=1e-4, atol=1e-4) and torch.allclose(f, forces, rtol=1e-3, atol=1e-4), (name, mode)
        said.append(f"{mode}: argument requires_grad {positions.requires_grad}, leaf {positions.is_leaf},"
                    f" energy requires_grad {energy.requires_grad}, forces {forces.requires_grad}")

    double = torch.jit.load(path).double()
    torch.manual_seed(0)
    worst = {"forces": 0.0, "virials": 0.0, "double backward": 0.0}
    h = 1e-5
    for mode in ("eval", "train"):
        double.train(mode == "train")
        for case in data.inputs[:4]:
            case = as_double(case)
            at = data.positions_argument
            _, _, forces, _ = call(double, case, data, mode == "train")
            for _ in range(3):
                direction = torch.randn_like(case[at])
                ends = []
                for sign in (1, -1):
                    moved = tuple(a + sign * h * direction if n == at else a for n, a in enumerate(case))
                    ends.append(call(double, moved, data)[1].sum() if mode == "eval" else call(double, moved, data, True)[1].sum())
                expected = -float((ends[0] - ends[1]).detach()) / (2 * h)
                got = float((forces * direction).sum().detach())
                worst["forces"] = max(worst["forces"], abs(got - expected) / max(abs(expected), float(forces.abs().max().detach())))
            if name.startswith("virial"):
                virials = call(double, case, data, mode == "train")[0]["virials"].detach()
                strain = torch.randn(3, 3, dtype=torch.float64)
                strain = 0.5 * (strain + strain.t())
                ends = []
                for sign in (1, -1):
                    deform = torch.eye(3, dtype=torch.float64) + sign * h * strain
                    moved = (case[0] @ deform, case[1], case[2], case[3], case[4] @ deform)
                    ends.append(float(call(double, moved, data)[1].detach()))
                expected = -(ends[0] - ends[1]) / (2 * h)
                got = float((virials * strain).sum())
                worst["virials"] = max(worst["virials"], abs(got - expected) / max(abs(expected), float(virials.abs().max())))

    double.train()
    parameters = list(double.parameters())
    for k in (0, 1):
        case = as_double(data.inputs[k])
        grads = torch.autograd.grad(loss_of(double, k, data, case), parameters, allow_unused=True)
        directions = [torch.randn_like(p) * p.detach().abs().mean() for p in parameters]
        got = float(sum((g * d).sum() for g, d in zip(grads, directions) if g is not None))
        ends = []
        for sign in (1, -2, 1):
            if sign != 1 or not ends:
                with torch.no_grad():
                    for p, d in zip(parameters, directions):
                        p.add_(sign * h * d)
                ends.append(float(loss_of(double, k, data, case).detach()))
            else:
                with torch.no_grad():
                    for p, d in zip(parameters, directions):
                        p.add_(h * d)
        expected = (ends[0] - ends[1]) / (2 * h)
        worst["double backward"] = max(worst["double backward"], abs(got - expected) / abs(expected))
    assert worst["forces"] < 1e-6 and worst["virials"] < 1e-6 and worst["double backward"] < 1e-5, (name, worst)

    module = torch.jit.load(path).train()
    optimizer = torch.optim.SGD(module.parameters(), data.learning_rate)
    before = loss_of(module, 2, data, data.inputs[2])
    before.backward()
    without = [n for n, p in module.named_parameters() if p.grad is None]
    zero = [n for n, p in module.named_parameters() if p.grad is not None and not p.grad.any()]
    optimizer.step()
    after = loss_of(module, 2, data, data.inputs[2])
    assert after < before, (name, before, after)
    if name == "neighbors_class":
        said.append(f"builds {module.builds()}, of a new copy {torch.jit.load(path).builds()}")
    print(f"{name}: finite differences differ by " + ", ".join(f"{k} {v:.1e}" for k, v in worst.items() if v)
          + f"; loss {before.item():.5g} -> {after.item():.5g}; parameters without gradient {without}, with zeros {zero}")
    for line in said:
        print("    " + line)


for name in sys.argv[1:] or models.MODELS:
    check(name)
