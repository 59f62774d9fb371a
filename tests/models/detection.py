"""Object detectors of torchvision, whose operators nms and roi_align are not LibTorch's: tests/plugins/torchvision_ops.cpp."""
from typing import Dict, List, Tuple

import torch
from torch import Tensor, nn

from recipe import Sample, recipe
from vision import settle_batch_norms

FOLDER = "torchvision_ops"


def detector() -> nn.Module:
    """Faster R-CNN with MobileNetV3 and a feature pyramid, for small images and with a narrow head.

    Its heads start lively enough that proposals and scores differ.
    """
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn as build
    from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
    model = build(weights=None, weights_backbone=None, num_classes=6, min_size=64, max_size=96, box_score_thresh=0.25,
                  rpn_pre_nms_top_n_test=100, rpn_post_nms_top_n_test=30, rpn_pre_nms_top_n_train=100,
                  rpn_post_nms_top_n_train=30, rpn_batch_size_per_image=32, box_batch_size_per_image=16,
                  box_detections_per_img=12)
    model.roi_heads.box_head = TwoMLPHead(256 * 7 * 7, 48)
    model.roi_heads.box_predictor = FastRCNNPredictor(48, 6)
    settle_batch_norms(model.backbone)
    nn.init.normal_(model.rpn.head.cls_logits.weight, std=0.05)
    nn.init.normal_(model.rpn.head.bbox_pred.weight, std=0.01)
    nn.init.normal_(model.roi_heads.box_predictor.cls_score.weight, std=0.1)
    nn.init.normal_(model.roi_heads.box_predictor.bbox_pred.weight, std=0.01)
    center_scores(model)
    return model


def center_scores(model: nn.Module) -> None:
    """Makes the classes of the last layer equally likely on average."""
    last = model.roi_heads.box_predictor.cls_score
    seen: List[Tensor] = []
    hook = last.register_forward_hook(lambda layer, inputs, scores: seen.append(scores))
    with torch.no_grad():
        model.eval()([torch.rand(3, 64, 80) for _ in range(6)])
        last.bias -= torch.cat(seen).mean(0)
    hook.remove()


def pictures(*sizes: tuple) -> List[Tensor]:
    return [torch.rand(3, height, width) for height, width in sizes]


@recipe(folder=FOLDER)
def fasterrcnn() -> Sample:
    """torchvision's fasterrcnn_mobilenet_v3_large_320_fpn, evaluating: lists of images of different sizes"""
    # No gradients: those of boxes in pixels are thousands beside others far below one, and so are their errors.
    return Sample(detector().requires_grad_(False),
                  [(pictures((80, 96), (64, 64)),), (pictures((64, 72)),), (pictures((70, 50), (50, 70), (64, 64)),)],
                  atol=3e-3)  # of a pixel: LibTorch with one thread and with two differs by as much


def targets(*counts: int) -> List[Dict[str, Tensor]]:
    def boxes(count: int) -> Tensor:
        corners = torch.rand(count, 2) * 30
        return torch.cat([corners, corners + 10 + torch.rand(count, 2) * 20], 1)
    return [{"boxes": boxes(count), "labels": torch.randint(1, 6, (count,))} for count in counts]


@recipe(folder=FOLDER)
def fasterrcnn_train() -> Sample:
    """the same, training: a dict of losses against boxes and labels, one image without any"""
    return Sample(detector(), [(pictures((64, 80), (64, 64)), targets(3, 1)), (pictures((72, 64), (64, 64)), targets(0, 2))],
                  mode="train", seed=6, largest_grad=2**12,
                  atol=5e-4)  # gradients of up to 10, through batch norms over few pixels


class RegionFeatures(nn.Module):
    """Both operators by themselves: both conventions for pixels, few and many points per bin, regions off the image."""

    def __init__(self) -> None:
        super().__init__()
        from torchvision.ops import RoIAlign  # brings the operators
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)
        self.coarse = RoIAlign((3, 2), spatial_scale=0.5, sampling_ratio=2)
        self.fine = RoIAlign(2, spatial_scale=1.0, sampling_ratio=0, aligned=True)

    def forward(self, images: Tensor, boxes: Tensor, scores: Tensor, threshold: float) -> Tuple[Tensor, Tensor, Tensor]:
        kept = torch.ops.torchvision.nms(boxes[:, 1:], scores, threshold)
        features = self.convolution(images)
        return kept, self.coarse(features, boxes[kept]), self.fine(features, boxes)


def regions(count: int, images: int) -> tuple:
    corners = torch.rand(count, 2) * 20 - 4
    boxes = torch.cat([torch.randint(images, (count, 1)), corners, corners + torch.rand(count, 2) * 16], 1)
    return torch.randn(images, 3, 12, 14), boxes, torch.rand(count)


@recipe(folder=FOLDER)
def region_features() -> Sample:
    """nms and roi_align by themselves: aligned and not, fixed and adaptive sampling, regions that leave the image"""
    return Sample(RegionFeatures(), [(*regions(12, 2), 0.1), (*regions(1, 1), 0.5), (*regions(0, 1), 0.5),
                                     (*regions(30, 3), 0.3)])
