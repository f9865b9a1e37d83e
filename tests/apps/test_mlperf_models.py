"""The MLPerf models' own parts: boxes, look-ups, pairs, decoding."""

from __future__ import annotations

import pytest
import torch

from apps.mlperf import dlrm, rnnt, ssd, unet3d


@pytest.mark.parametrize(("large", "image", "boxes"), [(True, 1200, 15_130), (False, 300, 8_732)])
def test_ssd_has_the_published_boxes(large: bool, image: int, boxes: int) -> None:
    with torch.device("meta"):
        model = ssd.SSD(ssd.Config(), large)
        offsets, scores, sides = model._heads(torch.zeros(1, 3, image, image))
    assert sides == ([50, 25, 13, 7, 3, 3] if large else [38, 19, 10, 5, 3, 1])
    assert offsets.shape == (1, 4, boxes) and scores.shape == (1, 81, boxes)
    assert ssd.default_boxes(sides, image, torch.device("cpu")).shape == (boxes, 4)


def test_ssd_default_boxes_follow_the_order_of_the_heads() -> None:
    found = ssd.default_boxes([38, 19, 10, 5, 3, 1], 300, torch.device("cpu"))
    # First map: shape slowest, then rows, then columns.
    first = found[: 4 * 38 * 38].view(4, 38, 38, 4)
    centre = (first[..., :2] + first[..., 2:]) / 2
    torch.testing.assert_close(centre[0, 3, 5], torch.tensor([5.5 * 300 / 38, 3.5 * 300 / 38]))
    size = first[:, 0, 0, 2:] - first[:, 0, 0, :2]
    root = 2**0.5
    expected = [[21.0, 21.0], [(21 * 45) ** 0.5] * 2, [21 * root, 21 / root], [21 / root, 21 * root]]
    torch.testing.assert_close(size, torch.tensor(expected), atol=1e-3, rtol=1e-4)


def test_ssd_detections_are_suppressed_and_ordered() -> None:
    torch.manual_seed(0)
    config = ssd.Config(classes=4, blocks=(1, 1, 1), stem=8, widths=(32,) * 6, middle=(16,) * 5, most=20)
    model = ssd.SSD(config, large=True).eval()
    with torch.no_grad():
        results = model.detect(torch.randn(2, 3, 400, 400))
    for box, score, cls in results:
        assert 0 < len(box) == len(score) == len(cls) <= 20
        assert (score.diff() <= 0).all() and (score > 0.05).all() and set(cls.tolist()) <= {1, 2, 3}


def test_dlrm_pairs() -> None:
    torch.manual_seed(0)
    config = dlrm.Config(dense=3, bottom=(8, 4), tables=3, rows=5, top=(6, 1))
    model = dlrm.DLRM(config)
    seen = []
    model.top.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    dense, indices = torch.randn(2, 3), [torch.tensor([1, 4]), torch.tensor([0, 2]), torch.tensor([3, 3])]
    assert model(dense, indices, torch.arange(2)).shape == (2, 1)
    x = model.bottom(dense)
    vectors = [x, *(table.weight[index] for table, index in zip(model.tables, indices, strict=True))]
    products = [(vectors[i] * vectors[j]).sum(dim=1) for i in range(4) for j in range(i)]
    torch.testing.assert_close(seen[0], torch.cat([x, torch.stack(products, dim=1)], dim=1), atol=1e-5, rtol=1e-5)


def test_dlrm_top_input_is_479() -> None:
    with torch.device("meta"):
        assert dlrm.DLRM(dlrm.Config()).top[0].in_features == 479


def test_unet_keeps_the_shape() -> None:
    with torch.device("meta"):
        assert unet3d.UNet3D(unet3d.Config())(torch.zeros(1, 1, 128, 128, 128)).shape == (1, 3, 128, 128, 128)


SMALL = rnnt.Config(mels=6, encoder=8, prediction=5, joint=7, vocabulary=5, most=3)


def test_rnnt_joins_every_frame_with_every_symbol() -> None:
    torch.manual_seed(0)
    model = rnnt.RNNT(SMALL).eval()
    audio, text = torch.randn(9, 2, 6), torch.randint(4, (2, 3))
    logits = model(audio, text)
    assert logits.shape == (2, 4, 4, 5)
    encoded = model.encode(audio)
    assert encoded.shape == (4, 2, 8)
    start, _ = model._predict(None, None)
    torch.testing.assert_close(logits[0, 2, 0], model.joint(torch.cat([encoded[2, 0], start])), atol=1e-5, rtol=1e-5)


def test_rnnt_stacks_neighbouring_frames() -> None:
    model = rnnt.RNNT(SMALL)
    seen = []
    model.after.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    audio = torch.randn(6, 2, 6)
    model.encode(audio)
    before = model.before(audio)[0]
    torch.testing.assert_close(seen[0][1, 1], torch.cat([before[2, 1], before[3, 1]]))


def test_rnnt_decodes_greedily() -> None:
    torch.manual_seed(0)
    model = rnnt.RNNT(SMALL).eval()
    audio = torch.randn(8, 2, 6)
    with torch.no_grad():
        model.joint[-1].bias[4] = 100.0
        assert model.decode(audio) == [[], []]
        model.joint[-1].bias[4] = -100.0
        found = model.decode(audio)
        # Never blank: the limit for each of four frames.
        assert [len(f) for f in found] == [12, 12] and all(0 <= s < 4 for f in found for s in f)
        # The first symbol of each frame is the best after all those before it.
        logits = model(audio[:, :1], torch.tensor([found[0]]))
    assert [int(logits[0, t, 3 * t].argmax()) for t in range(4)] == [found[0][3 * t] for t in range(4)]
