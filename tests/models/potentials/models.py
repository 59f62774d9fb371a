#!/usr/bin/env python3
"""Eleven TorchScript models of interatomic potentials (eight, and three variants), written as users of that field write them.

    python models.py [NAME...]      # writes NAME.pt beside this file; without names all of them

Each class says whose style it follows. All weights are random, with a fixed seed. The models are generic in the dtype, so that
`model.double()` can check forces by finite differences; only double_precision is saved in float64.
"""
import math
import os
import sys
from pathlib import Path
from typing import Dict, Final, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FOLDER = Path(__file__).resolve().parent
SPECIES = 4  # species are numbers from 0 to SPECIES - 1
CUTOFF = 4.5
ANGULAR_CUTOFF = 3.2
NEIGHBOR_LIBRARY = FOLDER / "libneighbor_list.so"


# ---------------------------------------------------------------------------------------------------------------- parts

def cosine_cutoff(distance: Tensor, cutoff: float) -> Tensor:
    inside = (distance < cutoff).to(distance.dtype)
    return 0.5 * (torch.cos(distance * (math.pi / cutoff)) + 1.0) * inside


class PolynomialCutoff(nn.Module):
    """NequIP's and MACE's envelope; p is a buffer there, too."""

    def __init__(self, cutoff: float, p: float = 6.0):
        super().__init__()
        self.register_buffer("p", torch.tensor(p))
        self.register_buffer("cutoff", torch.tensor(cutoff))

    def forward(self, distance: Tensor) -> Tensor:
        p = self.p
        x = distance / self.cutoff
        envelope = (1.0 - ((p + 1.0) * (p + 2.0) / 2.0) * torch.pow(x, p) + p * (p + 2.0) * torch.pow(x, p + 1.0)
                    - (p * (p + 1.0) / 2.0) * torch.pow(x, p + 2.0))
        return envelope * (x < 1.0)


class BesselBasis(nn.Module):
    """DimeNet's basis with trainable frequencies, as in NequIP."""

    def __init__(self, cutoff: float, number: int = 8):
        super().__init__()
        self.cutoff = cutoff
        self.prefactor = math.sqrt(2.0 / cutoff)
        self.frequencies = nn.Parameter(torch.linspace(1.0, float(number), number) * math.pi)

    def forward(self, distance: Tensor) -> Tensor:
        scaled = torch.sin(self.frequencies * distance.unsqueeze(-1) / self.cutoff)
        return self.prefactor * (scaled / distance.unsqueeze(-1))


class GaussianSmearing(nn.Module):
    """SchNet's basis."""

    def __init__(self, start: float = 0.5, stop: float = CUTOFF, number: int = 32):
        super().__init__()
        offset = torch.linspace(start, stop, number)
        self.coefficient: float = -0.5 / float(offset[1] - offset[0]) ** 2
        self.register_buffer("offset", offset)

    def forward(self, distance: Tensor) -> Tensor:
        difference = distance.view(-1, 1) - self.offset.view(1, -1)
        return torch.exp(self.coefficient * torch.pow(difference, 2))


class ShiftedSoftplus(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift: float = math.log(2.0)

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x) - self.shift


# ------------------------------------------------------------------------------------------------------------- 1. pair

class PairPotential(nn.Module):
    """Lennard-Jones and Morse terms with learned parameters of each species, and a small MLP, times a cutoff function."""

    def __init__(self, hidden: int = 32):
        super().__init__()
        self.cutoff: Final[float] = CUTOFF
        self.log_epsilon = nn.Parameter(torch.randn(SPECIES) * 0.1 - 2.5)
        self.sigma = nn.Parameter(1.2 + 0.1 * torch.rand(SPECIES))
        self.log_depth = nn.Parameter(torch.randn(SPECIES, SPECIES) * 0.1 - 1.5)
        self.stiffness = nn.Parameter(1.2 + 0.2 * torch.rand(SPECIES, SPECIES))
        self.minimum = nn.Parameter(1.8 + 0.2 * torch.rand(SPECIES, SPECIES))
        self.embedding = nn.Embedding(SPECIES, 8)
        self.basis = GaussianSmearing(number=16)
        self.mlp = nn.Sequential(nn.Linear(16 + 8, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1))
        self.shift = nn.Parameter(torch.randn(SPECIES) * 0.1)

    def forward(self, positions: Tensor, species: Tensor, edge_index: Tensor) -> Tuple[Tensor, Tensor]:
        positions.requires_grad_(True)
        i, j = edge_index[0], edge_index[1]
        r = torch.norm(positions[j] - positions[i], dim=1)
        si, sj = species[i], species[j]

        epsilon = torch.exp(0.5 * (self.log_epsilon[si] + self.log_epsilon[sj]))
        s6 = torch.pow(0.5 * (self.sigma[si] + self.sigma[sj]) / r, 6)
        lennard_jones = 4.0 * epsilon * (s6 * s6 - s6)

        depth = torch.exp(0.5 * (self.log_depth[si, sj] + self.log_depth[sj, si]))
        stiffness = 0.5 * (self.stiffness[si, sj] + self.stiffness[sj, si])
        minimum = 0.5 * (self.minimum[si, sj] + self.minimum[sj, si])
        morse = depth * (torch.pow(1.0 - torch.exp(-stiffness * (r - minimum)), 2) - 1.0)

        kind = self.embedding(si) + self.embedding(sj)
        learned = self.mlp(torch.cat([self.basis(r), kind], dim=1)).squeeze(-1)

        pair = (lennard_jones + morse + learned) * cosine_cutoff(r, self.cutoff)
        energy = 0.5 * pair.sum() + self.shift[species].sum()
        gradient = torch.autograd.grad([energy], [positions], create_graph=self.training)[0]
        assert gradient is not None
        return energy, -gradient


# ---------------------------------------------------------------------------------------------------------- 2. angular

class SymmetryFunctions(nn.Module):
    """ANI's radial and angular terms. Neighbors come as edges, triplets as center and two edges' ends."""

    def __init__(self):
        super().__init__()
        # TorchScript sees no globals: numbers are attributes
        self.species: Final[int] = SPECIES
        self.cutoff: Final[float] = CUTOFF
        self.angular_cutoff: Final[float] = ANGULAR_CUTOFF
        self.eta_radial: Final[float] = 4.0
        self.eta_angular: Final[float] = 4.0
        self.zeta: Final[float] = 8.0
        self.register_buffer("shifts_radial", torch.linspace(0.8, CUTOFF - 0.3, 16))
        self.register_buffer("shifts_angular", torch.linspace(0.8, ANGULAR_CUTOFF - 0.3, 4))
        self.register_buffer("sections", (torch.arange(4, dtype=torch.float32) + 0.5) * (math.pi / 4))
        pairs = torch.zeros(SPECIES, SPECIES, dtype=torch.long)
        upper = torch.triu_indices(SPECIES, SPECIES)
        pairs[upper[0], upper[1]] = torch.arange(upper.size(1))
        pairs[upper[1], upper[0]] = torch.arange(upper.size(1))
        self.register_buffer("pairs", pairs)
        self.number_of_pairs: Final[int] = upper.size(1)
        self.length: Final[int] = SPECIES * 16 + upper.size(1) * 16

    def forward(self, species: Tensor, positions: Tensor, edge_index: Tensor, triplets: Tensor) -> Tensor:
        atoms = species.shape[0]
        vectors = positions.index_select(0, edge_index[1]) - positions.index_select(0, edge_index[0])
        distance = vectors.norm(2, -1)
        radial = 0.25 * torch.exp(-self.eta_radial * (distance.unsqueeze(1) - self.shifts_radial) ** 2)
        radial = radial * cosine_cutoff(distance, self.cutoff).unsqueeze(1)
        row = edge_index[0] * self.species + species.index_select(0, edge_index[1])
        radial_features = positions.new_zeros(atoms * self.species, self.shifts_radial.size(0)).index_add(0, row, radial)

        center, first, second = triplets.unbind(0)
        a = positions.index_select(0, first) - positions.index_select(0, center)
        b = positions.index_select(0, second) - positions.index_select(0, center)
        # as in ANI: 0.95 keeps acos differentiable
        angle = torch.acos(0.95 * F.cosine_similarity(a, b, dim=-1))
        ra, rb = a.norm(2, -1), b.norm(2, -1)
        window = cosine_cutoff(ra, self.angular_cutoff) * cosine_cutoff(rb, self.angular_cutoff)
        by_angle = ((1.0 + torch.cos(angle.view(-1, 1, 1) - self.sections.view(1, -1, 1))) / 2.0) ** self.zeta
        by_distance = torch.exp(-self.eta_angular * ((ra + rb).view(-1, 1, 1) / 2.0 - self.shifts_angular.view(1, 1, -1)) ** 2)
        angular = (2.0 * by_angle * by_distance * window.view(-1, 1, 1)).flatten(1)
        kind = self.pairs[species[first], species[second]]
        row = center * self.number_of_pairs + kind
        angular_features = positions.new_zeros(atoms * self.number_of_pairs, angular.size(1))
        angular_features.index_add_(0, row, angular)
        return torch.cat([radial_features.reshape(atoms, -1), angular_features.reshape(atoms, -1)], dim=-1)


def atomic_network(length: int) -> nn.Module:
    return nn.Sequential(nn.Linear(length, 64), nn.CELU(0.1), nn.Linear(64, 48), nn.CELU(0.1), nn.Linear(48, 1))


class Angular(nn.Module):
    """Behler-Parrinello: symmetry functions over triplets, a network of each species on all atoms, and a mask."""

    def __init__(self):
        super().__init__()
        self.symmetry_functions = SymmetryFunctions()
        self.networks = nn.ModuleList([atomic_network(self.symmetry_functions.length) for _ in range(SPECIES)])
        self.self_energies = nn.Parameter(torch.randn(SPECIES) * 0.1)

    def forward(self, species: Tensor, positions: Tensor, edge_index: Tensor, triplets: Tensor) -> Tuple[Tensor, Tensor]:
        positions.requires_grad_(True)
        features = self.symmetry_functions(species, positions, edge_index, triplets)
        energies = torch.zeros_like(features[:, 0])
        for number, network in enumerate(self.networks):
            energies = energies + torch.where(species == number, network(features).squeeze(-1), torch.zeros_like(energies))
        energy = energies.sum() + self.self_energies[species].sum()
        gradient = torch.autograd.grad([energy], [positions], create_graph=self.training, retain_graph=self.training)[0]
        assert gradient is not None
        return energy, -gradient


class AngularAni(nn.Module):
    """The same, with TorchANI's loop over species: nonzero, index_select, masked_scatter_ (sizes depend on elements)."""

    def __init__(self):
        super().__init__()
        self.symmetry_functions = SymmetryFunctions()
        self.networks = nn.ModuleList([atomic_network(self.symmetry_functions.length) for _ in range(SPECIES)])
        self.register_buffer("self_energies", torch.randn(SPECIES) * 0.1)

    def forward(self, species: Tensor, positions: Tensor, edge_index: Tensor, triplets: Tensor) -> Tuple[Tensor, Tensor]:
        positions.requires_grad_(True)
        features = self.symmetry_functions(species, positions, edge_index, triplets)
        energies = torch.zeros(species.shape, dtype=features.dtype, device=features.device)
        for number, network in enumerate(self.networks):
            mask = species == number
            chosen = mask.nonzero().flatten()
            if chosen.shape[0] > 0:
                energies.masked_scatter_(mask, network(features.index_select(0, chosen)).flatten())
        energy = energies.sum() + self.self_energies[species].sum()
        gradient = torch.autograd.grad([energy], [positions], create_graph=self.training)[0]
        assert gradient is not None
        return energy, -gradient


# ---------------------------------------------------------------------------------------------------------- 3. message

class ContinuousFilter(nn.Module):
    def __init__(self, hidden: int, gaussians: int, cutoff: float):
        super().__init__()
        self.cutoff: Final[float] = cutoff
        self.filter = nn.Sequential(nn.Linear(gaussians, hidden), ShiftedSoftplus(), nn.Linear(hidden, hidden))
        self.before = nn.Linear(hidden, hidden, bias=False)
        self.after = nn.Sequential(nn.Linear(hidden, hidden), ShiftedSoftplus(), nn.Linear(hidden, hidden))

    def forward(self, x: Tensor, source: Tensor, target: Tensor, distance: Tensor, basis: Tensor) -> Tensor:
        weight = self.filter(basis) * cosine_cutoff(distance, self.cutoff).unsqueeze(-1)
        messages = self.before(x).index_select(0, source) * weight
        summed = torch.zeros_like(x)
        summed.index_add_(0, target, messages)
        return self.after(summed)


class Message(nn.Module):
    """SchNet (SchNetPack): continuous filters, with the module for forces at the end."""

    def __init__(self, hidden: int = 64, layers: int = 3, gaussians: int = 32):
        super().__init__()
        self.embedding = nn.Embedding(SPECIES, hidden)
        self.basis = GaussianSmearing(number=gaussians)
        self.interactions = nn.ModuleList([ContinuousFilter(hidden, gaussians, CUTOFF) for _ in range(layers)])
        self.output = nn.Sequential(nn.Linear(hidden, hidden // 2), ShiftedSoftplus(), nn.Linear(hidden // 2, 1))
        self.calculate_forces: bool = True

    def forward(self, positions: Tensor, species: Tensor, edge_index: Tensor) -> Dict[str, Tensor]:
        if self.calculate_forces:
            positions.requires_grad_(True)
        source, target = edge_index[0], edge_index[1]
        vectors = positions.index_select(0, source) - positions.index_select(0, target)
        distance = torch.sqrt(torch.sum(vectors * vectors, dim=1))
        basis = self.basis(distance)
        x = self.embedding(species)
        for interaction in self.interactions:
            x = x + interaction(x, source, target, distance, basis)
        energy = torch.sum(self.output(x), dim=[0, 1])
        results: Dict[str, Tensor] = {"energy": energy}
        if self.calculate_forces:
            go: List[Optional[Tensor]] = [torch.ones_like(energy)]
            gradient = torch.autograd.grad([energy], [positions], grad_outputs=go, create_graph=self.training,
                                           retain_graph=self.training)[0]
            if gradient is None:
                gradient = torch.zeros_like(positions)
            results["forces"] = -gradient
        return results


# ----------------------------------------------------------------------------------------------------------- 4. virial

class PainnMessage(nn.Module):
    def __init__(self, hidden: int, basis: int):
        super().__init__()
        self.hidden: Final[int] = hidden
        self.context = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 3 * hidden))
        self.filter = nn.Linear(basis, 3 * hidden)

    def forward(self, q: Tensor, mu: Tensor, i: Tensor, j: Tensor, direction: Tensor, basis: Tensor,
                envelope: Tensor) -> Tuple[Tensor, Tensor]:
        weight = self.filter(basis) * envelope.unsqueeze(-1)
        x = self.context(q)[j] * weight
        dq, dmu_r, dmu_mu = torch.split(x, self.hidden, dim=-1)
        dmu = dmu_r.unsqueeze(1) * direction.unsqueeze(-1) + dmu_mu.unsqueeze(1) * mu[j]
        q = q.index_add(0, i, dq)
        mu = mu.index_add(0, i, dmu)
        return q, mu


class PainnUpdate(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.hidden: Final[int] = hidden
        self.mix = nn.Linear(hidden, 2 * hidden, bias=False)
        self.context = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.SiLU(), nn.Linear(hidden, 3 * hidden))
        self.epsilon: Final[float] = 1e-8

    def forward(self, q: Tensor, mu: Tensor) -> Tuple[Tensor, Tensor]:
        v, w = torch.split(self.mix(mu), self.hidden, dim=-1)
        length = torch.sqrt(torch.sum(v**2, dim=-2) + self.epsilon)
        x = self.context(torch.cat([q, length], dim=-1))
        dq, dmu, dqmu = torch.chunk(x, 3, dim=-1)
        q = q + dq + dqmu * torch.sum(v * w, dim=1)
        mu = mu + dmu.unsqueeze(1) * w
        return q, mu


def symmetric_displacement(positions: Tensor, shifts: Tensor, cell: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """MACE's get_symmetric_displacement, for one structure."""
    displacement = torch.zeros(3, 3, dtype=positions.dtype, device=positions.device)
    displacement.requires_grad_(True)
    symmetric = 0.5 * (displacement + displacement.transpose(-1, -2))
    strained = positions + torch.matmul(positions, symmetric)
    cell = cell + torch.matmul(cell, symmetric)
    return strained, torch.matmul(shifts, cell), cell, displacement


class Virial(nn.Module):
    """PaiNN with vector features, and forces, virial and stress as in MACE. `restore`: as NequIP's StressOutput, the mark on
    the argument is taken back at the end."""

    def __init__(self, hidden: int = 48, layers: int = 2, basis: int = 8, restore: bool = False):
        super().__init__()
        self.restore: Final[bool] = restore
        self.hidden: Final[int] = hidden
        self.embedding = nn.Embedding(SPECIES, hidden)
        self.basis = BesselBasis(CUTOFF, basis)
        self.envelope = PolynomialCutoff(CUTOFF)
        self.messages = nn.ModuleList([PainnMessage(hidden, basis) for _ in range(layers)])
        self.updates = nn.ModuleList([PainnUpdate(hidden) for _ in range(layers)])
        self.readout = nn.Sequential(nn.Linear(hidden, hidden // 2), nn.SiLU(), nn.Linear(hidden // 2, 1))
        self.register_buffer("atomic_energies", torch.randn(SPECIES) * 0.1)

    def forward(self, positions: Tensor, species: Tensor, edge_index: Tensor, shifts: Tensor,
                cell: Tensor) -> Dict[str, Tensor]:
        had_gradient = positions.requires_grad
        positions.requires_grad_(True)
        strained, offsets, strained_cell, displacement = symmetric_displacement(positions, shifts, cell)
        i, j = edge_index[0], edge_index[1]
        vectors = strained[j] - strained[i] + offsets
        distance = torch.linalg.norm(vectors, dim=-1)
        direction = vectors / distance.unsqueeze(-1)
        basis = self.basis(distance)
        envelope = self.envelope(distance)
        q = self.embedding(species)
        mu = torch.zeros(q.shape[0], 3, self.hidden, dtype=q.dtype, device=q.device)
        for message, update in zip(self.messages, self.updates):
            q, mu = message(q, mu, i, j, direction, basis, envelope)
            q, mu = update(q, mu)
        node_energy = self.readout(q).squeeze(-1) + self.atomic_energies[species]
        energy = node_energy.sum()
        grad_outputs: List[Optional[Tensor]] = [torch.ones_like(energy)]
        gradients = torch.autograd.grad(outputs=[energy], inputs=[positions, displacement], grad_outputs=grad_outputs,
                                        retain_graph=self.training, create_graph=self.training, allow_unused=True)
        forces, virials = gradients[0], gradients[1]
        if forces is None:
            forces = torch.zeros_like(positions)
        if virials is None:
            virials = torch.zeros_like(displacement)
        volume = torch.linalg.det(cell).abs()
        stress = virials / volume
        stress = torch.where(torch.abs(stress) < 1e10, stress, torch.zeros_like(stress))
        if self.restore:
            if not had_gradient:
                positions.requires_grad_(False)
        return {"energy": energy, "forces": -1.0 * forces, "virials": -1.0 * virials, "stress": stress,
                "node_energy": node_energy.detach()}


# ------------------------------------------------------------------------------------------------- 5. double_precision

class AtomicClusterExpansion(nn.Module):
    """All in float64: an embedded-atom term, and ACE's polynomials up to body order 4, with a network on the invariants."""

    def __init__(self, radial: int = 6, channels: int = 4, hidden: int = 32):
        super().__init__()
        self.radial: Final[int] = radial
        self.channels: Final[int] = channels
        self.cutoff: Final[float] = CUTOFF
        self.neighbor_weight = nn.Parameter(torch.randn(SPECIES, channels) * 0.5)
        self.mix_radial = nn.Parameter(torch.randn(3, radial, channels) / math.sqrt(radial))
        self.density_scale = nn.Parameter(0.5 + 0.1 * torch.rand(SPECIES))
        self.density_decay = nn.Parameter(1.0 + 0.2 * torch.rand(SPECIES))
        self.embed_root = nn.Parameter(0.3 + 0.1 * torch.rand(SPECIES))
        self.embed_square = nn.Parameter(0.02 * torch.rand(SPECIES))
        pairs = channels * (channels + 1) // 2
        self.register_buffer("upper", torch.triu_indices(channels, channels))
        invariants = channels + 3 * pairs + channels * channels
        self.linear = nn.Linear(invariants, 1)
        self.network = nn.Sequential(nn.Linear(invariants, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
                                     nn.Linear(hidden, 1, bias=False))

    def chebyshev(self, distance: Tensor) -> Tensor:
        x = 2.0 * distance / self.cutoff - 1.0
        polynomials: List[Tensor] = [torch.ones_like(x), x]
        for _ in range(2, self.radial):
            polynomials.append(2.0 * x * polynomials[-1] - polynomials[-2])
        return torch.stack(polynomials, dim=-1) * cosine_cutoff(distance, self.cutoff).unsqueeze(-1)

    def harmonics(self, direction: Tensor) -> List[Tensor]:
        x, y, z = direction.unbind(dim=-1)
        root3 = 3.0**0.5
        one = torch.stack([x, y, z], dim=-1)
        two = torch.stack([root3 * x * y, root3 * y * z, 0.5 * (3.0 * z * z - 1.0), root3 * x * z,
                           0.5 * root3 * (x * x - y * y)], dim=-1)
        return [torch.ones_like(x).unsqueeze(-1), one, two]

    def forward(self, positions: Tensor, species: Tensor, edge_index: Tensor) -> Tuple[Tensor, Tensor]:
        positions.requires_grad_(True)
        atoms = species.size(0)
        i, j = edge_index[0], edge_index[1]
        vectors = positions[j] - positions[i]
        distance = vectors.norm(p=2, dim=-1)

        density = self.density_scale[species[j]] * torch.exp(-self.density_decay[species[j]] * distance)
        density = density * cosine_cutoff(distance, self.cutoff)
        rho = torch.zeros(atoms, dtype=torch.float64).scatter_add(0, i, density)
        embedded = -self.embed_root[species] * torch.sqrt(rho + 1e-4) + self.embed_square[species] * rho**2

        radial = self.chebyshev(distance)
        harmonics = self.harmonics(vectors / distance.unsqueeze(-1))
        weight = self.neighbor_weight[species[j]]
        invariants: List[Tensor] = []
        powers: List[Tensor] = []
        for l, harmonic in enumerate(harmonics):
            edge = (radial @ self.mix_radial[l]) * weight
            basis = torch.einsum("ec,em->ecm", edge, harmonic)
            a = torch.zeros(atoms, self.channels, basis.size(2), dtype=torch.float64).index_add(0, i, basis)
            if l == 0:
                invariants.append(a.squeeze(-1))
            power = torch.einsum("ncm,ndm->ncd", a, a)
            powers.append(power)
            invariants.append(power[:, self.upper[0], self.upper[1]])
        # body order 4 as products of the invariants of orders 2 and 3
        invariants.append((powers[1] * invariants[0].unsqueeze(-1)).flatten(1))
        features = torch.cat(invariants, dim=1) * 0.3
        energy = (embedded + self.linear(features).squeeze(-1) + self.network(features).squeeze(-1)).sum()
        gradient = torch.autograd.grad([energy], [positions], create_graph=self.training)[0]
        assert gradient is not None
        return energy, -gradient


# ---------------------------------------------------------------------------------------------------------- 6. outside

class EdgeAttention(nn.Module):
    """TorchMD-Net's attention: silu instead of softmax, times the cutoff; scalars and vectors."""

    def __init__(self, hidden: int, heads: int, basis: int):
        super().__init__()
        self.hidden: Final[int] = hidden
        self.heads: Final[int] = heads
        self.size: Final[int] = hidden // heads
        self.norm = nn.LayerNorm(hidden)
        self.q = nn.Linear(hidden, hidden)
        self.k = nn.Linear(hidden, hidden)
        self.v = nn.Linear(hidden, 3 * hidden)
        self.dk = nn.Linear(basis, hidden)
        self.dv = nn.Linear(basis, 3 * hidden)
        self.vectors = nn.Linear(hidden, 2 * hidden, bias=False)
        self.output = nn.Linear(hidden, 3 * hidden)

    def forward(self, x: Tensor, vec: Tensor, i: Tensor, j: Tensor, cutoff: Tensor, basis: Tensor,
                direction: Tensor) -> Tuple[Tensor, Tensor]:
        x = self.norm(x)
        q = self.q(x).reshape(-1, self.heads, self.size)
        k = self.k(x).reshape(-1, self.heads, self.size)
        v = self.v(x).reshape(-1, self.heads, self.size * 3)
        dk = F.silu(self.dk(basis)).reshape(-1, self.heads, self.size)
        dv = F.silu(self.dv(basis)).reshape(-1, self.heads, self.size * 3)
        v1, v2 = torch.split(self.vectors(vec), self.hidden, dim=-1)
        dot = (v1 * v2).sum(dim=1)

        attention = (q.index_select(0, i) * k.index_select(0, j) * dk).sum(dim=-1)
        attention = F.silu(attention) * cutoff.unsqueeze(1)
        values = v.index_select(0, j) * dv
        vx, va, vb = torch.split(values, self.size, dim=2)
        vx = (vx * attention.unsqueeze(2)).reshape(-1, self.hidden)
        va = va.reshape(-1, 1, self.hidden)
        vb = vb.reshape(-1, 1, self.hidden)
        message = vec.index_select(0, j) * va + vb * direction.unsqueeze(2)
        summed = torch.zeros_like(x).index_add_(0, i, vx)
        summed_vec = torch.zeros_like(vec).index_add_(0, i, message)
        o1, o2, o3 = torch.split(self.output(summed), self.hidden, dim=1)
        return dot * o2 + o3, v1 * o1.unsqueeze(1) + summed_vec


class Outside(nn.Module):
    """An equivariant transformer that returns the energy alone. The program takes the gradient."""

    def __init__(self, hidden: int = 64, layers: int = 2, heads: int = 4, basis: int = 16):
        super().__init__()
        self.hidden: Final[int] = hidden
        self.cutoff: Final[float] = CUTOFF
        self.embedding = nn.Embedding(SPECIES, hidden)
        self.basis = GaussianSmearing(number=basis)
        self.layers = nn.ModuleList([EdgeAttention(hidden, heads, basis) for _ in range(layers)])
        self.norm = nn.LayerNorm(hidden)
        self.readout = nn.Sequential(nn.Linear(hidden, hidden // 2), nn.SiLU(), nn.Linear(hidden // 2, 1))

    def forward(self, positions: Tensor, species: Tensor, edge_index: Tensor) -> Tensor:
        positions.requires_grad_(True)
        i, j = edge_index[0], edge_index[1]
        vectors = positions.index_select(0, i) - positions.index_select(0, j)
        distance = torch.norm(vectors, p=2.0, dim=-1)
        direction = vectors / distance.unsqueeze(1)
        basis = self.basis(distance)
        cutoff = cosine_cutoff(distance, self.cutoff)
        x = self.embedding(species)
        vec = torch.zeros(x.size(0), 3, self.hidden, device=x.device, dtype=x.dtype)
        for layer in self.layers:
            dx, dvec = layer(x, vec, i, j, cutoff, basis, direction)
            x = x + dx
            vec = vec + dvec
        return self.readout(self.norm(x)).sum()


# ---------------------------------------------------------------------------------------------------------- 7. charges

class Charges(nn.Module):
    """Charge equilibration (4G-HDNNP): message passing predicts electronegativities and hardnesses, a linear system with one
    constraint for each molecule gives the charges, and Gaussian charges interact within their molecule. Several molecules."""

    def __init__(self, hidden: int = 48, layers: int = 2, gaussians: int = 16):
        super().__init__()
        self.embedding = nn.Embedding(SPECIES, hidden)
        self.basis = GaussianSmearing(number=gaussians)
        self.interactions = nn.ModuleList([ContinuousFilter(hidden, gaussians, CUTOFF) for _ in range(layers)])
        self.electronegativity = nn.Sequential(nn.Linear(hidden, 32), nn.SiLU(), nn.Linear(32, 1))
        self.hardness = nn.Parameter(1.5 + 0.3 * torch.rand(SPECIES))
        self.width = nn.Parameter(0.6 + 0.2 * torch.rand(SPECIES))
        self.short_range = nn.Sequential(nn.Linear(hidden + 1, 32), nn.SiLU(), nn.Linear(32, 1))

    def equilibrate(self, positions: Tensor, species: Tensor, batch: Tensor, chi: Tensor,
                    total_charge: Tensor) -> Tuple[Tensor, Tensor]:
        """Returns the charges, and the matrix of their interaction."""
        atoms = positions.size(0)
        molecules = total_charge.size(0)
        eye = torch.eye(atoms, dtype=positions.dtype, device=positions.device)
        together = (batch.unsqueeze(0) == batch.unsqueeze(1)).to(positions.dtype) * (1.0 - eye)
        difference = positions.unsqueeze(0) - positions.unsqueeze(1)
        distance = torch.sqrt((difference**2).sum(-1) + eye)  # 1 on the diagonal, so that the root has a gradient
        width = self.width[species]
        gamma = torch.sqrt(width.unsqueeze(0) ** 2 + width.unsqueeze(1) ** 2)
        coulomb = together * torch.erf(distance / (math.sqrt(2.0) * gamma)) / distance
        matrix = coulomb + torch.diag(F.softplus(self.hardness[species]) + 1.0 / (width * math.sqrt(math.pi)))
        constraint = F.one_hot(batch, molecules).to(positions.dtype)
        upper = torch.cat([matrix, constraint], dim=1)
        lower = torch.cat([constraint.t(), positions.new_zeros(molecules, molecules)], dim=1)
        solution = torch.linalg.solve(torch.cat([upper, lower], dim=0), torch.cat([-chi, total_charge], dim=0))
        return solution[:atoms], matrix

    def forward(self, positions: Tensor, species: Tensor, edge_index: Tensor, batch: Tensor,
                total_charge: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        positions.requires_grad_(True)
        source, target = edge_index[0], edge_index[1]
        distance = torch.norm(positions[source] - positions[target], dim=-1)
        basis = self.basis(distance)
        x = self.embedding(species)
        for interaction in self.interactions:
            x = x + interaction(x, source, target, distance, basis)
        chi = self.electronegativity(x).squeeze(-1)
        charges, matrix = self.equilibrate(positions, species, batch, chi, total_charge)
        electrostatic = charges * (chi + 0.5 * torch.mv(matrix, charges))
        local = self.short_range(torch.cat([x, charges.unsqueeze(-1)], dim=-1)).squeeze(-1)
        energy = torch.zeros_like(total_charge).scatter_add_(0, batch, electrostatic)
        energy = energy.index_add(0, batch, local)
        gradient = torch.autograd.grad([energy.sum()], [positions], create_graph=self.training)[0]
        assert gradient is not None
        return energy, -gradient, charges


# -------------------------------------------------------------------------------------------------------- 8. neighbors

class Representation(nn.Module):
    """What neighbors and neighbors_class share: message passing on a list of neighbors."""

    def __init__(self, hidden: int = 64, layers: int = 2, basis: int = 8):
        super().__init__()
        self.embedding = nn.Embedding(SPECIES, hidden)
        self.basis = BesselBasis(CUTOFF, basis)
        self.interactions = nn.ModuleList([ContinuousFilter(hidden, basis, CUTOFF) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(hidden) for _ in range(layers)])
        self.readout = nn.Sequential(nn.Linear(hidden, hidden // 2), nn.SiLU(), nn.Linear(hidden // 2, 1))

    def forward(self, positions: Tensor, species: Tensor, edge_index: Tensor) -> Tensor:
        target, source = edge_index[0], edge_index[1]
        distance = torch.linalg.vector_norm(positions[source] - positions[target], dim=-1)
        basis = self.basis(distance)
        x = self.embedding(species)
        for interaction, norm in zip(self.interactions, self.norms):
            x = x + interaction(norm(x), source, target, distance, basis)
        return self.readout(x).sum()


class Neighbors(nn.Module):
    """Makes its own list of neighbors: how many there are depends on the positions."""

    def __init__(self):
        super().__init__()
        self.cutoff: Final[float] = CUTOFF
        self.representation = Representation()

    def forward(self, positions: Tensor, species: Tensor) -> Tuple[Tensor, Tensor]:
        positions.requires_grad_(True)
        with torch.no_grad():
            distance = torch.cdist(positions, positions)
            distance.fill_diagonal_(2.0 * self.cutoff)
            edge_index = torch.nonzero(distance < self.cutoff).t().contiguous()
        energy = self.representation(positions, species, edge_index)
        gradient = torch.autograd.grad([energy], [positions], create_graph=self.training)[0]
        assert gradient is not None
        return energy, -gradient


class NeighborsClass(nn.Module):
    """The same with a neighbor list in C++, a custom class that counts its builds."""

    def __init__(self):
        super().__init__()
        self.cutoff: Final[float] = CUTOFF
        self.neighbor_list = torch.classes.potentials.NeighborList()
        self.representation = Representation()

    def forward(self, positions: Tensor, species: Tensor) -> Tuple[Tensor, Tensor]:
        positions.requires_grad_(True)
        edge_index = self.neighbor_list.compute(positions, self.cutoff)
        energy = self.representation(positions, species, edge_index)
        gradient = torch.autograd.grad([energy], [positions], create_graph=self.training)[0]
        assert gradient is not None
        return energy, -gradient

    @torch.jit.export
    def builds(self) -> int:
        return self.neighbor_list.builds()


# -------------------------------------------------------------------------------------------------------------- writing

def restored() -> nn.Module:
    return Virial(restore=True)


def double_precision() -> nn.Module:
    return AtomicClusterExpansion().double()


MODELS = {
    "pair": PairPotential,
    "angular": Angular,
    "angular_ani": AngularAni,
    "message": Message,
    "virial": Virial,
    "virial_restored": restored,
    "double_precision": double_precision,
    "outside": Outside,
    "charges": Charges,
    "neighbors": Neighbors,
    "neighbors_class": NeighborsClass,
}


GAIN = {"angular": 1.4, "angular_ani": 1.4}


def load_neighbor_library() -> None:
    torch.classes.load_library(str(NEIGHBOR_LIBRARY))


def make(name: str) -> nn.Module:
    if name == "neighbors_class":
        load_neighbor_library()
    torch.manual_seed(sorted(MODELS).index(name) + 1)
    model = MODELS[name]()
    # as packages do; PyTorch's own initialization gives energies that hardly depend on the positions
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gain=GAIN.get(name, 1.0))
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.1)
    return model


def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[1:] or MODELS:
        model = make(name)
        scripted = torch.jit.script(model.train())
        path = FOLDER / f"{name}.pt"
        scripted.save(str(path))
        count = sum(p.numel() for p in model.parameters())
        print(f"{path.name}: {count} parameters, {os.path.getsize(path)} bytes, forward{scripted.forward.schema}")


if __name__ == "__main__":
    main()
