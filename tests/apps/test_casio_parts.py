"""The applications' own operators against their definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apps import steps
from apps.casio import gpt3, mel, meshgraphnets, muzero, nerf, pinn, swin, tabnet, tacotron2, wavenet
from apps.casio.runge_kutta import gauss_legendre
from apps.workload import Request

# TabNet


def simplex(z: list[float]) -> list[float]:
    """Euclidean projection by bisection on the threshold."""
    low, high = min(z) - 1, max(z)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(v - middle, 0) for v in z) > 1 else (low, middle)
    return [max(v - low, 0) for v in z]


def test_sparsemax_projects_on_the_simplex() -> None:
    torch.manual_seed(0)
    z = torch.randn(20, 9) * 2
    z[0], z[1, 3] = 0.5, 100.0
    found = tabnet.sparsemax(z)
    torch.testing.assert_close(found, torch.tensor([simplex(row) for row in z.tolist()]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(20))
    assert (found == 0).any()
    assert tabnet.sparsemax(z.bfloat16()).dtype == torch.bfloat16


def test_ghost_batch_norm_is_batch_norm_of_each_group() -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 5)
    found = tabnet.GhostBatchNorm(5, 4)(x)
    expected = torch.cat([F.batch_norm(part, None, None, training=True, eps=1e-3) for part in x.split(4)])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_tabnet_refuses_a_batch_that_does_not_divide() -> None:
    with pytest.raises(tabnet.BadBatch, match="multiple"):
        tabnet.build(Request("tabnet", batch=6))


# WaveNet


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dilation", [1, 2, 3, 8, 64])
def test_time_to_batch_convolution_is_dilated_convolution(dilation: int, batch: int) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(batch, 101, 4), torch.randn(6, 4, 2), torch.randn(6)
    expected = F.conv1d(x.transpose(1, 2), weight, bias, dilation=dilation).transpose(1, 2)
    torch.testing.assert_close(wavenet.dilated(x, weight, bias, dilation), expected, atol=1e-5, rtol=1e-5)


def test_time_to_batch_and_back() -> None:
    x = torch.randn(2, 10, 3)
    there = wavenet.time_to_batch(x, 4)
    assert there.shape == (8, 3, 3)
    back = wavenet.batch_to_time(there, 4)
    assert torch.equal(back[:, :10], x) and (back[:, 10:] == 0).all()


def test_wavenet_sees_its_receptive_field_and_no_more() -> None:
    config = wavenet.Config(samples=60, stacks=2, doublings=3, residual=4, dilated=4, skip=8, levels=16)
    torch.manual_seed(0)
    model = wavenet.WaveNet(config)
    x = torch.randn(1, 60, 16, requires_grad=True)
    out = model(x)
    assert out.shape == (1, 60 - model.receptive_field + 1, 16)
    out[0, 5].sum().backward()
    assert x.grad is not None
    seen = torch.where(x.grad[0].abs().sum(dim=1) > 0)[0]
    assert (int(seen.min()), int(seen.max())) == (5, 5 + model.receptive_field - 1)


def test_wavenet_full_lengths() -> None:
    with torch.device("meta"):
        model = wavenet.WaveNet(wavenet.Config())
    assert model.receptive_field == 5_117
    assert wavenet.Config().samples - model.receptive_field + 1 == 62_351


def test_mu_law_levels() -> None:
    levels = wavenet.mu_law(torch.tensor([-1.0, 0.0, 1.0, 5.0]), 256)
    assert levels.tolist() == [0, 128, 255, 255]
    assert (wavenet.mu_law(torch.linspace(-1, 1, 1000), 256).diff() >= 0).all()


# Swin


def test_windows_round_trip() -> None:
    x = torch.randn(2, 12, 12, 5)
    windows = swin.to_windows(x, 4)
    assert windows.shape == (18, 16, 5)
    assert torch.equal(windows[1], x[0, 0:4, 4:8].reshape(16, 5))
    assert torch.equal(swin.from_windows(windows, 4, 12), x)


def test_shift_mask_separates_what_was_apart() -> None:
    side, window, shift = 12, 4, 2
    mask = swin.shift_mask(side, window, shift)
    place = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"), dim=-1).float()
    rolled = torch.roll(place, (-shift, -shift), dims=(0, 1))[None]
    windows = swin.to_windows(rolled, window)
    apart = (windows[:, :, None] - windows[:, None]).abs().amax(dim=-1)
    # Tokens of one window that are neighbours in the image may attend to each other; others may not.
    assert torch.equal(mask == 0, apart < window)


def test_cosine_attention_ignores_the_length_of_queries() -> None:
    torch.manual_seed(0)
    attention = swin.WindowAttention(8, 2, 3, 0, 16)
    x = torch.randn(4, 9, 8)
    before = attention(x, None)
    with torch.no_grad():
        attention.qkv.weight[:16] *= 7.0
    torch.testing.assert_close(attention(x, None), before, atol=1e-5, rtol=1e-5)


def test_offsets_are_log_spaced_from_minus_one_to_one() -> None:
    table = swin.WindowAttention(8, 2, 5, 0, 16).offsets
    assert table.shape == (9, 9, 2)
    torch.testing.assert_close(table[0, 0], torch.tensor([-1.0, -1.0]) * math.log2(9) / 3)
    assert (table[4, 4] == 0).all()


# PINN


class Wave(pinn.Problem):
    def loss(self) -> Tensor:
        return torch.zeros(())


def wave() -> Wave:
    torch.manual_seed(0)
    return Wave([-1.0, 0.0], [2.0, 1.5], pinn.Config(width=12, hidden=3), outputs=4).double()


def test_derivatives_against_finite_differences() -> None:
    net, h = wave(), 1e-4
    x = torch.rand(7, 1, dtype=torch.float64, requires_grad=True)
    t = torch.rand(7, 1, dtype=torch.float64, requires_grad=True)
    u = net(x, t)[:, :1]
    u_x, u_t = pinn.derivative(u, x), pinn.derivative(u, t)
    u_xt = pinn.derivative(u_x, t)

    def at(dx: float, dt: float) -> Tensor:
        return net(x + dx, t + dt)[:, :1].detach()

    torch.testing.assert_close(u_x.detach(), (at(h, 0) - at(-h, 0)) / (2 * h), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(u_t.detach(), (at(0, h) - at(0, -h)) / (2 * h), atol=1e-6, rtol=1e-6)
    mixed = (at(h, h) - at(h, -h) - at(-h, h) + at(-h, -h)) / (4 * h * h)
    torch.testing.assert_close(u_xt.detach(), mixed, atol=1e-5, rtol=1e-5)


def test_forward_derivatives_of_every_output() -> None:
    net, h = wave(), 1e-3
    x = torch.rand(5, 1, dtype=torch.float64, requires_grad=True)
    t = torch.rand(5, 1, dtype=torch.float64)
    u = net(x, t)
    first = pinn.forward_derivative(u, x)
    third = pinn.forward_derivative(pinn.forward_derivative(first, x), x)

    def at(dx: float) -> Tensor:
        return net(x + dx, t).detach()

    assert first.shape == third.shape == (5, 4)
    torch.testing.assert_close(first.detach(), (at(h) - at(-h)) / (2 * h), atol=1e-5, rtol=1e-5)
    difference = (at(2 * h) - 2 * at(h) + 2 * at(-h) - at(-2 * h)) / (2 * h**3)
    torch.testing.assert_close(third.detach(), difference, atol=1e-4, rtol=1e-4)


def problem(equation: str, **config: Any) -> Any:
    settings = pinn.Config(equation=equation, width=4, hidden=1, **config)
    model: Any = pinn.PROBLEMS[equation](settings)
    torch.manual_seed(1)
    model = model.double()
    model.place(Request("pinn"))
    return model


def solved(model: Any, solution: Any) -> float:
    model.forward = solution
    return float(model.loss().detach())


def test_navier_stokes_loss_vanishes_on_an_exact_solution() -> None:
    model = problem("navier-stokes", points=40)
    with torch.no_grad():
        model.convection.fill_(1.0)
        model.viscosity.fill_(0.01)

    def vortex(x: Tensor, y: Tensor, t: Tensor) -> Tensor:
        psi = torch.cos(x) * torch.cos(y) * torch.exp(-0.02 * t)
        p = -0.25 * (torch.cos(2 * x) + torch.cos(2 * y)) * torch.exp(-0.04 * t)
        return torch.cat([psi, p], dim=1)

    assert solved(model, vortex) < 1e-20
    with torch.no_grad():
        model.viscosity.fill_(0.02)
    assert solved(model, vortex) > 1e-4


def test_schrodinger_loss_vanishes_on_a_soliton() -> None:
    model = problem("schrodinger", points=40, data=10)
    model.u0 = 1.0 / torch.cosh(model.x0.detach())

    def soliton(x: Tensor, t: Tensor) -> Tensor:
        return torch.cat([torch.cos(t / 2), torch.sin(t / 2)], dim=1) / torch.cosh(x)

    # What is left is its slope at the two ends, which a period joins.
    ends = (2 * math.sinh(5) / math.cosh(5) ** 2) ** 2
    assert solved(model, soliton) == pytest.approx(ends, rel=1e-9)


def test_kdv_loss_vanishes_on_a_soliton() -> None:
    model = problem("kdv", points=30, data=31, stages=12)
    with torch.no_grad():
        model.a.fill_(1.0)
        model.log_b.fill_(math.log(0.0025))
    matrix, weights, nodes = gauss_legendre(12)
    model.stage_weights, model.end_weights = torch.tensor(matrix), torch.tensor(weights)[None]
    times = torch.tensor(nodes) * 0.6

    def soliton(x: Tensor) -> Tensor:
        return 0.9 / torch.cosh(math.sqrt(120) / 2 * (x - 0.3 * times)).square()

    assert solved(model, soliton) < 1e-8
    assert solved(model, lambda x: soliton(x) * 1.01) > 1e-4


def test_allen_cahn_loss_vanishes_where_nothing_changes() -> None:
    model = problem("allen-cahn", points=20, stages=6)
    model.u0 = torch.ones(20, 1, dtype=torch.float64)
    assert solved(model, lambda x: (0.0 * x**4 + 1.0).expand(-1, 7)) < 1e-20
    assert solved(model, lambda x: (0.0 * x**4 + 0.5).expand(-1, 7)) > 1


@pytest.mark.parametrize("stages", [1, 4, 50, 100])
def test_gauss_legendre_integrates_polynomials(stages: int) -> None:
    matrix, weights, nodes = gauss_legendre(stages)
    for k in range(1, stages + 1):
        np.testing.assert_allclose(matrix @ nodes ** (k - 1), nodes**k / k, atol=1e-13)
    for k in range(1, 2 * stages + 1):
        assert weights @ nodes ** (k - 1) == pytest.approx(1 / k, abs=1e-13)


def test_runge_kutta_of_two_stages_is_the_textbook_one() -> None:
    matrix, weights, _ = gauss_legendre(2)
    root = math.sqrt(3) / 6
    np.testing.assert_allclose(matrix, [[0.25, 0.25 - root], [0.25 + root, 0.25]], atol=1e-15)
    np.testing.assert_allclose(weights, [0.5, 0.5], atol=1e-15)


# NeRF


def test_sampled_depths_invert_the_distribution() -> None:
    torch.manual_seed(0)
    bins = torch.linspace(0, 1, 9).repeat(3, 1)
    weights = torch.rand(3, 8)
    found = nerf.sample_pdf(bins, weights, 50, random=False)
    density = (weights + 1e-5).double().numpy()
    cdf = np.concatenate([np.zeros((3, 1)), np.cumsum(density / density.sum(1, keepdims=True), axis=1)], axis=1)
    expected = [np.interp(np.linspace(0, 1, 50), cdf[i], bins[i].numpy()) for i in range(3)]
    np.testing.assert_allclose(found.numpy(), np.stack(expected), atol=1e-4)


def test_sampled_depths_go_where_the_weight_is() -> None:
    bins, weights = torch.linspace(0, 1, 11).repeat(2, 1), torch.zeros(2, 10)
    weights[0, 3] = weights[1, 8] = 1.0
    found = nerf.sample_pdf(bins, weights, 200, random=True)
    assert ((found[0] >= 0.3) & (found[0] <= 0.4)).float().mean() > 0.99
    assert ((found[1] >= 0.8) & (found[1] <= 0.9)).float().mean() > 0.99


def test_rendering_of_a_wall() -> None:
    # Nothing, nothing, an opaque red wall, and an opaque blue one behind it.
    raw = torch.tensor([[[9.0, 9, 9, -1], [9, 9, 9, -1], [9, -9, -9, 1e4], [-9, -9, 9, 1e4]]])
    depths = torch.tensor([[0.0, 0.25, 0.5, 0.75]])
    colour, weights = nerf.composite(raw, depths, torch.tensor([[0.0, 0.0, 1.0]]), noise=0.0)
    torch.testing.assert_close(weights, torch.tensor([[0.0, 0.0, 1.0, 0.0]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(colour, torch.sigmoid(torch.tensor([[9.0, -9, -9]])))


def test_rendering_weights_by_hand() -> None:
    torch.manual_seed(0)
    raw, depths, direction = torch.randn(4, 6, 4), torch.rand(4, 6).sort(dim=1)[0], torch.randn(4, 3)
    _, weights = nerf.composite(raw, depths, direction, noise=0.0)
    for ray in range(4):
        light, length = 1.0, float(direction[ray].norm())
        for i in range(6):
            gap = (float(depths[ray, i + 1] - depths[ray, i]) if i < 5 else 1e10) * length
            opacity = 1 - math.exp(-max(float(raw[ray, i, 3]), 0.0) * gap)
            assert float(weights[ray, i]) == pytest.approx(opacity * light, abs=1e-5)
            light *= 1 - opacity


def test_device_coordinates_keep_points_on_their_ray() -> None:
    torch.manual_seed(0)
    origin, direction = torch.randn(5, 3) * 0.1, torch.randn(5, 3) * 0.2
    direction[:, 2] = -1.0
    start, along = nerf.to_ndc(origin, direction, focal=1.2, near=1.0)
    first = origin + (-(1.0 + origin[:, 2:]) / direction[:, 2:]) * direction
    for t in (0.0, 0.5, 3.0):
        x, y, z = (first + t * direction).unbind(-1)
        point = torch.stack([-1.2 * x / z, -1.2 * y / z, 1 + 2 / z], dim=-1)
        share = 1 - first[:, 2] / z
        torch.testing.assert_close(start + share[:, None] * along, point, atol=1e-5, rtol=1e-5)


def test_encoding_width_and_order() -> None:
    x = torch.tensor([[0.1, 0.2, 0.3]])
    found = nerf.encoded(x, 10)
    assert found.shape == (1, 63) and nerf.encoded(x, 4).shape == (1, 27)
    torch.testing.assert_close(found[:, 3:9], torch.cat([torch.sin(x), torch.cos(x)], dim=1))
    torch.testing.assert_close(found[:, -3:], torch.cos(512 * x))


# MeshGraphNets


def test_edges_of_two_triangles() -> None:
    senders, receivers = meshgraphnets.edges_of(torch.tensor([[0, 1, 2], [2, 3, 0]]))
    pairs = set(zip(senders.tolist(), receivers.tolist(), strict=True))
    undirected = {(0, 1), (1, 2), (0, 2), (2, 3), (0, 3)}
    assert pairs == undirected | {(b, a) for a, b in undirected} and len(senders) == 10


@pytest.mark.parametrize(("case", "rows", "columns"), [("cfd", 32, 60), ("cloth", 35, 45)])
def test_full_meshes_are_sound(case: str, rows: int, columns: int) -> None:
    steps.seed(Request("mesh"))
    mesh = meshgraphnets.make_mesh(meshgraphnets.Config(case, rows, columns), Request("mesh"))
    nodes = len(mesh.positions)
    senders, _ = meshgraphnets.edges_of(mesh.cells)
    assert 1_500 < nodes < 2_000 and 9_000 < len(senders) < 11_500
    assert set(mesh.cells.unique().tolist()) == set(range(nodes))
    # Vertices - edges + faces is 1 for a sheet, 0 for one with a hole.
    assert nodes - len(senders) // 2 + len(mesh.cells) == (0 if case == "cfd" else 1)
    corner = mesh.positions[mesh.cells]
    one, other = corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]
    area = one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0]
    assert (area.sign() == area[0].sign()).all()
    wanted = {meshgraphnets.NORMAL, meshgraphnets.HANDLE} if case == "cloth" else {0, 1, 4, 5, 6}
    assert set(mesh.types.tolist()) == wanted


def test_a_node_gets_the_sum_of_its_incoming_edges() -> None:
    torch.manual_seed(0)
    block = meshgraphnets.Block(8)
    nodes, edges = torch.randn(4, 8), torch.randn(5, 8)
    senders, receivers = torch.tensor([0, 1, 2, 3, 0]), torch.tensor([1, 1, 3, 1, 2])
    updated, after = block(nodes, edges, senders, receivers)
    messages = after - edges
    incoming = messages[0] + messages[1] + messages[3]
    expected = nodes[1] + block.node(torch.cat([nodes[1], incoming])[None])[0]
    torch.testing.assert_close(updated[1], expected, atol=1e-5, rtol=1e-5)


def test_normalizer_follows_all_rows() -> None:
    torch.manual_seed(0)
    normalizer = meshgraphnets.Normalizer(3)
    one, other = torch.randn(50, 3) * 4 + 2, torch.randn(30, 3)
    normalizer(one)
    found = normalizer(other)
    both = torch.cat([one, other])
    expected = (other - both.mean(dim=0)) / both.std(dim=0, unbiased=False)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


# MuZero


def test_hidden_states_are_scaled_to_one() -> None:
    torch.manual_seed(0)
    state = torch.randn(2, 3, 4, 4)
    state[0, 1] = 5.0
    found = muzero.scaled(state)
    assert found.min() == 0 and (found.flatten(2).amax(dim=2) - 1).abs().sum() == pytest.approx(1.0)
    assert (found[0, 1] == 0).all()


def test_unrolling_makes_fourteen_heads() -> None:
    config = muzero.Config(stacked=1, side=32, channels=8, blocks=1, hidden=8, support=5)
    model = muzero.MuZero(config)
    heads = model.unrolled(torch.randn(2, 7, 32, 32), torch.zeros(2, 5, dtype=torch.int64))
    assert [tuple(h.shape) for h in heads] == [(2, 11), (2, 4)] + 4 * [(2, 11), (2, 11), (2, 4)]
    _, reward, _, _ = model(torch.randn(2, 7, 32, 32))
    assert reward[:, 5].tolist() == [0.0, 0.0] and torch.isinf(reward).sum() == 20


# GPT-3


def test_gelu_is_the_tanh_form() -> None:
    x = torch.linspace(-4, 4, 50)
    torch.testing.assert_close(gpt3.gelu(x), F.gelu(x, approximate="tanh"))


def test_written_out_attention_is_causal_attention() -> None:
    torch.manual_seed(0)
    block = gpt3.Block(gpt3.Config(width=16, heads=4), 10).eval()
    x = torch.randn(2, 10, 16)
    q, k, v = (t.view(2, 10, 4, 4).transpose(1, 2) for t in block.qkv(x).split(16, dim=2))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 10, 16)
    torch.testing.assert_close(block._attention(x), expected, atol=1e-5, rtol=1e-5)


# Tacotron 2


def test_mel_filters() -> None:
    filters = mel.filters()
    assert filters.shape == (80, 513) and (filters >= 0).all()
    bins = torch.linspace(0, mel.RATE / 2, 513)
    peak = bins[filters.argmax(dim=1)]
    assert (peak.diff() > 0).all() and peak[-1] < 8000
    # Slaney's triangles have unit area over frequency; narrow ones meet few bins.
    area = filters.sum(dim=1) * (mel.RATE / 1024)
    torch.testing.assert_close(area[30:], torch.ones(50), atol=0.05, rtol=0)
    # 1 kHz is 15 mel, and 6.4 kHz 27 mel more.
    assert float(mel._to_mel(1000.0)) == pytest.approx(15) and float(mel._to_mel(6400.0)) == pytest.approx(42)
    assert float(mel._to_hz(torch.tensor(42.0))) == pytest.approx(6400)


def test_mel_spectrogram_of_a_tone() -> None:
    time = torch.arange(mel.HOP * 20) / mel.RATE
    spectrum = mel.spectrogram(torch.sin(2 * math.pi * 1000 * time))
    assert spectrum.shape == (80, 21)
    bins = torch.linspace(0, mel.RATE / 2, 513)
    loudest = bins[mel.filters()[int(spectrum[:, 10].argmax())].argmax()]
    assert abs(float(loudest) - 1000) < 50


def test_attention_looks_at_no_padding_and_sums_to_one() -> None:
    torch.manual_seed(0)
    config = tacotron2.Config(embedding=8, rnn=12, attention=6, filters=3, filter_width=5)
    attention = tacotron2.Attention(config)
    memory, padding = torch.randn(2, 7, 8), torch.arange(7) >= torch.tensor([[7], [4]])
    context, weights = attention(torch.randn(2, 12), memory, attention.memory(memory), torch.zeros(2, 2, 7), padding)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(2))
    assert (weights[1, 4:] == 0).all()
    torch.testing.assert_close(context[1], (weights[1, :, None] * memory[1]).sum(dim=0), atol=1e-5, rtol=1e-5)


def test_a_frame_depends_on_earlier_true_frames_only() -> None:
    config = tacotron2.Config(embedding=8, prenet=4, rnn=12, attention=6, filters=3, filter_width=5, mels=5)
    decoder = tacotron2.Decoder(config).eval()
    memory, mels = torch.randn(1, 6, 8), torch.randn(1, 5, 9)

    def decoded(frames: Tensor) -> Tensor:
        torch.manual_seed(0)
        return decoder(memory, frames, torch.tensor([6]))[0]

    changed = mels.clone()
    changed[:, :, 4] += 10.0
    difference = (decoded(mels) - decoded(changed)).abs().sum(dim=1)[0]
    assert (difference[:5] == 0).all() and difference[5] > 0


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(TypeError, match="rays_per_pixel"):
        nerf.build(Request("nerf", config={"rays_per_pixel": 3}))
    assert isinstance(nerf.build(Request("nerf", batch=2, config={"width": 16})).module, nn.Module)
