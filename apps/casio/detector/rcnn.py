"""Faster R-CNN and Mask R-CNN with ResNet-50 and a feature pyramid, inference (NonGEMM Bench's two detectors).

torchvision's models where it can be imported, else the same network from the parts of this package: same layers, same
parameter count, same thresholds, with RoIAlign and suppression in plain PyTorch. ``Built.notes`` says which it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apps import steps
from apps.casio.common import make
from apps.casio.detector import resnet
from apps.casio.detector.boxes import clip
from apps.casio.detector.fpn import FeaturePyramid
from apps.casio.detector.heads import BoxHead, MaskHead, detections, paste
from apps.casio.detector.roi_align import LevelledRoIAlign, with_image
from apps.casio.detector.rpn import Limits, ProposalNetwork
from apps.workload import Built, Request

# About one class in 160 of a region then passes the threshold of 0.05, some 500 boxes an image.
SPREAD = 0.7
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Config:
    """``image``: side of the square input, which the model itself scales to ``shorter`` pixels (224 to 800 by default,
    as torchvision does). ``library``: auto (torchvision where it imports), torchvision, own."""

    image: int = 224
    shorter: int = 800
    longer: int = 1333
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    stem: int = 64
    width: int = 256
    hidden: int = 1024
    classes: int = 91
    before: int = 1000
    after: int = 1000
    library: str = "auto"


def faster_rcnn(request: Request) -> Built:
    """``batch`` images through boxes and classes."""
    return _build(request, masks=False)


def mask_rcnn(request: Request) -> Built:
    """``batch`` images through boxes, classes and masks."""
    return _build(request, masks=True)


def _build(request: Request, masks: bool) -> Built:
    config = Config(**request.config)
    detection = _torchvision() if config.library != "own" else None
    if config.library == "torchvision" and detection is None:
        raise ImportError("torchvision cannot be imported here; pip install 'kernelscope[vision]'")
    if detection is None:
        model: nn.Module = make(request, lambda: RCNN(config, masks))
        notes = ["the project's own parts, without torchvision: RoIAlign and suppression in plain PyTorch"]
    else:
        model = make(request, lambda: _from_torchvision(detection, config, masks))
        notes = ["torchvision's model, with its RoIAlign and suppression kernels"]
    images = [torch.rand(3, config.image, config.image, device=request.device) for _ in range(request.batch)]
    images = [image.to(steps.dtype_of(request)) for image in images]
    if request.device != "meta":
        spread_scores(model, images)
    notes.append("random weights; class scores spread so that some pass the threshold, as trained ones do")
    return steps.built(request, model, lambda: model(images), item_name="images", notes=tuple(notes))


def _torchvision() -> Any:
    # A torchvision of another torch build fails in many ways while it registers its operators.
    try:
        from torchvision.models import detection
    except (ImportError, RuntimeError, OSError, AttributeError):
        return None
    return detection


def _from_torchvision(detection: Any, config: Config, masks: bool) -> nn.Module:
    # Without weights torchvision's own functions take a batch norm that learns; trained models have a frozen one.
    backbone = detection.backbone_utils.resnet_fpn_backbone(backbone_name="resnet50", weights=None)
    model: nn.Module = (detection.MaskRCNN if masks else detection.FasterRCNN)(
        backbone,
        config.classes,
        min_size=config.shorter,
        max_size=config.longer,
        rpn_pre_nms_top_n_test=config.before,
        rpn_post_nms_top_n_test=config.after,
    )
    for name, module in model.named_modules():
        if name.endswith("bn3"):
            module.weight.fill_(resnet.BRANCH_SCALE)
    return model


def spread_scores(model: nn.Module, images: list[Tensor]) -> None:
    """Scale the classifier so that each class's logits have mean 0 and deviation ``SPREAD`` over these images' regions.

    Untrained logits lie so close together that no box would pass the threshold, and suppression and masks would have
    nothing to do. Takes one forward pass.
    """
    layer = next(m for name, m in model.named_modules() if name.endswith(("cls_score", "box.classes")))
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.eval()
    with torch.no_grad():
        model(images)
        hook.remove()
        logits = seen[0].float() @ layer.weight.float().T
        factor = SPREAD / logits.std(dim=0).clamp(min=1e-6)
        layer.weight.copy_(layer.weight.float() * factor[:, None])
        layer.bias.copy_(-logits.mean(dim=0) * factor)


class RCNN(nn.Module):
    """The whole inference path of a two-stage detector."""

    def __init__(self, config: Config, masks: bool) -> None:
        super().__init__()
        self.config = config
        self.backbone = resnet.Features(resnet.Bottleneck, config.blocks, config.stem, norm=resnet.FrozenBatchNorm2d)
        self.pyramid = FeaturePyramid(self.backbone.widths, config.width)
        self.rpn = ProposalNetwork(config.width)
        self.align = LevelledRoIAlign((4, 8, 16, 32), 7, aligned=False)
        self.box = BoxHead(config.width, 7, config.hidden, config.classes, background=0, regressed=config.classes)
        self.mask_align = LevelledRoIAlign((4, 8, 16, 32), 14, aligned=False) if masks else None
        self.mask = MaskHead(config.width, config.classes) if masks else None

    def forward(self, images: list[Tensor]) -> list[dict[str, Tensor]]:
        """``boxes``, ``scores``, ``labels`` (and ``masks``) of each image (3, height, width) in [0, 1]."""
        batch, sizes = self._prepare(images)
        levels = self.pyramid(self.backbone(batch))
        guesses = self.rpn(levels)
        proposals = self.rpn.proposals(guesses, sizes, Limits(self.config.before, self.config.after))
        scores, shifts = self.box(self.align(levels, with_image(proposals)))
        counts = [len(p) for p in proposals]
        results = []
        for score, shift, proposal, size in zip(
            scores.split(counts), shifts.split(counts), proposals, sizes, strict=True
        ):
            found = detections(score, shift, proposal, size)
            results.append(dict(zip(("boxes", "scores", "labels"), found, strict=True)))
        if self.mask is not None and self.mask_align is not None:
            kept = [r["boxes"] for r in results]
            probability = torch.sigmoid(self.mask(self.mask_align(levels, with_image(kept))).float())
            label = torch.cat([r["labels"] for r in results])
            own = probability[torch.arange(len(label), device=label.device), label]
            for result, mask in zip(results, own.split([len(k) for k in kept]), strict=True):
                result["masks"] = mask
        for result, size, original in zip(results, sizes, images, strict=True):
            self._restore(result, size, (original.shape[1], original.shape[2]))
        return results

    def _prepare(self, images: list[Tensor]) -> tuple[Tensor, list[tuple[int, int]]]:
        """Normalized, scaled and padded to a multiple of 32, with each image's size before the padding."""
        mean = images[0].new_tensor(MEAN).view(3, 1, 1)
        deviation = images[0].new_tensor(DEVIATION).view(3, 1, 1)
        scaled = []
        for image in images:
            shorter, longer = min(image.shape[1:]), max(image.shape[1:])
            factor = min(self.config.shorter / shorter, self.config.longer / longer)
            image = ((image - mean) / deviation)[None]
            scaled.append(F.interpolate(image, scale_factor=factor, mode="bilinear", recompute_scale_factor=True)[0])
        sizes = [(s.shape[1], s.shape[2]) for s in scaled]
        height, width = (-(-max(side) // 32) * 32 for side in zip(*sizes, strict=True))
        batch = scaled[0].new_zeros(len(scaled), 3, height, width)
        for slot, image in zip(batch, scaled, strict=True):
            slot[:, : image.shape[1], : image.shape[2]].copy_(image)
        return batch, sizes

    def _restore(self, result: dict[str, Tensor], size: tuple[int, int], original: tuple[int, int]) -> None:
        """Boxes and masks in pixels of the image that was given."""
        ratio = result["boxes"].new_tensor([original[1] / size[1], original[0] / size[0]] * 2)
        result["boxes"] = clip(result["boxes"] * ratio, *original)
        if "masks" in result:
            result["masks"] = paste(result["masks"], result["boxes"], original)
