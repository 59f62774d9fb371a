"""A training loop: the optimizer, the loss and the data loader are PyTorch's, the model runs on sconce.

    python train.py [--epochs 3]            # a plain loop over an accelerated model
    python train.py --step                  # the whole step as one plan
    python train.py --plain                 # LibTorch's executor, to compare
"""
import argparse
import time

import sconce
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(),
                                          torch.nn.Linear(64, 3))

    def forward(self, points):
        return self.layers(points)


def spirals(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points on three arms, and the number of the arm."""
    arm = torch.randint(0, 3, (count,))
    radius = torch.rand(count)
    angle = 4 * radius + arm * (2 * torch.pi / 3) + 0.15 * torch.randn(count)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), arm


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--step", action="store_true", help="forward, loss, backward and update in one call")
parser.add_argument("--plain", action="store_true", help="on LibTorch's executor, to compare")
options = parser.parse_args()

torch.manual_seed(0)
model = torch.jit.script(Net())
if not options.plain:
    sconce.accelerate(model)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*spirals(6000)), batch_size=64, shuffle=True)
loss_of = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
step = sconce.TrainStep(model, loss_of, optimizer) if options.step else None
begin = time.perf_counter()
for epoch in range(options.epochs):
    total = 0.0
    for points, arm in data:
        if step is not None:
            loss = step(points, arm)
        else:
            optimizer.zero_grad()
            loss = loss_of(model(points), arm)
            loss.backward()
            optimizer.step()
        total += loss.item()
    print(f"epoch {epoch + 1}: loss {total / len(data):.4f}")
points, arm = spirals(2000)
with torch.no_grad():
    accuracy = (model(points).argmax(1) == arm).double().mean().item()
print(f"accuracy {accuracy:.3f}, {time.perf_counter() - begin:.1f} s")
