"""More of torchvision's image models, as it builds them, or with its blocks in smaller widths."""
import torch
from torch import Tensor, nn

from recipe import Sample, recipe
from vision import images, settle_batch_norms


def with_lively_heads(model: nn.Module, heads: nn.Module) -> nn.Module:
    """Torchvision starts the last layers so small that their biases are all one sees."""
    for layer in heads.modules():
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
    return model


@recipe
def deeplabv3() -> Sample:
    """torchvision's deeplabv3_mobilenet_v3_large, evaluating: dilated convolutions, upsampling, a dict of outputs"""
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large as build
    model = build(weights=None, weights_backbone=None, num_classes=5, aux_loss=True)
    return Sample(settle_batch_norms(model), [images(1), images(2, 64, 80)], atol=1e-4, largest_grad=2**16)


@recipe
def lraspp_train() -> Sample:
    """torchvision's lraspp_mobilenet_v3_large, training: a gated segmentation head over two feature maps"""
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large as build
    model = build(weights=None, weights_backbone=None, num_classes=5)
    return Sample(settle_batch_norms(model), [images(2), images(3, 80, 64)], mode="train", largest_grad=2**16)


@recipe
def efficientnet_b0() -> Sample:
    """torchvision's efficientnet_b0, evaluating"""
    from torchvision.models import efficientnet_b0 as build
    model = build(num_classes=20)
    return Sample(settle_batch_norms(with_lively_heads(model, model.classifier)), [images(1), images(2, 64, 96)],
                  atol=1e-4, largest_grad=2**16)


@recipe
def efficientnet_train() -> Sample:
    """a small EfficientNet of torchvision's two kinds of block, training: dropout, stochastic depth"""
    from torchvision.models.efficientnet import EfficientNet, FusedMBConvConfig, MBConvConfig
    blocks = [FusedMBConvConfig(1, 3, 1, 8, 8, 1), FusedMBConvConfig(4, 3, 2, 8, 16, 2),
              MBConvConfig(4, 3, 2, 16, 24, 2, 1.0, 1.0), MBConvConfig(6, 5, 1, 24, 24, 2, 1.0, 1.0)]
    model = EfficientNet(blocks, dropout=0.2, stochastic_depth_prob=0.4, num_classes=10, last_channel=48)
    return Sample(settle_batch_norms(model), [images(4), images(2), images(3, 48, 64)], mode="train", seed=11)


@recipe
def densenet() -> Sample:
    """torchvision's DenseNet with narrow layers, evaluating: lists of feature maps concatenated again and again"""
    from torchvision.models import DenseNet
    return Sample(settle_batch_norms(DenseNet(6, (3, 4, 3), 12, bn_size=2, num_classes=10)),
                  [images(1), images(2), images(1, 80, 64)], atol=1e-4)


@recipe
def densenet_train() -> Sample:
    """the same, training with dropout in each layer"""
    from torchvision.models import DenseNet
    return Sample(settle_batch_norms(DenseNet(6, (2, 3, 2), 12, bn_size=2, drop_rate=0.1, num_classes=10)),
                  [images(3), images(2, 48, 64)], mode="train", seed=2)


@recipe
def googlenet_train() -> Sample:
    """torchvision's googlenet, training: a NamedTuple of the logits and of those of two auxiliary heads"""
    from torchvision.models import googlenet as build
    model = settle_batch_norms(build(num_classes=10, aux_logits=True, transform_input=True, init_weights=False))
    return Sample(model, [images(4), images(3, 64, 80)], mode="train", seed=4, largest_grad=2**16)


@recipe
def swin() -> Sample:
    """torchvision's SwinTransformer with narrow layers, evaluating: shifted windows, padding, relative positions"""
    from torchvision.models import SwinTransformer
    model = SwinTransformer([4, 4], 24, [2, 2], [2, 4], [7, 7], num_classes=10)
    for name, parameter in model.named_parameters():
        if "relative_position_bias" in name or name.endswith("weight") and parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.15)
    return Sample(with_lively_heads(model, model.head), [images(1), images(2), images(1, 56, 88)])


@recipe
def convnext() -> Sample:
    """torchvision's ConvNeXt with narrow layers, evaluating: depthwise 7 × 7, layer norms over channels, layer scales"""
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt
    model = ConvNeXt([CNBlockConfig(16, 24, 2), CNBlockConfig(24, 32, 2), CNBlockConfig(32, None, 1)], num_classes=10)
    for name, parameter in model.named_parameters():
        if name.endswith("layer_scale"):
            nn.init.normal_(parameter)  # a millionth as torchvision leaves it: the blocks would not show
    return Sample(with_lively_heads(model, model.classifier), [images(1), images(2), images(1, 96, 64)])


class Unet(nn.Module):
    """Two levels of encoder and decoder, skips, any image size."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList([self.block(3, width), self.block(width, 2 * width)])
        self.middle = self.block(2 * width, 4 * width)
        self.widen = nn.ModuleList([nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2),
                                    nn.ConvTranspose2d(2 * width, width, 2, stride=2)])
        self.up = nn.ModuleList([self.block(4 * width, 2 * width), self.block(2 * width, width)])
        self.out = nn.Conv2d(width, 2, 1)

    def block(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.SiLU(inplace=True),
                             nn.Conv2d(outputs, outputs, 3, padding=1), nn.InstanceNorm2d(outputs, affine=True),
                             nn.LeakyReLU(0.1, inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level in self.down:
            x = level(x)
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2, ceil_mode=True)
        x = self.middle(x)
        for widen, level in zip(self.widen, self.up):
            skip = skips.pop()
            x = widen(x)[:, :, :skip.size(2), :skip.size(3)]
            x = level(torch.cat([x, skip], 1))
        return self.out(nn.functional.dropout2d(x, 0.1, self.training))


@recipe
def unet_train() -> Sample:
    """a U-Net with group and instance norms, training: skips in a list, sizes that are not even"""
    return Sample(Unet(6), [images(2, 32, 32), images(1, 33, 22), images(2, 16, 40)], mode="train", seed=9)
