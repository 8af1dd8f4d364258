// What the kernel needs of the machine, and the few types that all parts share.
#pragma once
#ifdef __CUDACC__
#include <cuda_runtime.h>
#include <stdint.h>

#define NOT_INLINE __noinline__
#define ON_BOTH __host__ __device__ __forceinline__
#define SHARED_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]

__device__ __forceinline__ unsigned at_shared(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}
// Asynchronous copies of the calling thread; what is not `valid` becomes zero.
__device__ __forceinline__ void copy16(void *to, const void *from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at_shared(to)), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy8(void *to, const void *from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(at_shared(to)), "l"(from),
                 "r"(valid ? 8 : 0)
                 : "memory");
}
__device__ __forceinline__ void copies_end() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT>
__device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
__device__ __forceinline__ void ask_into_l2(const void *from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}
__device__ __forceinline__ void add_release(unsigned *counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ __forceinline__ unsigned load_acquire(const unsigned *counter) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}
__device__ __forceinline__ unsigned add_and_tell(unsigned *counter) {
    __threadfence();
    return atomicAdd(counter, 1u);
}
__device__ __forceinline__ void add(float *to, float value) {
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}
__device__ __forceinline__ void relax() {}
__device__ __forceinline__ float from_bits(unsigned bits) { return __uint_as_float(bits); }
__device__ __forceinline__ unsigned to_bits(float value) { return __float_as_uint(value); }
__device__ __forceinline__ float power_of_two(float x) { return exp2f(x); }
__device__ __forceinline__ float2 cosine_and_sine(float half_turns) {
    return float2{cospif(half_turns), sinpif(half_turns)};
}
__device__ __forceinline__ unsigned bytes_of(unsigned a, unsigned b, unsigned which) {
    return __byte_perm(a, b, which);
}
// d += a (16 x 16) . b (16 x 8), bfloat16 pairs
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9},"
        " {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif  // without nvcc, whoever includes this has said what these do

#ifndef THREADS
#define THREADS 384
#endif

typedef unsigned char byte;
typedef unsigned short bf16;

constexpr int WARPS = THREADS / 32;
constexpr int TILE = 128;   // columns of a piece of weights
constexpr int CHUNK = 64;   // rows of it: half a group
constexpr int GROUP = 128;  // rows with one scale
constexpr int ROWS = 64;    // of the latent cache that are attended to at once
constexpr int SLICE = 32;   // columns of S that one block updates
constexpr int MOST_HIDDEN = 2304, MOST_DIM = 128, MOST_HEADS = 32, MOST_EXPERTS = 64;
constexpr int MOST_ACTIVE = 8, MOST_LATENT = 576, LAYERS = 4;
constexpr int EACH = (MOST_HIDDEN + THREADS - 1) / THREADS;  // elements of the stream, a thread
constexpr float EPS = 1e-6f, LOG2E = 1.4426950408889634f;

__device__ __forceinline__ float low(unsigned pair) { return from_bits(pair << 16); }
__device__ __forceinline__ float high(unsigned pair) { return from_bits(pair & 0xffff0000u); }
__device__ __forceinline__ float wide(bf16 bits) { return from_bits((unsigned)bits << 16); }
__device__ __forceinline__ bf16 narrow(float value) {
    unsigned bits = to_bits(value);
    return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
__device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }
__device__ __forceinline__ float silu(float x) { return x / (1 + expf(-x)); }
__device__ __forceinline__ float softplus(float x) {
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}
__device__ __forceinline__ int least(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int pieces(int n, int by) { return (n + by - 1) / by; }

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int by = 16; by; by >>= 1) value += __shfl_xor_sync(0xffffffffu, value, by);
    return value;
}
__device__ __forceinline__ float warp_most(float value) {
#pragma unroll
    for (int by = 16; by; by >>= 1) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, by));
    return value;
}

// A matrix (K, N) of 4 bits: (K / 2, N) bytes, an even row low; scales and zeros (K / GROUP, N).
struct Matrix {
    const byte *q;
    const bf16 *scales, *zeros;
};

struct Layer {
    const bf16 *attn_norm, *moe_norm, *router;
    const bf16 *beta, *conv;  // KDA
    Matrix in[4];             // q k v g, or q, kv_a, kv_b
    Matrix out, gate, up, down, s_gate, s_up, s_down;
};

// What one call brings for a layer, and where its results go.
struct State {
    const float *S;
    const bf16 *windows[3];
    float *new_S;
    bf16 *new_windows[3];
    const bf16 *c_kv, *k_rope;
    bf16 *new_c_kv, *new_k_rope;  // ctx + 1 rows; the same as the old ones, or others
};

struct Sizes {
    int hidden, kda_heads, dim, mla_heads, latent, nope, rope, v_dim, experts, active, inter, ctx;
    int is_mla[LAYERS];
    float scaling;
};

// Sums that blocks add to, of one layer; zero when a launch begins.
struct Sums {
    float *projected;  // q k v g, or q and the new row
    float *attended;   // what o takes
    float *h;          // o
    float *logits;
    float *up;  // (active + 1, 2, inter): gate and up of each expert, the shared one last
    float *down;
};

struct Work {
    Layer layers[LAYERS];
    State states[LAYERS];
    Sizes sizes;
    const bf16 *hidden;
    const double *rates;  // (rope / 2): half turns a position
    bf16 *out;
    float *sums;         // LAYERS times `sums_of` floats
    bf16 *q_latent;      // (MOST_HEADS, STRIDE); zeros where there is no head and no column
    float *parts;        // (blocks, MOST_HEADS, latent)
    float *stats;        // (blocks, MOST_HEADS, 2): largest score and sum of each part
    unsigned *counters;  // meetings, then blocks that have left
};

ON_BOTH int projected_of(const Sizes &z) {
    int kda = 4 * z.kda_heads * z.dim, mla = z.mla_heads * (z.nope + z.rope) + z.latent + z.rope;
    return kda > mla ? kda : mla;
}
ON_BOTH int attended_of(const Sizes &z) {
    int kda = z.kda_heads * z.dim, mla = z.mla_heads * z.v_dim;
    return kda > mla ? kda : mla;
}
ON_BOTH int sums_of(const Sizes &z) {
    return projected_of(z) + attended_of(z) + 2 * z.hidden + MOST_EXPERTS +
           2 * (z.active + 1) * z.inter;
}
__device__ __forceinline__ Sums sums_at(const Work &w, int layer) {
    const Sizes &z = w.sizes;
    Sums s;
    s.projected = w.sums + (long)layer * sums_of(z);
    s.attended = s.projected + projected_of(z);
    s.h = s.attended + attended_of(z);
    s.logits = s.h + z.hidden;
    s.up = s.logits + MOST_EXPERTS;
    s.down = s.up + 2 * (z.active + 1) * z.inter;
    return s;
}

// Where all blocks wait for each other; the counter grows until the launch ends.
struct Meeting {
    unsigned *counter;
    unsigned target;

    __device__ void arrive() {
        __syncthreads();
        target += gridDim.x;
        if (threadIdx.x == 0) add_release(counter);
    }
    __device__ void wait() {
        if (threadIdx.x == 0)
            while ((int)(load_acquire(counter) - target) < 0) relax();
        __syncthreads();
    }
    // The last block to leave sets both counters back: the next launch finds zeros.
    __device__ void leave() {
        if (threadIdx.x == 0 && add_and_tell(counter + 1) == gridDim.x - 1) {
            counter[0] = 0;
            counter[1] = 0;
        }
    }
};
