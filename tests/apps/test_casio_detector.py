"""The detector's parts against their definitions, written out box by box and sample by sample."""

from __future__ import annotations

import builtins
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from apps.casio.detector import boxes, rcnn, resnet
from apps.casio.detector import nms as suppression
from apps.casio.detector.assign import assign, sample
from apps.casio.detector.heads import detections, paste
from apps.casio.detector.nms import batched_nms, nms
from apps.casio.detector.roi_align import LevelledRoIAlign, roi_align, with_image
from apps.casio.detector.rpn import Limits, ProposalNetwork
from apps.casio.qdtrack import hard_negative_loss, multi_positive_loss
from apps.workload import Request

SMALL = {"image": 64, "shorter": 128, "blocks": [1, 1, 1, 1], "stem": 8, "width": 32, "hidden": 64, "classes": 11}
SMALL |= {"before": 200, "after": 100, "library": "own"}


def random_boxes(count: int, seed: int, side: float = 100.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator) * side
    return torch.cat([corner, corner + 1 + torch.rand(count, 2, generator=generator) * side / 2], dim=1)


def overlap(a: list[float], b: list[float]) -> float:
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / both


def greedy(box: Tensor, scores: Tensor, threshold: float) -> list[int]:
    rows, kept = box.tolist(), []
    for i in sorted(range(len(rows)), key=lambda i: -float(scores[i])):
        if all(overlap(rows[i], rows[j]) <= threshold for j in kept):
            kept.append(i)
    return kept


def test_iou() -> None:
    one, other = random_boxes(7, 0), random_boxes(5, 1)
    expected = [[overlap(a, b) for b in other.tolist()] for a in one.tolist()]
    torch.testing.assert_close(boxes.iou(one, other), torch.tensor(expected))


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.7])
@pytest.mark.parametrize("seed", range(5))
def test_nms_is_the_greedy_one(seed: int, threshold: float) -> None:
    box = random_boxes(120, seed)
    scores = torch.rand(120, generator=torch.Generator().manual_seed(seed))
    assert nms(box, scores, threshold).tolist() == greedy(box, scores, threshold)


def test_nms_of_a_long_chain() -> None:
    # Each box overlaps the next: every second one stays, and each decision hangs on the one before it.
    left = torch.arange(60.0) * 4
    box = torch.stack([left, torch.zeros(60), left + 10, torch.full((60,), 10.0)], dim=1)
    scores = torch.linspace(1, 0, 60)
    assert nms(box, scores, 0.4).tolist() == list(range(0, 60, 2))


@pytest.mark.parametrize("limit", [0, 10_000])
def test_batched_nms_is_nms_in_each_group(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suppression, "ONE_MATRIX", {"cpu": limit})
    box, groups = random_boxes(150, 3) - 20, torch.arange(150) % 4
    scores = torch.rand(150, generator=torch.Generator().manual_seed(3))
    kept = [i for g in range(4) for i in _group(box, scores, groups, g)]
    kept.sort(key=lambda i: -float(scores[i]))
    assert batched_nms(box, scores, groups, 0.3).tolist() == kept
    assert batched_nms(box[:0], scores[:0], groups[:0], 0.3).shape == (0,)


def _group(box: Tensor, scores: Tensor, groups: Tensor, group: int) -> list[int]:
    members = torch.where(groups == group)[0]
    return [int(members[i]) for i in greedy(box[members], scores[members], 0.3)]


def bilinear(plane: Tensor, y: float, x: float) -> float:
    height, width = plane.shape
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    dy, dx = y - top, x - left
    upper = float(plane[top, left]) * (1 - dx) + float(plane[top, right]) * dx
    lower = float(plane[bottom, left]) * (1 - dx) + float(plane[bottom, right]) * dx
    return upper * (1 - dy) + lower * dy


def align_slowly(features: Tensor, rois: Tensor, size: int, scale: float, ratio: int, aligned: bool) -> Tensor:
    result = torch.zeros(len(rois), features.shape[1], size, size)
    for r, (image, x1, y1, x2, y2) in enumerate(rois.tolist()):
        shift = 0.5 if aligned else 0.0
        x1, y1, x2, y2 = (v * scale - shift for v in (x1, y1, x2, y2))
        width, height = x2 - x1, y2 - y1
        if not aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        for c in range(features.shape[1]):
            for i in range(size):
                for j in range(size):
                    values = [
                        bilinear(
                            features[int(image), c],
                            y1 + (i + (a + 0.5) / ratio) * height / size,
                            x1 + (j + (b + 0.5) / ratio) * width / size,
                        )
                        for a in range(ratio)
                        for b in range(ratio)
                    ]
                    result[r, c, i, j] = sum(values) / len(values)
    return result


@pytest.mark.parametrize(
    ("size", "scale", "ratio", "aligned"), [(3, 0.25, 2, True), (2, 0.5, 1, False), (4, 1, 3, True)]
)
def test_roi_align(size: int, scale: float, ratio: int, aligned: bool) -> None:
    torch.manual_seed(0)
    features = torch.randn(2, 3, 9, 11)
    # Inside, tiny, and far over every edge.
    box = [[0, 4, 6, 20, 22], [1, 1, 1, 1.5, 1.5], [1, -30, -9, 15, 70], [0, 36, 30, 60, 50], [1, 90, 90, 99, 99]]
    rois = torch.tensor(box)
    expected = align_slowly(features, rois, size, scale, ratio, aligned)
    torch.testing.assert_close(roi_align(features, rois, size, scale, ratio, aligned), expected, atol=1e-5, rtol=1e-5)


def test_roi_align_differentiates() -> None:
    features = torch.randn(1, 2, 5, 6, dtype=torch.float64, requires_grad=True)
    rois = torch.tensor([[0.0, 1.0, 1.0, 8.0, 9.0], [0.0, -3.0, 2.0, 12.0, 12.0]])
    assert torch.autograd.gradcheck(lambda f: roi_align(f, rois, 2, 0.5), (features,))


def test_each_region_is_taken_from_its_own_level() -> None:
    levels = [torch.full((2, 4, 64 // 2**i, 64 // 2**i), float(i)) for i in range(5)]
    sides = torch.tensor([30.0, 111.0, 113.0, 223.0, 225.0, 447.0, 449.0, 2000.0])
    rois = torch.stack([torch.ones(8), torch.zeros(8), torch.zeros(8), sides, sides], dim=1)
    found = LevelledRoIAlign((4, 8, 16, 32), 7)(levels, rois)
    centre = found[:, 0, 0, 0].tolist()
    assert centre == [0, 0, 1, 1, 2, 2, 3, 3]


def test_encode_and_decode_are_inverse() -> None:
    truth, reference = random_boxes(20, 5), random_boxes(20, 6)
    offsets = boxes.encode(truth, reference, (0.1, 0.1, 0.2, 0.2))
    torch.testing.assert_close(boxes.decode(offsets, reference, (0.1, 0.1, 0.2, 0.2)), truth, atol=1e-3, rtol=1e-4)
    assert boxes.encode(reference, reference, (1, 1, 1, 1)).abs().max() < 1e-6


def test_anchors() -> None:
    levels = boxes.anchors([(2, 3), (1, 1)], [4, 8], 8.0, (0.5, 1.0, 2.0), "cpu")
    assert [len(x) for x in levels] == [18, 3]
    first = levels[0].view(2, 3, 3, 4)
    torch.testing.assert_close(first[1, 2, 1], torch.tensor([8.0 - 16, 4.0 - 16, 8.0 + 16, 4.0 + 16]))
    size = first[..., 2:] - first[..., :2]
    torch.testing.assert_close(size.prod(dim=-1), torch.full((2, 3, 3), 1024.0))
    torch.testing.assert_close((size[..., 1] / size[..., 0])[0, 0], torch.tensor([0.5, 1.0, 2.0]))


def test_clip() -> None:
    cut = boxes.clip(torch.tensor([[-5.0, 2.0, 30.0, 50.0]]), height=40, width=20)
    assert cut.tolist() == [[0.0, 2.0, 20.0, 40.0]]


def test_assignment() -> None:
    truth = torch.tensor([[0.0, 0, 10, 10], [20, 20, 30, 30], [50, 50, 60, 60]])
    candidates = torch.tensor(
        [[0.0, 0, 10, 9], [0, 0, 10, 5], [22, 22, 30, 31], [80, 80, 90, 90], [50, 50, 60, 54], [55, 55, 75, 75]]
    )
    # Overlaps 0.9, 0.5, 0.59 (64 of 108), 0, 0.4, 0.05.
    assert assign(candidates, truth, 0.7, 0.3).tolist() == [1, -1, -1, 0, -1, 0]
    assert assign(candidates, truth, 0.7, 0.3, least=0.3).tolist() == [1, -1, 2, 0, 3, 0]
    assert assign(candidates, truth, 0.5, 0.5).tolist() == [1, 1, 2, 0, 0, 0]


def test_sampling() -> None:
    torch.manual_seed(0)
    candidates = random_boxes(100, 0)
    assigned = torch.zeros(100, dtype=torch.int64)
    assigned[:40], assigned[40:44], assigned[90:] = 1, 2, -1
    chosen = sample(candidates, assigned, 32, 0.25)
    assert len(chosen.positives) == 8 and len(chosen.negatives) == 24
    assert (assigned[chosen.positive_index] > 0).all() and (assigned[chosen.negative_index] == 0).all()
    assert torch.equal(chosen.owner, assigned[chosen.positive_index] - 1)
    assert len(set(chosen.negative_index.tolist())) == 24
    balanced = sample(candidates, assigned, 16, 0.5, balanced=True)
    assert (balanced.owner == 1).sum() >= 3 and len(balanced.positives) == 8
    few = sample(candidates, torch.where(assigned == 2, 2, assigned.clamp(max=0)), 64, 0.5, negatives_per_positive=3)
    assert len(few.positives) == 4 and len(few.negatives) == 12
    assert torch.equal(few.boxes, torch.cat([few.positives, few.negatives]))


def test_proposals_are_sound() -> None:
    torch.manual_seed(0)
    network = ProposalNetwork(16)
    levels = [torch.randn(2, 16, 32 // 2**i, 48 // 2**i) for i in range(5)]
    guesses = network(levels)
    found = network.proposals(guesses, [(128, 192), (100, 150)], Limits(before=60, after=40))
    for box, (height, width) in zip(found, [(128, 192), (100, 150)], strict=True):
        assert 0 < len(box) <= 40
        assert (box[:, 2:] > box[:, :2]).all() and (box >= 0).all()
        assert box[:, 2].max() <= width and box[:, 3].max() <= height


def test_proposal_loss_of_a_perfect_network() -> None:
    network = ProposalNetwork(16)
    levels = [torch.randn(1, 16, 32 // 2**i, 32 // 2**i) for i in range(5)]
    truth = random_boxes(3, 1)
    guesses = network(levels)
    every = torch.cat(guesses.anchors)
    assigned = assign(every, truth, 0.7, 0.3, least=0.3)
    owner = (assigned - 1).clamp(min=0)
    offsets = boxes.encode(truth[owner], every, (1, 1, 1, 1))[None]
    logits = torch.where(assigned > 0, 30.0, -30.0)[None]
    sizes = [len(a) for a in guesses.anchors]
    perfect = type(guesses)(list(logits.split(sizes, 1)), list(offsets.split(sizes, 1)), guesses.anchors)
    assert network.loss(perfect, [truth], 256).item() < 1e-6
    assert network.loss(guesses, [truth], 256).item() > 0.5


def test_detections_per_class() -> None:
    # Two proposals at one place: suppressed within a class, kept across classes.
    proposals = torch.tensor([[10.0, 10, 20, 20], [10, 10, 20, 21], [40, 40, 50, 50]])
    logits = torch.full((3, 4), -9.0)
    logits[0, 1], logits[1, 1], logits[1, 2], logits[2, 0] = 9, 8, 8, 9
    box, score, cls = detections(logits, torch.zeros(3, 4, 4), proposals, (64, 64))
    assert cls.tolist() == [1, 2] and score[0] > 0.99 and 0.49 < score[1] < 0.51
    torch.testing.assert_close(box, proposals[:2])
    # A score of nothing at all leaves nothing.
    assert len(detections(torch.zeros(3, 40), torch.zeros(3, 40, 4), proposals, (64, 64))[0]) == 0


def test_masks_are_drawn_into_their_boxes() -> None:
    drawn = paste(torch.ones(2, 28, 28), torch.tensor([[4.0, 8.0, 12.0, 20.0], [0.0, 0.0, 32.0, 32.0]]), (32, 32))
    assert drawn.shape == (2, 32, 32)
    assert (drawn[0, 9:19, 5:11] == 1).all() and drawn[0, :7].sum() == 0 and drawn[0, :, 13:].sum() == 0
    assert drawn[1, 1:31, 1:31].min() == 1


def test_frozen_norm_is_batch_norm_in_evaluation() -> None:
    torch.manual_seed(0)
    frozen, reference = resnet.FrozenBatchNorm2d(5), torch.nn.BatchNorm2d(5).eval()
    for name in ("weight", "bias", "running_mean", "running_var"):
        value = torch.rand(5) + 0.5
        getattr(frozen, name).copy_(value)
        getattr(reference, name).data.copy_(value)
    x = torch.randn(2, 5, 3, 3)
    torch.testing.assert_close(frozen(x), reference(x))
    fixed = resnet.EvalBatchNorm2d(5).train()
    fixed.load_state_dict(reference.state_dict())
    torch.testing.assert_close(fixed(x), reference(x))
    torch.testing.assert_close(fixed.running_mean, reference.running_mean)


@pytest.mark.parametrize(("builder", "parameters"), [(rcnn.faster_rcnn, 41_755_286), (rcnn.mask_rcnn, 44_401_393)])
def test_full_rcnn_has_torchvisions_parameters(builder: Any, parameters: int) -> None:
    assert builder(Request("rcnn", device="meta", config={"library": "own"})).parameters == parameters


@pytest.mark.parametrize("masks", [False, True])
def test_rcnn_finds_boxes_and_masks(masks: bool) -> None:
    torch.set_num_threads(1)
    builder = rcnn.mask_rcnn if masks else rcnn.faster_rcnn
    built = builder(Request("rcnn", batch=2, config=SMALL))
    assert "own parts" in built.notes[0]
    built.step()
    module: Any = built.module
    with torch.no_grad():
        results = module([torch.rand(3, 64, 64), torch.rand(3, 48, 80)])
    for result, (height, width) in zip(results, [(64, 64), (48, 80)], strict=True):
        count = len(result["boxes"])
        assert 0 < count <= 100
        assert (result["labels"] > 0).all() and (result["scores"] > 0.05).all()
        assert (result["scores"].diff() <= 0).all()
        assert result["boxes"][:, 2].max() <= width and result["boxes"][:, 3].max() <= height
        if masks:
            assert result["masks"].shape == (count, height, width)


def test_a_torchvision_that_does_not_fit_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def broken(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("torchvision"):
            raise RuntimeError("operator torchvision::nms does not exist")
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", broken)
    assert "own parts" in rcnn.faster_rcnn(Request("rcnn", config=SMALL | {"library": "auto"})).notes[0]
    with pytest.raises(ImportError, match="kernelscope"):
        rcnn.faster_rcnn(Request("rcnn", config=SMALL | {"library": "torchvision"}))


def test_multi_positive_loss() -> None:
    torch.manual_seed(0)
    similarity = torch.randn(4, 6)
    target = torch.rand(4, 6) < 0.4
    target[2] = False
    terms = []
    for row, wanted in zip(similarity.tolist(), target.tolist(), strict=True):
        positive = [v for v, t in zip(row, wanted, strict=True) if t]
        negative = [v for v, t in zip(row, wanted, strict=True) if not t]
        if positive:
            terms.append(math.log(1 + sum(math.exp(n - p) for p in positive for n in negative)))
    assert float(multi_positive_loss(similarity, target)) == pytest.approx(sum(terms) / len(terms), rel=1e-5)


def test_hard_negative_loss() -> None:
    cosine = torch.tensor([[0.9, 0.5, 0.05, 0.3, 0.8, -0.2]])
    target = torch.tensor([[True, False, False, False, False, False]])
    # The positive, and the three negatives that are most alike; 0.1 of likeness is free.
    expected = (0.1**2 + 0.7**2 + 0.4**2 + 0.2**2) / 4
    assert float(hard_negative_loss(cosine, target)) == pytest.approx(expected, rel=1e-5)


def test_image_index_is_put_first() -> None:
    rois = with_image([torch.zeros(2, 4), torch.ones(1, 4)])
    assert rois[:, 0].tolist() == [0, 0, 1] and rois[2, 1:].tolist() == [1, 1, 1, 1]
