"""An image model of torchvision's: checked, timed and explained.

    python classify.py [--seconds 2] [--model resnet18]
"""
import argparse

import sconce
import torch
import torchvision

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="resnet18", help="a model of torchvision.models (resnet18)")
parser.add_argument("--seconds", type=float, default=2, help="how long to time each executor (2)")
options = parser.parse_args()

model = torchvision.models.get_model(options.model, weights=None).eval()
image = torch.rand(1, 3, 224, 224)

print(sconce.check(model, image))
print(sconce.bench(model, image, seconds=options.seconds))

model = sconce.accelerate(model)  # scripts it first
with torch.no_grad():
    for _ in range(3):
        classes = model(image)
explanation = sconce.explain(model)
print(repr(explanation))
print("refused:", explanation.refusals or "nothing")
print("class", classes.argmax().item())
