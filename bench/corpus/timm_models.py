"""Image classifiers of timm, scripted, on images of 64 pixels where the architecture takes them."""
from typing import Any, Callable

import torch

from corpus.record import Example, add, scripted

IMAGE = 64
# Models that take images of any size.
CONVOLUTIONAL = (
    "resnet18d", "resnest14d", "mobilenetv3_small_050", "efficientnet_b0", "convnext_atto", "regnety_002", "repvgg_a0",
    "ghostnet_100", "edgenext_xx_small", "poolformer_s12", "mobilevit_xxs", "densenet121", "rexnet_100", "pvt_v2_b0",
    "dla34", "xcit_nano_12_p16_224", "dpn48b", "lambda_resnet26t",
)
# Models whose parameters fit one size of images, with their settings.
SIZED: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": {"img_size": 96, "depth": 6},
    "mixer_s32_224": {"img_size": 128},
    "gmlp_ti16_224": {"img_size": 96},
    "resmlp_12_224": {"img_size": 96},
    "convit_tiny": {"img_size": 96, "depth": 6},
    "eva02_tiny_patch14_224": {"img_size": 84, "depth": 6},
    "cait_xxs24_224": {"img_size": 96, "depth": 6},
    "swin_tiny_patch4_window7_224": {"img_size": 112, "embed_dim": 48, "depths": (1, 1, 2, 1), "num_heads": (2, 2, 4, 8)},
    "levit_128s": {"img_size": 96},
}


def classifier(name: str, size: int, settings: dict[str, Any]) -> Callable[[int], Example]:
    def build(batch: int) -> Example:
        import timm
        module = timm.create_model(name, pretrained=False, num_classes=10, **settings)
        return scripted(module, torch.randn(batch, 3, size, size))
    return build


for each in CONVOLUTIONAL:
    add(each, classifier(each, IMAGE, {}))
for each, settings in SIZED.items():
    add(each, classifier(each, settings["img_size"], settings))
