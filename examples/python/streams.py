"""Many streams of one recurrent model, each with a state of its own: copies share the compiled code.

    python streams.py [--streams 20] [--steps 50]
"""
import argparse
import copy

import sconce
import torch


class Filter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.GRUCell(8, 32)
        self.out = torch.nn.Linear(32, 1)
        self.register_buffer("state", torch.zeros(1, 32))

    def forward(self, sample):
        self.state = self.cell(sample, self.state)
        return self.out(self.state)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--streams", type=int, default=20)
parser.add_argument("--steps", type=int, default=50)
options = parser.parse_args()

torch.manual_seed(0)
base = sconce.accelerate(Filter().eval())
with torch.no_grad():
    streams = [copy.deepcopy(base) for _ in range(options.streams)]
    for step in range(options.steps):
        for number, stream in enumerate(streams):
            stream(torch.full((1, 8), float(number)))
    different = {round(stream.state.sum().item(), 4) for stream in streams}
print(f"{options.streams} streams, {len(different)} different states; the original's sum is {base.state.sum().item()}")
print(repr(sconce.explain(base)))
