"""What a kernel is, by its name and the source: a table of names as profilers give them."""

import ast

import pytest

from graders.kernel_names import Authored, authored_of, classify, qualified, unqualified
from graders.sources import SourceFile
from graders.worker.cuda_text import emptied, kernels

OURS = Authored(
    {"softmax_rows": "cuda_raw", "fused_topk": "triton", "softmax_warp_forward": "cuda_raw"}
)

NAMES = [
    # torch
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
        "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
        "eager",
    ),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrappe"
        "r_t<float, at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::"
        "{lambda(float, float)#1}>, unsigned int, float, 4> >(at::native::ReduceOp<float>)",
        "eager",
    ),
    (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
        "eager",
    ),
    ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(...)", "eager"),
    ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEviT0_T1_", "eager"),
    (
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::Policy>(int)",
        "eager",
    ),
    (
        "void cub::CUB_200700_900_NS::DeviceReduceKernel<at::native::Policy, float const*>(float)",
        "eager",
    ),
    ("triton_poi_fused_add_mul_0", "eager"),
    ("triton_red_fused__softmax_1", "eager"),
    ("triton_per_fused_native_layer_norm_2", "eager"),
    ("triton_tem_fused_mm_3", "eager"),
    # libraries
    ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "library"),
    ("nvjet_hsh_192x192_64x3_2x1_v_bz_coopB_TNN", "library"),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_"
        "segment_k_off_kernel__5x_cublas",
        "library",
    ),
    ("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8", "library"),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align4>(cutlass_80_"
        "tensorop_s1688gemm_256x64_16x4_nt_align4::Params)",
        "library",
    ),
    ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn", "library"),
    ("ampere_sgemm_32x128_tn", "library"),
    ("volta_sgemm_64x32_sliced1x4_nn", "library"),
    (
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>(int)",
        "library",
    ),
    ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4>(int)", "library"),
    (
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(float)",
        "library",
    ),
    ("void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float> > >(int)", "library"),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true>(int)", "library"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128", "library"),
    (
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4> >(int)",
        "library",
    ),
    ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::Params)", "library"),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "library"),
    ("void thrust::cuda_cub::core::_kernel_agent<Agent, float*>(float*)", "library"),
    (
        "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<gemm> >()",
        "library",
    ),
    ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int> >(int)", "library"),
    ("void somebody::secret_kernel<3>(float*)", "library"),
    # authored
    ("softmax_rows", "cuda_raw"),
    ("softmax_rows(float const*, float*, int)", "cuda_raw"),
    ("void mine::(anonymous namespace)::softmax_rows<float, 4>(float const*, float*)", "cuda_raw"),
    ("_Z12softmax_rowsPKfPfi", "cuda_raw"),
    ("_ZN4mine12_GLOBAL__N_112softmax_rowsIfLi4EEEvPKT_", "cuda_raw"),
    ("fused_topk", "triton"),
    ("void softmax_warp_forward<float, float, float, 10, false>(float*)", "cuda_raw"),
]


@pytest.mark.parametrize(("name", "kind"), NAMES, ids=[name[:50] for name, _ in NAMES])
def test_a_name_says_whose_work_it_is(name: str, kind: str) -> None:
    assert classify(name, "kernel", OURS).kind == kind


def test_only_names_that_nobody_knows_are_in_doubt() -> None:
    unsure = [name for name, _ in NAMES if not classify(name, "kernel", OURS).sure]
    assert unsure == ["void somebody::secret_kernel<3>(float*)"]


def test_copies_are_memory_whatever_they_are_called() -> None:
    assert classify("Memcpy DtoD (Device -> Device)", "memcpy", OURS).kind == "memory"
    assert classify("softmax_rows", "memset", OURS).kind == "memory"


def test_torchs_own_names_count_as_torchs_unless_the_source_has_them() -> None:
    name = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10>(float*)"
    assert classify(name, "kernel", Authored({})).kind == "eager"
    assert classify(name, "kernel", OURS).kind == "cuda_raw"


@pytest.mark.parametrize("name", ["nvjet_tst_64x8_TNT", "reduce_kernel", "triton_poi_fused_add_0"])
def test_defining_a_name_of_others_claims_none_of_their_work(name: str) -> None:
    claims = authored("cuda_sources = '__global__ void " + name + "(float *x) { x[0] = 1; }'")
    theirs = f"void at::native::{name}<512>(int)" if name == "reduce_kernel" else name
    assert classify(theirs, "kernel", claims).kind in ("library", "eager")


def test_cutlass_templates_are_authored_where_its_headers_are_included() -> None:
    name = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int> >(int)"
    claims = authored('src = """#include <cutlass/gemm/device/gemm.h>\nvoid f();"""')
    assert classify(name, "kernel", claims).kind == "cutlass"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("void a::b<(x)1>::c<float, d<e> >(int (*)(f))", "a::b::c"),
        ("plain", "plain"),
        ("_ZN1a1bEv", "a::b"),
        ("_Z", ""),
        ("", ""),
        ("_ZN9z", "z"),
        ("<<<>>>((", ""),
    ],
)
def test_a_path_is_read_from_demangled_and_mangled_names(name: str, path: str) -> None:
    assert qualified(name) == path


def authored(text: str, *native: str) -> Authored:
    return authored_of([SourceFile("solution.py", ast.parse(text))], native)


SOURCES = [
    ("import triton\n@triton.jit\ndef k(x): ...", {"k": "triton"}),
    ("from triton import jit\n@jit(do_not_specialize=['n'])\ndef k(x): ...", {"k": "triton"}),
    ("import triton as t\n@t.autotune([], [])\n@t.jit\ndef k(x): ...", {"k": "triton"}),
    ("import triton\ndef k(x): ...\nfast = triton.jit(k)", {"k": "triton"}),
    ("import triton\n@triton.jit(repr=name)\ndef k(x): ...", {"k*": "triton"}),
    (
        "import triton\njit = triton.jit if triton else None\n@jit\ndef k(x): ...",
        {"k": "triton"},
    ),
    ("from triton.experimental import gluon\n@gluon.jit\ndef k(x): ...", {"k": "triton"}),
    ("import triton\n# @triton.jit\ndef k(x): ...", {}),
    ("import torch\n@torch.jit.script\ndef k(x): ...", {}),
    (
        "import cutlass.cute as cute\n@cute.kernel\ndef k(x): ...",
        {"kernel_cutlass_k_*": "cutlass"},
    ),
    ("s = '__global__ void k(int n) {}'", {"k": "cuda_raw"}),
    ("s = '// __global__ void k(int n) {}'", {}),
    ("s = f'__global__ void k_{dtype}(int n) {{ }}'", {"k_*": "cuda_raw"}),
    ("s = '__global__ void k_%s(int n) {}' % t", {"k_*": "cuda_raw"}),
    ("s = '__global__ void k_{t}(int n) {}'.format(t=t)", {"k_*": "cuda_raw"}),
    ("s = HEAD + '__global__ void ' + NAME + '(int n) {}'", {"*": "cuda_raw"}),
    ("s = '''\\n.visible .entry k(\\n.param .u64 x) { ret; }'''", {"k": "ptx"}),
]


@pytest.mark.parametrize(("text", "names"), SOURCES, ids=[text[:60] for text, _ in SOURCES])
def test_the_source_says_which_kernels_are_its_own(text: str, names: dict[str, str]) -> None:
    assert authored(text).names == names


def test_kernels_of_native_files_count_too() -> None:
    claims = authored("x = 1", "#include <cute/tensor.hpp>\n__global__ void k() {}")
    assert claims.names == {"k": "cutlass"}
    assert claims.kinds == {"cutlass"}


def test_a_name_with_a_hole_matches_what_was_put_in() -> None:
    claims = authored("s = f'__global__ void k_{dtype}(int n) {{ }}'")
    assert classify("k_bf16(int)", "kernel", claims).kind == "cuda_raw"
    assert classify("other_k_bf16(int)", "kernel", claims).kind == "library"


CODE = r"""
#include <cuda_runtime.h>
// __global__ void in_a_comment() { }
/* __global__ void in_a_block() { } */
const char *s = "__global__ void in_a_string() { }";
__device__ float helper(float x) { return x * 2; }
template <typename T, int N = (3 > 2)>
__global__ void __launch_bounds__(256, 2) rows(const T *__restrict__ x, float *y) {
  if (x) { y[0] = '}'; /* } */ }
}
extern "C" __global__ void declared(int n);
template <> __global__ void special<float, 4>(float *x) { x[0] = helper(1); }
template <int N> __global__ std::enable_if_t<(N > 0), void> guarded(float *x) noexcept { *x = N; }
void __global__ late(int a) { a++; }
#define DEFINE(name, T) \
  __global__ void k_##name##_run(T *x) { \
     x[0] = 1; }
#define KERNEL extern "C" __global__ void
KERNEL by_macro(float *x) { x[1] = 2; }
__global__ __cluster_dims__(2, 1, 1) void clustered(float *x) {}
namespace a { namespace { __global__ void nested() { int i = 1'000; } } }
__global__ void split(
#ifdef WIDE
    double *x,
#endif
    float *y) { y[0] = 3; }
int launch() { rows<float><<<1, 2>>>(0, 0); return 0; }
"""


def test_kernels_are_found_however_they_are_written() -> None:
    assert [kernel.name for kernel in kernels(CODE)] == [
        *("rows", "declared", "special", "guarded", "late", "k_*_run", "by_macro"),
        *("clustered", "nested", "split"),
    ]


def test_emptying_takes_bodies_out_and_leaves_all_else() -> None:
    text, names = emptied(CODE)
    assert "declared" not in names and len(names) == 9
    assert "return x * 2;" in text and "rows<float><<<1, 2>>>" in text
    for inside in ("helper(1)", "*x = N", "a++", "x[0] = 1;", "x[1] = 2", "1'000", "y[0] = 3"):
        assert inside in CODE and inside not in text
    assert emptied(text) == (text, names)


def test_hostile_source_is_read_in_time_that_grows_with_its_size() -> None:
    for piece in ("__global__ (", "__global__ <", "#define A(x) __global__\n", "#define A(", "{"):
        assert kernels(piece * 40_000) == []


def test_an_unqualified_name_has_no_namespace() -> None:
    assert unqualified("void a::b::c<d::e>(int)") == "c"
