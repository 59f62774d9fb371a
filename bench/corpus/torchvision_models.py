"""Networks of torchvision for classification, segmentation and video, scripted."""
from typing import Callable

import torch

from corpus.record import Example, add, model, scripted

IMAGE = 64
CLASSIFIERS = ("alexnet", "squeezenet1_1", "shufflenet_v2_x0_5", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_large",
               "googlenet", "resnet50", "regnet_x_400mf", "efficientnet_v2_s", "convnext_tiny")


def classifier(name: str) -> Callable[[int], Example]:
    def build(batch: int) -> Example:
        import torchvision
        settings = {"init_weights": True, "aux_logits": False} if name == "googlenet" else {}
        module = torchvision.models.get_model(name, weights=None, num_classes=10, **settings)
        return scripted(module, torch.randn(batch, 3, IMAGE, IMAGE))
    return build


for each in CLASSIFIERS:
    add(f"torchvision_{each}", classifier(each))


@model()
def vision_transformer(batch: int) -> Example:
    from torchvision.models import VisionTransformer
    module = VisionTransformer(image_size=64, patch_size=16, num_layers=4, num_heads=4, hidden_dim=128, mlp_dim=256,
                               num_classes=10)
    return scripted(module, torch.randn(batch, 3, IMAGE, IMAGE))


@model()
def swin_v2(batch: int) -> Example:
    from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformer, SwinTransformerBlockV2
    module = SwinTransformer([4, 4], 32, [2, 2], [2, 4], [4, 4], num_classes=10, block=SwinTransformerBlockV2,
                             downsample_layer=PatchMergingV2)
    return scripted(module, torch.randn(batch, 3, IMAGE, IMAGE))


@model()
def fcn(batch: int) -> Example:
    import torchvision
    module = torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=5)
    return scripted(module, torch.randn(batch, 3, IMAGE, IMAGE))


@model()
def lraspp(batch: int) -> Example:
    import torchvision
    module = torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    return scripted(module, torch.randn(batch, 3, IMAGE, IMAGE))


@model()
def video_resnet(batch: int) -> Example:
    import torchvision
    return scripted(torchvision.models.video.r3d_18(weights=None, num_classes=10), torch.randn(batch, 3, 4, 32, 32))
