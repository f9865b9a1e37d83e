"""The built-in rules as data: documented, with examples that they themselves decide, and findable by line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from profilers.rules import load as loading
from profilers.rules.load import BUILT_IN, VOCABULARY, load_rules
from profilers.rules.matcher import Rule
from profilers.rules.taxonomy import GROUPS, class_of

FOLDER = Path(loading.__file__).parent
RULES = list(load_rules().rules())


def test_every_rule_says_what_it_is_for() -> None:
    assert len(RULES) > 80
    for rule in RULES:
        assert rule.doc.endswith((".", ")")), f"{rule.label} has no doc"


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.examples], ids=lambda rule: rule.label)
def test_examples_are_decided_by_their_rule(rule: Rule) -> None:
    rules = load_rules()
    ask = {"kernel": rules.kernel, "operator": rules.operator, "module": rules.module}[rule.kind]
    for example in rule.examples:
        verdict = ask(example)
        if rule.words:  # the words inside decide, through an operator rule, or the rule's own group does
            assert verdict.rule.startswith(("operators.toml:", rule.label)), (example, verdict)
            assert verdict.group in GROUPS
        else:
            assert verdict.rule.split(" ")[0] == rule.label, (example, verdict)
            assert verdict.group == rule.group


def test_only_exact_names_may_lack_an_example() -> None:
    bare = [rule.label for rule in RULES if not rule.examples and not rule.names]
    assert bare == []


def test_where_names_the_line() -> None:
    rules = load_rules()
    for rule in RULES:
        path, _, line = rules.where(rule.label + " via aten::whatever").rpartition(":")
        lines = Path(path).read_text("utf-8").splitlines()
        assert lines[int(line) - 1].strip() == f"[[{rule.kind}]]"
        assert f'id = "{rule.id}"' in lines[int(line)]
    assert rules.where("") == ""
    assert rules.where("kernels.toml:no-such-rule") == ""


def test_no_exact_name_is_claimed_twice() -> None:
    claimed: dict[str, str] = {}
    for rule in RULES:
        for name in rule.names:
            assert name not in claimed, f"{name}: {claimed[name]} and {rule.label}"
            claimed[name] = rule.label


def test_every_word_of_the_vocabulary_has_a_group() -> None:
    words = tomllib.loads((FOLDER / VOCABULARY).read_text("utf-8"))["names"]
    rules = load_rules()
    assert len(words) > 1300
    assert [word for word in words if not rules.operator(word).rule] == []


def test_dominance_lists_every_group_once() -> None:
    order = load_rules().dominance
    assert sorted(order) == sorted(set(GROUPS) - {"unclassified"})


def test_files_ship_with_the_package() -> None:
    for name in (*BUILT_IN, VOCABULARY, "names.toml"):
        assert (FOLDER / name).is_file()


# What people know by heart, so that a careless edit of a pattern is noticed.
@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("aten::addmm", "matmul"),
        ("aten::_int_mm", "matmul"),
        ("aten::_scaled_mm", "matmul"),
        ("aten::_weight_int8pack_mm", "matmul"),
        ("quantized::linear_dynamic", "matmul"),
        ("mkldnn::_linear_pointwise", "matmul"),
        ("bitsandbytes::int8_scaled_mm", "matmul"),
        ("bitsandbytes::gemv_4bit", "matmul"),
        ("aten::mkldnn_convolution", "convolution"),
        ("aten::convolution_backward", "convolution"),
        ("aten::_grouped_mm", "grouped-matmul"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::_fused_sdp_choice", "other"),
        ("aten::native_layer_norm", "normalization"),
        ("aten::_fused_rms_norm", "normalization"),
        ("aten::linalg_vector_norm", "reduction"),
        ("aten::gelu_backward", "activation"),
        ("aten::_softmax", "softmax"),
        ("aten::_safe_softmax", "softmax"),
        ("aten::add_", "elementwise"),
        ("aten::add.out", "elementwise"),
        ("aten::__and__", "elementwise"),
        ("aten::copy_", "memory"),
        ("aten::_unsafe_view", "memory"),
        ("aten::masked_fill_", "memory"),
        ("torchvision::nms", "roi"),
        ("aten::upsample_bilinear2d", "interpolation"),
        ("aten::max_pool2d_with_indices", "pooling"),
        ("aten::embedding", "embedding"),
        ("bitsandbytes::int8_vectorwise_quant", "quantization"),
        ("aten::quantize_per_tensor", "quantization"),
        ("aten::topk", "routing"),
        ("aten::_foreach_addcdiv_", "optimizer"),
        ("aten::_foreach_norm", "reduction"),
        ("aten::_fused_adamw_", "optimizer"),
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("aten::nll_loss_forward", "loss"),
        ("aten::native_dropout", "random"),
        ("aten::cumsum", "scan"),
        ("aten::lstm", "scan"),
        ("c10d::allreduce_", "collective"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "matmul"),
        ("AddmmBackward0", "matmul"),
        ("ScaledDotProductFlashAttentionForCpuBackward0", "attention"),
        ("MaxPool2DWithIndicesBackward0", "pooling"),
        ("LogSoftmaxBackward0", "softmax"),
        ("torch::autograd::AccumulateGrad", "elementwise"),
        ("Torch-Compiled Region: 0/0", "other"),
        ("graph_0_cpp_fused_gelu_view_2", "activation"),
    ],
)
def test_well_known_operators(name: str, group: str) -> None:
    assert load_rules().operator(name).group == group


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("triton_poi_fused_native_layer_norm_gelu_3", "normalization"),
        ("triton_poi_fused_max_pool2d_with_indices_relu_2", "pooling"),
        ("triton_per_fused__log_softmax_nll_loss_forward_0", "softmax"),
        ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "normalization"),
        ("triton_tem_fused_addmm_relu_t_view_3", "matmul"),
        ("triton_poi_fused_addmm_1", "elementwise"),  # the bias that is left beside a product run elsewhere
        ("triton_poi_fused_0", "elementwise"),
        ("cpp_fused_convolution_0", "memory"),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)", "optimizer"),
        ("fused_moe_kernel", "grouped-matmul"),
        ("attn_fwd", "attention"),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2>(int)", "attention"),
        ("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(int)", "normalization"),
        ("void deep_ep::internode_ll::dispatch<true, 7168>(void*)", "collective"),
        ("void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, (deep_gemm::GemmType)1>(int)", "grouped-matmul"),
        ("void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, (deep_gemm::GemmType)0>(int)", "matmul"),
        ("void vllm::moe::topkGatingSoftmax<4, 128, 4, 32, int>(int)", "routing"),
        ("void at::native::index_put_with_sort_kernel<float, 4>(int)", "memory"),
        ("void at::native::lpnorm_cleanup<float, (at::native::NormType)1, float>(int)", "reduction"),
        ("_bmm_chunk_fwd_kernel", "matmul"),
        ("_chunk_scan_fwd_kernel", "scan"),
        ("void regular_fft<256u, EPT<4u> >(int)", "other"),
        ("Memcpy DtoH (Device -> Pinned)", "memory"),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)", "memory"),
        ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)", "elementwise"),
        ("my_very_own_thing", "unclassified"),
        ("", "unclassified"),
    ],
)
def test_well_known_kernels(name: str, group: str) -> None:
    assert load_rules().kernel(name).group == group


def test_classes_follow_groups() -> None:
    assert class_of("grouped-matmul") == "gemm"
    assert class_of("attention") == "attention"
    assert class_of("collective") == "communication"
    assert class_of("no such group") == "unclassified"


@pytest.mark.parametrize("size", [16, 64])
def test_hostile_names_come_back(size: int) -> None:
    """Patterns whose repetitions multiply would not end within a lifetime on names like these."""
    rules = load_rules()
    for piece in (
        "a_",
        "a::",
        "softmax_",
        "rms_norm_",
        "conv_relu_",
        "_backward",
        "<f",
        "amax_exp_sum_",
        "mean_rsqrt_",
    ):
        for start in ("", "triton_red_fused_", "void at::native::elementwise_kernel<", "aten::", "lib::"):
            text = start + piece * (size * 10)
            for ask in (rules.kernel, rules.operator, rules.module):
                assert ask(text).group in GROUPS
