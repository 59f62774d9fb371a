"""Image models: torchvision's, and a small convolutional network that meets the kinds of convolution."""
import torch
from torch import Tensor, nn

from recipe import Sample, recipe


def images(batch: int, height: int = 64, width: int = 64) -> tuple[Tensor]:
    return (torch.randn(batch, 3, height, width),)


def settle_batch_norms(module: nn.Module) -> nn.Module:
    """Gives batch norms statistics that fit the weights, as training would, and weights that are not all alike.

    Fresh ones are nearly the identity: folding them wrongly would hardly show, and in a deep network with random
    weights the image is lost on the way, so that every input gives the same output.
    """
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
        if norm.affine:
            nn.init.uniform_(norm.weight, 0.7, 1.3)
            nn.init.normal_(norm.bias, std=0.1)
    with torch.no_grad():
        module.train()(*images(8))
    for norm in norms:
        norm.momentum = 0.1
    return module


@recipe
def resnet18() -> Sample:
    """torchvision's resnet18, evaluating"""
    from torchvision.models import resnet18 as build
    return Sample(settle_batch_norms(build(num_classes=100)),
                  [images(1), images(2), images(1, 96, 80), images(2)], atol=1e-4)


@recipe
def resnet18_train() -> Sample:
    """torchvision's resnet18, training: batch statistics, running statistics updated"""
    from torchvision.models import resnet18 as build
    return Sample(settle_batch_norms(build(num_classes=100)),
                  [images(4), images(2), images(3, 80, 64)], mode="train")


@recipe
def mobilenet_v3_large() -> Sample:
    """torchvision's mobilenet_v3_large, evaluating: depthwise convolutions, squeeze-excite, hardswish"""
    from torchvision.models import mobilenet_v3_large as build
    model = build(num_classes=100)
    for layer in model.classifier.modules():
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()  # torchvision's own are so small that the last bias is all one sees
    return Sample(settle_batch_norms(model), [images(1), images(2), images(1, 96, 64), images(1)], atol=1e-4)


@recipe
def vit_b_16() -> Sample:
    """torchvision's vit_b_16, evaluating, batches of 1 and 2"""
    from torchvision.models import vit_b_16 as build
    model = build(num_classes=100)
    nn.init.normal_(model.heads.head.weight, std=0.05)  # zero as torchvision leaves it
    return Sample(model, [images(1, 224, 224), images(2, 224, 224), images(1, 224, 224)], atol=1e-4,
                  largest_grad=2**20)


class ConvBn(nn.Module):
    """Dense, grouped, depthwise, dilated, strided, pointwise and transposed convolutions, with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(16, eps=1e-3)
        self.pointwise = nn.Conv2d(16, 16, 1)
        self.grouped = nn.Conv2d(16, 24, 3, stride=2, padding=2, dilation=2, groups=4)
        self.grouped_norm = nn.BatchNorm2d(24, affine=False)
        self.widen = nn.ConvTranspose2d(24, 8, 2, stride=2)
        self.head = nn.Linear(8 + 24, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        y = torch.nn.functional.hardswish(self.depthwise_norm(self.depthwise(x)))
        x = torch.relu(x + self.pointwise(y))
        x = self.grouped_norm(self.grouped(x))
        wide = torch.nn.functional.leaky_relu(self.widen(x), 0.1)
        pooled = torch.cat([wide.amax((2, 3)), torch.flatten(nn.functional.adaptive_avg_pool2d(x, (1, 1)), 1)], 1)
        return self.head(pooled), wide


@recipe
def conv_bn_small() -> Sample:
    """small convolutional network with batch norms, evaluating; one case in channels-last"""
    channels_last = images(2, 16, 16)[0].contiguous(memory_format=torch.channels_last)
    return Sample(settle_batch_norms(ConvBn()),
                  [images(2, 16, 16), images(1, 16, 16), images(3, 20, 12), (channels_last,)])


@recipe
def conv_bn_small_train() -> Sample:
    """the same network, training"""
    return Sample(settle_batch_norms(ConvBn()), [images(4, 16, 16), images(2, 16, 16), images(3, 20, 12)],
                  mode="train")
