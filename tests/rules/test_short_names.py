"""Short names: what they say, that they stay apart, and that no stranger's text moves a cursor."""

from __future__ import annotations

import statistics
import unicodedata
from pathlib import Path

import pytest

from profilers.rules.names import LIMIT, short_name, short_names, visible
from profilers.rules.parts import operator_forms, split_kernel


@pytest.mark.parametrize(
    ("full", "short"),
    [
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(cutlass_80_te"
            "nsorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2::Params)",
            "cutlass gemm bf16 256x128x64",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<cha"
            "r*, 3ul> >(int)",
            "elementwise add f32",
        ),
        (
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::(anonymou"
            "s namespace)::where_kernel_impl(at::TensorIterator&)::{lambda()#1}::operator()() const::{lambda()#12"
            "}::operator()() const::{lambda(bool, c10::BFloat16, c10::BFloat16)#1}>(int)",
            "elementwise where bf16",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, at:"
            ":native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int)",
            "elementwise mul scalar f32",
        ),
        (
            "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<at::na"
            "tive::CUDAFunctor_add<long>>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int,"
            " T3)",
            "elementwise add i64",
        ),
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
            "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4, "
            "cute::tuple<cute::C<2>, cute::C<1>, cute::C<1> >, cutlass::gemm::KernelTmaWarpSpecializedPingpong>, "
            "cute::tuple<cute::C<64>, cute::C<128>, cute::C<128> >, cutlass::float_e4m3_t> > >(int)",
            "cutlass gemm e4m3 64x128x128",
        ),
        ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", "nvjet tst 192x8"),
        ("Cijk_Alik_Bljk_HHS_BH_Bias_HA_S_SAV_UserArgs_MT128x128x32_MI16x16x1_SN_LDSB1", "cijk gemm f16 128x128x32"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nccl all_reduce ring bf16"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "nccl all_reduce ring f32"),
        ("triton_poi_fused_add_mul_rsqrt_3", "triton add mul rsqrt (fused)"),
        ("triton_tem_fused_addmm_relu_t_view_3", "triton template addmm relu (fused)"),
        ("graph_0_cpp_fused_gelu_view_2", "cpp gelu (fused)"),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float,"
            " at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float"
            ")#1}>, unsigned int, float, 4> >(int)",
            "reduce sum f32",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 1, false, false>(float*)",
            "softmax forward f32",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)",
            "log_softmax forward f32",
        ),
        ("Memcpy HtoD (Pageable -> Device)", "memcpy HtoD"),
        ("[CUDA memcpy DtoH]", "memcpy DtoH"),
        ("Memset (Device)", "memset"),
        ("volta_sgemm_128x64_nn", "volta gemm f32 128x64 nn"),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_tn", "ampere gemm f16 128x64 tn"),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "cudnn conv f32 128x64"),
        (
            "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, "
            "false, cutlass::bfloat16_t> >(int)",
            "flash attention fwd bf16 d64 128x128",
        ),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_", "aiter add_rmsnorm_quant bf16"),
        ("void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(c10::BFloat16*)", "vllm rms_norm bf16"),
        ("aten::addmm", "addmm"),
        ("aten::add_.Tensor", "add_.Tensor"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "autograd AddmmBackward0"),
        ("AddmmBackward0", "AddmmBackward0"),
        ("torch::autograd::AccumulateGrad", "AccumulateGrad"),
        ("c10d::allreduce_", "c10d allreduce_"),
        ("## Call CompiledFxGraph fuhmxbssutjhk3rhyur6jb ##", "CompiledFxGraph fuhmxb"),
        ("Optimizer.step#AdamW.step", "Optimizer.step#AdamW.step"),
        ("", "(no name)"),
        ("   ", "(no name)"),
    ],
)
def test_what_a_short_name_says(full: str, short: str) -> None:
    assert short_name(full) == short


def test_a_group_speaks_where_the_name_does_not() -> None:
    assert short_name("void Kernel<int>(int)", "matmul").startswith("matmul")


def test_names_that_agree_are_told_apart_by_what_differs() -> None:
    add = (
        "void at::native::vectorized_elementwise_kernel<{}, at::native::CUDAFunctor_add<float>, std::array<ch"
        "ar*, 3ul> >(int)"
    )
    strided = (
        "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::CUDAFunctor_add<"
        "float> > >(int)"
    )
    assert short_names([add.format(4), add.format(2), strided]) == [
        "elementwise add f32 vec4",
        "elementwise add f32 vec2",
        "elementwise add f32 strided",
    ]
    assert short_names([add.format(4)]) == ["elementwise add f32"], "alone it needs no more"
    cutlass = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_64x6_tn_align{}>(int)"
    assert short_names([cutlass.format(2), cutlass.format(8)]) == [
        "cutlass gemm bf16 64x64x64 align2",
        "cutlass gemm bf16 64x64x64 align8",
    ]


def test_the_order_of_a_table_does_not_change_its_names() -> None:
    names = ["void k<int>(A*)", "void k<int>(B*)", "void k<int>(int)", "void k<int>(int, int)", "aten::mm", "mm"]
    forward = dict(zip(names, short_names(names), strict=True))
    backward = dict(zip(names[::-1], short_names(names[::-1]), strict=True))
    assert forward == backward
    assert len(set(forward.values())) == len(names)


def test_a_name_that_repeats_keeps_one_short_name() -> None:
    assert short_names(["aten::mm", "aten::add", "aten::mm"]) == ["mm", "add", "mm"]
    assert short_names([]) == []


def test_a_number_is_the_last_resort_and_never_taken() -> None:
    names = ["x" * 80 + "é" * number + "y" * 40 for number in range(1, 6)] + ["x #2"]
    found = short_names(names)
    assert len(set(found)) == len(names)


@pytest.fixture(scope="module")
def oracle(request: pytest.FixtureRequest) -> list[str]:
    traces: Path = request.getfixturevalue("traces")
    lines = (traces / "kernel_names_by_op.tsv").read_text("utf-8").splitlines()[1:]
    return sorted({line.split("\t")[6] for line in lines})


def test_names_of_real_recordings(oracle: list[str]) -> None:
    found = short_names(oracle)
    assert len(oracle) > 600
    assert len(set(found)) == len(oracle)
    assert max(map(len, found)) <= 80
    assert max(len(short_name(name)) for name in oracle) <= LIMIT
    assert statistics.median(map(len, found)) <= 40
    assert sum(len(name) <= 40 for name in found) / len(found) > 0.8
    assert sum("#" in name for name in found) / len(found) < 0.05
    assert all(name.isprintable() and name.strip() == name and "  " not in name for name in found)


HOSTILE = [
    "evil\x1b[2Jkernel",
    "two\nlines\r\t",
    "c1\x9b31m",
    "del\x7f",
    "right\u202eto left",
    "zero\u200bwidth\ufeff",
    "para\u2029graph",
    "lone \ud800 surrogate",
    "tag\U000e0041",
    "nul\0",
    "void at::native::vectorized_elementwise_kernel<4, at::native::\x1b]0;title\x07Functor<float>, std::a"
    "rray<char*, 3ul> >(int)",
    "triton_poi_fused_\x1b_add_0",
    "aten::\x1b",
    "autograd::engine::evaluate_function: \x1b[31m",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_control_characters_are_written_out(text: str) -> None:
    for shown in (visible(text), short_name(text), *short_names([text, text + "x", text + "y"])):
        assert shown.isprintable()
        assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in shown)


def test_visible_says_which_character_it_was() -> None:
    assert visible("a\x1b[0m") == "a\\x1b[0m"
    assert visible("a\nb\tc\rd") == "a\\nb\\tc\\rd"
    assert visible("\u202e\x9b\x7f") == "\\u202e\\x9b\\x7f"
    assert visible("\U000e0041") == "\\U000e0041"
    assert visible("grün 日本 ∑ [x]") == "grün 日本 ∑ [x]"
    assert visible("") == ""


def test_very_long_names_are_cut_in_the_middle() -> None:
    short = short_name("start_" + "middle_" * 900 + "end")
    assert len(short) <= LIMIT and short.startswith("start_") and short.endswith("end") and "…" in short


@pytest.mark.parametrize(
    ("name", "function", "template"),
    [
        ("void f<int, g<4> >(int)", "f", "int, g<4> "),
        ("f(int)", "f", ""),
        ("plain", "plain", ""),
        ("void a::(anonymous namespace)::f<int>(T)", "a::f", "int"),
        ("void a::<unnamed>::f<(int)6, (bool)0>(T)", "a::f", "6, 0"),
        ("void unnamed>::gemm_tiled_kernel<32>(const float *, int)", "gemm_tiled_kernel", "32"),
        ("std::enable_if<!(false), void>::type n::k::kernel<int>(T)", "n::k::kernel", "int"),
        ("void a<int>::b<float>(T)", "a::b", "int, float"),
        ("void cut<int, off_by<the", "cut", "int, off_by<the"),
        ("void f<a::operator()(x)::{lambda(int)#1}>(T)", "f", "a::operator()(x)::{lambda(int)#1}"),
        ("int returns(int)", "returns", ""),
        ("_ZN2ab3cde1fILi4EEEvv", "ab::cde::f", "ILi4EEEvv"),
        ("_Z1fi", "f", "i"),
        ("_ZN99tooshort", "_ZN99tooshort", "99tooshort"),
        (f"_Z{'9' * 5000}f", f"_Z{'9' * 5000}f", f"{'9' * 5000}f"),
        ("", "", ""),
    ],
)
def test_a_kernel_name_is_taken_apart(name: str, function: str, template: str) -> None:
    assert split_kernel(name) == (function, template)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("aten::_softmax_backward_data", "softmax_backward_data"),
        ("aten::add_.Tensor", "add"),
        ("autograd::engine::evaluate_function: UpsampleBilinear2DBackward0", "upsample_bilinear2d"),
        ("NativeLayerNormBackward0", "native_layer_norm"),
        ("torch::autograd::AccumulateGrad", "AccumulateGrad"),
        ("_C::rms_norm", "C::rms_norm"),
        ("Optimizer.step#SGD.step", "Optimizer.step#SGD.step"),
        ("", ""),
    ],
)
def test_an_operator_is_brought_to_its_common_form(name: str, first: str) -> None:
    assert operator_forms(name)[0] == first


def test_one_loop_unrolled_differently() -> None:
    made = "void at::native::elementwise_kernel<(int)128, (int){}, void at::native::{}<at::native::CUDAFunctor_add<float>>>(int, T3)"
    names = [made.format(2, "gpu_kernel_impl_nocast"), made.format(4, "gpu_kernel_impl")]
    assert short_names(names) == ["elementwise add f32 strided x2", "elementwise add f32 strided x4"]
