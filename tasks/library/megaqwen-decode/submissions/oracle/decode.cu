// Several decoding steps of Qwen3 blocks in one cooperative launch.
//
// 128 blocks, one on an SM, 16 for each of the 8 key/value heads (a group). A layer has five phases:
//
//   1. q, k, v rows of the own group          then the group meets
//   2. attention over a sixteenth of the rows then the group meets
//   3. o: 64 rows x the group's 256 columns   then all meet
//   4. gate and up: 24 rows of each           then all meet
//   5. down: 8 rows                           then all meet
//
// Weights come by bulk copies into shared memory, one phase ahead or more: region A holds those of
// phases 1 and 4 by turns, region B those of 3 and 5, and each is filled again as soon as it has been
// read. So memory streams while blocks wait for each other. Every block keeps the whole residual
// stream and adds what others computed to it, all in the same order.
#ifdef __CUDACC__
#include <cuda_runtime.h>
#include <stdint.h>
#endif  // without nvcc, whoever includes this has said what its functions do

#ifndef SPLITS
#define SPLITS 16   // blocks of a group
#define THREADS 512
#endif
#define UNROLL 4    // rows of k and of v that a half-warp has under way
#define AHEAD 65536 // bytes of k and of v, each, that a block asks into L2 before their phase

constexpr int HIDDEN = 1024, INTER = 3072, GROUPS = 8, HEAD = 128, LAYERS = 16;
constexpr int BLOCKS = GROUPS * SPLITS, WARPS = THREADS / 32, UNITS = 2 * WARPS;
constexpr int OWN = HIDDEN / THREADS;                       // elements of the stream, a thread
constexpr int Q_ROWS = 2 * HEAD / SPLITS, K_ROWS = HEAD / SPLITS, QKV_ROWS = Q_ROWS + 2 * K_ROWS;
constexpr int O_ROWS = HIDDEN / SPLITS, O_COLUMNS = 2 * HEAD;
constexpr int PAIRS = INTER / BLOCKS, DOWN_ROWS = HIDDEN / BLOCKS, SLICE = INTER / WARPS;
constexpr int A_ROWS = QKV_ROWS > 2 * PAIRS ? QKV_ROWS : 2 * PAIRS;
constexpr int O_SIZE = O_ROWS * O_COLUMNS, DOWN_SIZE = DOWN_ROWS * INTER;
constexpr int B_SIZE = O_SIZE > DOWN_SIZE ? O_SIZE : DOWN_SIZE;
constexpr int ROOM_APART = 32;                              // words between counters
constexpr float EPS = 1e-6f;
constexpr float SCALE = 0.08838834764831845f * 1.4426950408889634f;  // HEAD^-1/2, for powers of 2

static_assert(WARPS >= 4 && SLICE % 64 == 0 && THREADS % 32 == 0 && HIDDEN % THREADS == 0, "sizes");
static_assert(INTER % BLOCKS == 0 && HIDDEN % BLOCKS == 0 && HEAD % SPLITS == 0, "rows");

typedef unsigned short bf16;

struct Layer {
    const bf16 *input_ln, *q_proj, *k_proj, *v_proj, *q_norm, *k_norm, *o_proj, *post_ln, *gate_proj,
        *up_proj, *down_proj;
    bf16 *k, *v;
};

struct Work {
    Layer layers[LAYERS];
    const bf16 *hidden;
    const float *noise;    // (steps, HIDDEN)
    const double *rates;   // (HEAD / 2): radians a position
    bf16 *out;
    float *qkv;            // (GROUPS, 4 * HEAD)
    float *parts;          // (BLOCKS, 2, HEAD)
    float *weights;        // (BLOCKS, 2, 2): largest score and sum of each part
    float *o;              // (GROUPS, HIDDEN)
    float *act;            // (INTER)
    float *down;           // (HIDDEN)
    unsigned *counters;    // all, then each group
    int layer_count, start, steps, room;
};

struct Shared {
    alignas(128) bf16 a[A_ROWS * HIDDEN];
    alignas(128) bf16 b[B_SIZE];
    alignas(16) float x[INTER];            // input of a product; see `slot`
    alignas(16) float stream[HIDDEN];
    alignas(16) float part[UNITS][2][HEAD];
    float part_most[UNITS][2], part_sum[UNITS][2];
    alignas(16) float q[2][HEAD];
    alignas(16) float k[HEAD];
    alignas(16) float v[HEAD];
    float turn[2][HEAD / 2];
    float sums[WARPS][DOWN_ROWS > 1 ? DOWN_ROWS : 1];
    float rows[2 * PAIRS];
    alignas(8) unsigned long long full_a, full_b;
};

#ifdef __CUDACC__
static_assert(sizeof(Shared) <= 232448, "shared memory of an SM");
#endif

// --- what the machine offers -----------------------------------------------------------------------
#ifdef __CUDACC__
#define SHARED_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]

__device__ __forceinline__ unsigned at_shared(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void barrier_init(unsigned long long *bar) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at_shared(bar)) : "memory");
}
__device__ __forceinline__ void barriers_are_there() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect(unsigned long long *bar, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at_shared(bar)),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void wait_full(unsigned long long *bar, unsigned parity) {
    unsigned done = 0;
    while (!done)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
            " selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(at_shared(bar)), "r"(parity)
            : "memory");
}
// Weights are read once a step and do not fit into L2: they leave it first.
__device__ __forceinline__ void bulk_load(void *to, const void *from, unsigned bytes,
                                          unsigned long long *bar) {
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1], %2, [%3], %4;" ::"r"(at_shared(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(at_shared(bar)), "l"(policy)
        : "memory");
}
__device__ __forceinline__ void bulk_prefetch(const void *from, unsigned bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                     __cvta_generic_to_global(from)),
                 "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void add_release(unsigned *counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ __forceinline__ unsigned load_acquire(const unsigned *counter) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}
__device__ __forceinline__ void relax() {}
__device__ __forceinline__ float from_bits(unsigned bits) { return __uint_as_float(bits); }
__device__ __forceinline__ unsigned to_bits(float value) { return __float_as_uint(value); }
__device__ __forceinline__ float power_of_two(float x) { return exp2f(x); }
#endif

__device__ __forceinline__ float low(unsigned pair) { return from_bits(pair << 16); }
__device__ __forceinline__ float high(unsigned pair) { return from_bits(pair & 0xffff0000u); }
__device__ __forceinline__ float wide(bf16 bits) { return from_bits((unsigned)bits << 16); }
__device__ __forceinline__ bf16 narrow(float value) {
    unsigned bits = to_bits(value);
    return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Lanes read eight elements of x as two float4: kept apart, these reads meet no bank twice.
__device__ __forceinline__ int slot(int e) {
    return (e & ~255) | ((e & 4) << 5) | ((e & 248) >> 1) | (e & 3);
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int by = 16; by; by >>= 1) value += __shfl_xor_sync(0xffffffffu, value, by);
    return value;
}

__device__ __forceinline__ float half_warp_sum(float value) {
#pragma unroll
    for (int by = 8; by; by >>= 1) value += __shfl_xor_sync(0xffffffffu, value, by);
    return value;
}

__device__ __forceinline__ float dot8(uint4 w, float4 a, float4 b) {
    return low(w.x) * a.x + high(w.x) * a.y + low(w.y) * a.z + high(w.y) * a.w + low(w.z) * b.x +
           high(w.z) * b.y + low(w.w) * b.z + high(w.w) * b.w;
}

// A place where some blocks wait for each other; the counter only grows.
struct Meeting {
    unsigned *counter;
    unsigned members, target;

    __device__ void arrive() {
        __syncthreads();
        target += members;
        if (threadIdx.x == 0) add_release(counter);
    }
    __device__ void wait() {
        if (threadIdx.x == 0)
            while ((int)(load_acquire(counter) - target) < 0) relax();
        __syncthreads();
    }
};

// --- weights on their way (all by warp 0) -----------------------------------------------------------

__device__ __forceinline__ void load_qkv(Shared &s, const Layer &w, int group, int split) {
    if (threadIdx.x) return;
    expect(&s.full_a, QKV_ROWS * HIDDEN * sizeof(bf16));
    long q = (long)(group * 2 * HEAD + split * Q_ROWS) * HIDDEN;
    long k = (long)(group * HEAD + split * K_ROWS) * HIDDEN;
    bf16 *to = s.a;
    bulk_load(to, w.q_proj + q, Q_ROWS * HIDDEN * sizeof(bf16), &s.full_a);
    bulk_load(to + Q_ROWS * HIDDEN, w.k_proj + k, K_ROWS * HIDDEN * sizeof(bf16), &s.full_a);
    to += (Q_ROWS + K_ROWS) * HIDDEN;
    bulk_load(to, w.v_proj + k, K_ROWS * HIDDEN * sizeof(bf16), &s.full_a);
}

__device__ __forceinline__ void load_gate_up(Shared &s, const Layer &w) {
    if (threadIdx.x) return;
    constexpr unsigned bytes = PAIRS * HIDDEN * sizeof(bf16);
    long from = (long)blockIdx.x * PAIRS * HIDDEN;
    expect(&s.full_a, 2 * bytes);
    bulk_load(s.a, w.gate_proj + from, bytes, &s.full_a);
    bulk_load(s.a + PAIRS * HIDDEN, w.up_proj + from, bytes, &s.full_a);
}

__device__ __forceinline__ void load_o(Shared &s, const Layer &w, int group, int split) {
    if (threadIdx.x >= 32) return;
    if (threadIdx.x == 0) expect(&s.full_b, O_SIZE * sizeof(bf16));
    __syncwarp();
    const bf16 *from = w.o_proj + (long)split * O_ROWS * 2 * HIDDEN + group * O_COLUMNS;
    for (int row = threadIdx.x; row < O_ROWS; row += 32)
        bulk_load(s.b + row * O_COLUMNS, from + (long)row * 2 * HIDDEN, O_COLUMNS * sizeof(bf16),
                  &s.full_b);
}

__device__ __forceinline__ void load_down(Shared &s, const Layer &w) {
    if (threadIdx.x) return;
    expect(&s.full_b, DOWN_SIZE * sizeof(bf16));
    bulk_load(s.b, w.down_proj + (long)blockIdx.x * DOWN_SIZE, DOWN_SIZE * sizeof(bf16), &s.full_b);
}

// Rows of the caches that a block reads: `first` to `last`, of those before `place`.
struct Range {
    int first, last;
    __device__ Range(int place, int split) {
        int each = (place + SPLITS - 1) / SPLITS;
        first = split * each < place ? split * each : place;
        last = first + each < place ? first + each : place;
    }
};

__device__ __forceinline__ void ask_ahead(const Layer &w, int room, int place, int group,
                                          int split) {
    if (threadIdx.x) return;
    Range rows(place, split);
    int bytes = (rows.last - rows.first) * HEAD * (int)sizeof(bf16);
    bytes = bytes < AHEAD ? bytes : AHEAD;
    if (!bytes) return;
    long at = ((long)group * room + rows.first) * HEAD;
    bulk_prefetch(w.k + at, bytes);
    bulk_prefetch(w.v + at, bytes);
}

// --- the phases -------------------------------------------------------------------------------------

// The own elements of a norm's weight, read before a wait.
struct Weights {
    float own[OWN];
    __device__ Weights(const bf16 *from) {
#pragma unroll
        for (int n = 0; n < OWN; n++) own[n] = wide(from[threadIdx.x + n * THREADS]);
    }
};

// x = norm(stream) * weight, in slots
__device__ __forceinline__ void norm(Shared &s, const Weights &weight) {
    float sum = 0;
#pragma unroll
    for (int n = 0; n < OWN; n++) {
        float value = s.stream[threadIdx.x + n * THREADS];
        sum += value * value;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) s.sums[threadIdx.x / 32][0] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int n = 0; n < WARPS; n++) sum += s.sums[n][0];
    float scale = rsqrtf(sum / HIDDEN + EPS);
#pragma unroll
    for (int n = 0; n < OWN; n++) {
        int e = threadIdx.x + n * THREADS;
        s.x[slot(e)] = s.stream[e] * scale * weight.own[n];
    }
    __syncthreads();
}

// Products of `ROWS` rows of 1024 in region A with x; `store(row, sum)` by lane 0.
template <int ROWS, typename Store>
__device__ __forceinline__ void products(Shared &s, Store store) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float4 x[HIDDEN / 128];
#pragma unroll
    for (int j = 0; j < HIDDEN / 256; j++) {
        x[2 * j] = *(const float4 *)&s.x[j * 256 + lane * 4];
        x[2 * j + 1] = *(const float4 *)&s.x[j * 256 + 128 + lane * 4];
    }
    for (int row = warp; row < ROWS; row += WARPS) {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < HIDDEN / 256; j++) {
            uint4 w = *(const uint4 *)&s.a[row * HIDDEN + j * 256 + lane * 8];
            sum += dot8(w, x[2 * j], x[2 * j + 1]);
        }
        sum = warp_sum(sum);
        if (lane == 0) store(row, sum);
    }
}

// A head of q or k by one warp: normed, turned, times `scale`; lane holds elements lane + 32 n.
__device__ __forceinline__ void head(const Shared &s, const float *from, const float *weight,
                                     float scale, float *to) {
    const int lane = threadIdx.x % 32;
    float e[4], sum = 0;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        e[n] = __ldcg(from + lane + 32 * n);
        sum += e[n] * e[n];
    }
    sum = warp_sum(sum);
    float by = rsqrtf(sum / HEAD + EPS);
#pragma unroll
    for (int n = 0; n < 4; n++) e[n] *= by * weight[n];
#pragma unroll
    for (int n = 0; n < 2; n++) {
        float cosine = s.turn[0][lane + 32 * n], sine = s.turn[1][lane + 32 * n];
        to[lane + 32 * n] = (e[n] * cosine - e[n + 2] * sine) * scale;
        to[lane + 32 * n + 64] = (e[n + 2] * cosine + e[n] * sine) * scale;
    }
}

// The running softmax of one half-warp; a lane has eight elements of both heads.
struct Softmax {
    float most[2], sum[2], value[2][8];

    __device__ Softmax() {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            most[h] = -INFINITY;
            sum[h] = 0;
#pragma unroll
            for (int d = 0; d < 8; d++) value[h][d] = 0;
        }
    }
    template <int N>
    __device__ __forceinline__ void add(const float (&score)[N][2], const uint4 (&v)[N]) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float largest = most[h];
#pragma unroll
            for (int n = 0; n < N; n++) largest = fmaxf(largest, score[n][h]);
            float base = largest == -INFINITY ? 0.0f : largest;
            float before = power_of_two(most[h] - base);
            most[h] = largest;
            sum[h] *= before;
#pragma unroll
            for (int d = 0; d < 8; d++) value[h][d] *= before;
#pragma unroll
            for (int n = 0; n < N; n++) {
                float p = power_of_two(score[n][h] - base);
                sum[h] += p;
                value[h][0] += p * low(v[n].x);
                value[h][1] += p * high(v[n].x);
                value[h][2] += p * low(v[n].y);
                value[h][3] += p * high(v[n].y);
                value[h][4] += p * low(v[n].z);
                value[h][5] += p * high(v[n].z);
                value[h][6] += p * low(v[n].w);
                value[h][7] += p * high(v[n].w);
            }
        }
    }
};

// Attention of the group's two heads over the own range, and over the new row for the last split.
__device__ __forceinline__ void attend(Shared &s, const Work &work, const Layer &w, int place,
                                       int group, int split) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int unit = threadIdx.x / 16, part = lane % 16;
    const Range rows(place, split);
    const bf16 *k = w.k + (long)group * work.room * HEAD + part * 8;
    const bf16 *v = w.v + (long)group * work.room * HEAD + part * 8;
    float4 q[2][2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        q[h][0] = *(const float4 *)&s.q[h][part * 8];
        q[h][1] = *(const float4 *)&s.q[h][part * 8 + 4];
    }
    Softmax own;
    for (int begin = rows.first; begin < rows.last; begin += UNROLL * UNITS) {
        uint4 kk[UNROLL], vv[UNROLL];
        float score[UNROLL][2];
#pragma unroll
        for (int n = 0; n < UNROLL; n++) {
            int row = begin + n * UNITS + unit;
            row = row < rows.last ? row : rows.last - 1;
            kk[n] = __ldcg((const uint4 *)(k + (long)row * HEAD));
            vv[n] = __ldcg((const uint4 *)(v + (long)row * HEAD));
        }
#pragma unroll
        for (int n = 0; n < UNROLL; n++) {
            bool is_mine = begin + n * UNITS + unit < rows.last;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float sum = half_warp_sum(dot8(kk[n], q[h][0], q[h][1]));
                score[n][h] = is_mine ? sum : -INFINITY;
            }
        }
        own.add(score, vv);
    }
    if (split == SPLITS - 1 && warp == 0) {
        float score[1][2];
        uint4 vv[1];
        const float *key = &s.k[part * 8], *value = &s.v[part * 8];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = 0;
#pragma unroll
            for (int d = 0; d < 8; d++) sum += key[d] * s.q[h][part * 8 + d];
            sum = half_warp_sum(sum);
            score[0][h] = unit == 0 ? sum : -INFINITY;
        }
        vv[0].x = narrow(value[0]) | (unsigned)narrow(value[1]) << 16;
        vv[0].y = narrow(value[2]) | (unsigned)narrow(value[3]) << 16;
        vv[0].z = narrow(value[4]) | (unsigned)narrow(value[5]) << 16;
        vv[0].w = narrow(value[6]) | (unsigned)narrow(value[7]) << 16;
        own.add(score, vv);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int d = 0; d < 8; d++) s.part[unit][h][part * 8 + d] = own.value[h][d];
        if (part == 0) {
            s.part_most[unit][h] = own.most[h];
            s.part_sum[unit][h] = own.sum[h];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * HEAD; i += THREADS) {
        int h = i / HEAD, d = i % HEAD;
        float most = -INFINITY, sum = 0, value = 0;
        for (int u = 0; u < UNITS; u++) most = fmaxf(most, s.part_most[u][h]);
        float base = most == -INFINITY ? 0.0f : most;
        for (int u = 0; u < UNITS; u++) {
            float p = power_of_two(s.part_most[u][h] - base);
            sum += p * s.part_sum[u][h];
            value += p * s.part[u][h][d];
        }
        work.parts[blockIdx.x * 2 * HEAD + i] = value;
        if (d == 0) {
            work.weights[blockIdx.x * 4 + h * 2] = most;
            work.weights[blockIdx.x * 4 + h * 2 + 1] = sum;
        }
    }
}

// x = attention of the group's two heads, in slots, from the parts of all splits
__device__ __forceinline__ void join(Shared &s, const Work &work, int group) {
    for (int i = threadIdx.x; i < 2 * HEAD; i += THREADS) {
        int h = i / HEAD, first = group * SPLITS;
        float most[SPLITS], sums[SPLITS], values[SPLITS], largest = -INFINITY, sum = 0, value = 0;
#pragma unroll
        for (int n = 0; n < SPLITS; n++) {
            most[n] = __ldcg(work.weights + (first + n) * 4 + h * 2);
            sums[n] = __ldcg(work.weights + (first + n) * 4 + h * 2 + 1);
            values[n] = __ldcg(work.parts + (first + n) * 2 * HEAD + i);
        }
#pragma unroll
        for (int n = 0; n < SPLITS; n++) largest = fmaxf(largest, most[n]);
#pragma unroll
        for (int n = 0; n < SPLITS; n++) {
            float p = power_of_two(most[n] - largest);
            sum += p * sums[n];
            value += p * values[n];
        }
        s.x[slot(i)] = value / sum;
    }
    __syncthreads();
}

__global__ void __launch_bounds__(THREADS, 1) decode_steps(const __grid_constant__ Work work) {
    SHARED_MEMORY(memory);
    Shared &s = *(Shared *)memory;
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const int group = blockIdx.x / SPLITS, split = blockIdx.x % SPLITS;
    const bool has_new = split == SPLITS - 1;  // this block writes the group's new rows
    Meeting all{work.counters, BLOCKS, 0};
    Meeting few{work.counters + (1 + group) * ROOM_APART, SPLITS, 0};
    unsigned parity_a = 0, parity_b = 0;

    if (tid == 0) {
        barrier_init(&s.full_a);
        barrier_init(&s.full_b);
        barriers_are_there();
    }
    __syncthreads();
    load_qkv(s, work.layers[0], group, split);
    load_o(s, work.layers[0], group, split);
    ask_ahead(work.layers[0], work.room, work.start, group, split);
    for (int n = 0; n < OWN; n++) s.stream[tid + n * THREADS] = wide(work.hidden[tid + n * THREADS]);

    for (int step = 0; step < work.steps; step++) {
        const int place = work.start + step;
        for (int n = 0; n < OWN; n++) {  // each thread its own elements
            int e = tid + n * THREADS;
            float drawn = wide(narrow(work.noise[step * HIDDEN + e]));
            s.stream[e] = 0.5f * drawn + 0.5f * wide(narrow(s.stream[e]));
        }
        for (int i = tid; i < HEAD / 2; i += THREADS) {
            double angle = place * work.rates[i];
            angle -= rint(angle * 0.15915494309189535) * 6.283185307179586;
            s.turn[0][i] = cosf((float)angle);
            s.turn[1][i] = sinf((float)angle);
        }
        for (int layer = 0; layer < work.layer_count; layer++) {
            const Layer &w = work.layers[layer];
            const bool ends = layer + 1 == work.layer_count;
            const bool is_last = ends && step + 1 == work.steps;
            const Layer &next = work.layers[ends ? 0 : layer + 1];

            // 1: q, k, v
            if (layer == 0) norm(s, Weights(w.input_ln));  // later ones: at the end of the loop
            wait_full(&s.full_a, parity_a);
            parity_a ^= 1;
            products<QKV_ROWS>(s, [&](int row, float sum) {
                int to = row < Q_ROWS            ? split * Q_ROWS + row
                         : row < Q_ROWS + K_ROWS ? 2 * HEAD + split * K_ROWS + row - Q_ROWS
                                                 : 3 * HEAD + split * K_ROWS + row - Q_ROWS - K_ROWS;
                work.qkv[group * 4 * HEAD + to] = sum;
            });
            few.arrive();
            load_gate_up(s, w);
            float norm_weight[4];
            for (int n = 0; n < 4; n++)
                norm_weight[n] = wide((warp == 2 ? w.k_norm : w.q_norm)[lane + 32 * n]);
            few.wait();

            // 2: attention
            const float *qkv = work.qkv + group * 4 * HEAD;
            if (warp < 2) head(s, qkv + warp * HEAD, norm_weight, SCALE, s.q[warp]);
            if (warp == 2 && has_new) head(s, qkv + 2 * HEAD, norm_weight, 1.0f, s.k);
            if (warp == 3 && has_new)
                for (int n = lane; n < HEAD; n += 32) s.v[n] = __ldcg(qkv + 3 * HEAD + n);
            __syncthreads();
            if (has_new)
                for (int i = tid; i < HEAD; i += THREADS) {
                    long at = ((long)group * work.room + place) * HEAD + i;
                    bf16 key = narrow(s.k[i]);
                    s.k[i] = wide(key);  // what later steps will read
                    w.k[at] = key;
                    w.v[at] = narrow(s.v[i]);
                }
            __syncthreads();
            attend(s, work, w, place, group, split);
            few.arrive();
            few.wait();

            // 3: o
            join(s, work, group);
            wait_full(&s.full_b, parity_b);
            parity_b ^= 1;
            float4 x0 = *(const float4 *)&s.x[lane * 4], x1 = *(const float4 *)&s.x[128 + lane * 4];
            for (int row = warp; row < O_ROWS; row += WARPS) {
                uint4 tile = *(const uint4 *)&s.b[row * O_COLUMNS + lane * 8];
                float sum = warp_sum(dot8(tile, x0, x1));
                if (lane == 0) work.o[group * HIDDEN + split * O_ROWS + row] = sum;
            }
            all.arrive();
            load_down(s, w);
            {
                Weights weight(w.post_ln);
                all.wait();

                // 4: gate and up
                for (int n = 0; n < OWN; n++) {
                    int e = tid + n * THREADS;
                    float sum = 0;
#pragma unroll
                    for (int g = 0; g < GROUPS; g++) sum += __ldcg(work.o + g * HIDDEN + e);
                    s.stream[e] += sum;
                }
                norm(s, weight);
            }
            wait_full(&s.full_a, parity_a);
            parity_a ^= 1;
            products<2 * PAIRS>(s, [&](int row, float sum) { s.rows[row] = sum; });
            __syncthreads();
            for (int i = tid; i < PAIRS; i += THREADS) {
                float gate = s.rows[i];
                work.act[blockIdx.x * PAIRS + i] = gate / (1 + expf(-gate)) * s.rows[PAIRS + i];
            }
            all.arrive();
            if (!is_last) {
                load_qkv(s, next, group, split);
                ask_ahead(next, work.room, place + ends, group, split);
            }
            all.wait();

            // 5: down
            for (int i = tid * 4; i < INTER; i += THREADS * 4)
                *(float4 *)&s.x[i] = __ldcg((const float4 *)(work.act + i));
            wait_full(&s.full_b, parity_b);
            parity_b ^= 1;
            __syncthreads();
            float sums[DOWN_ROWS];
            for (int row = 0; row < DOWN_ROWS; row++) sums[row] = 0;
            for (int i = warp * SLICE + lane * 2; i < (warp + 1) * SLICE; i += 64) {
                float2 x = *(const float2 *)&s.x[i];
#pragma unroll
                for (int row = 0; row < DOWN_ROWS; row++) {
                    unsigned pair = *(const unsigned *)&s.b[row * INTER + i];
                    sums[row] += low(pair) * x.x + high(pair) * x.y;
                }
            }
            for (int row = 0; row < DOWN_ROWS; row++) {
                float sum = warp_sum(sums[row]);
                if (lane == 0) s.sums[warp][row] = sum;
            }
            __syncthreads();
            for (int row = tid; row < DOWN_ROWS; row += THREADS) {
                float sum = 0;
                for (int n = 0; n < WARPS; n++) sum += s.sums[n][row];
                work.down[blockIdx.x * DOWN_ROWS + row] = sum;
            }
            all.arrive();
            if (!is_last) load_o(s, next, group, split);
            Weights weight(next.input_ln);
            all.wait();
            for (int n = 0; n < OWN; n++) {
                int e = tid + n * THREADS;
                s.stream[e] += __ldcg(work.down + e);
            }
            if (!ends) norm(s, weight);
        }
    }
    if (blockIdx.x == 0)
        for (int n = 0; n < OWN; n++) work.out[tid + n * THREADS] = narrow(s.stream[tid + n * THREADS]);
}

// --- the launch -------------------------------------------------------------------------------------

constexpr int SCRATCH =
    GROUPS * 4 * HEAD + BLOCKS * 2 * HEAD + BLOCKS * 4 + GROUPS * HIDDEN + INTER + HIDDEN;
constexpr int COUNTERS = ROOM_APART * (1 + GROUPS);

// `at`: 13 addresses a layer (the order of `Layer`), then hidden, noise, rates and out.
static Work work_of(const unsigned long long *at, int layers, int start, int steps, int room,
                    float *scratch, unsigned *counters) {
    const unsigned long long *end = at + 13 * layers;
    Work work = {};
    for (int n = 0; n < layers; n++) work.layers[n] = *(const Layer *)(at + 13 * n);
    work.hidden = (const bf16 *)end[0];
    work.noise = (const float *)end[1];
    work.rates = (const double *)end[2];
    work.out = (bf16 *)end[3];
    work.qkv = scratch;
    work.parts = work.qkv + GROUPS * 4 * HEAD;
    work.weights = work.parts + BLOCKS * 2 * HEAD;
    work.o = work.weights + BLOCKS * 4;
    work.act = work.o + GROUPS * HIDDEN;
    work.down = work.act + INTER;
    work.counters = counters;
    work.layer_count = layers;
    work.start = start;
    work.steps = steps;
    work.room = room;
    return work;
}

#ifdef __CUDACC__
extern "C" int scratch_bytes() { return 4 * (SCRATCH + COUNTERS); }

// The last of the addresses is that of the scratch. Returns what CUDA says of it.
extern "C" const char *decode(const unsigned long long *at, int layers, int start, int steps,
                              int room, void *on) {
    if (layers > LAYERS) return "more layers than this was built for";
    cudaStream_t stream = (cudaStream_t)on;
    float *scratch = (float *)at[13 * layers + 4];
    unsigned *counters = (unsigned *)(scratch + SCRATCH);
    Work work = work_of(at, layers, start, steps, room, scratch, counters);
    void *arguments[] = {&work};
    cudaError_t error = cudaFuncSetAttribute(
        decode_steps, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(Shared));
    if (error == cudaSuccess) error = cudaMemsetAsync(counters, 0, 4 * COUNTERS, stream);
    if (error == cudaSuccess)
        error = cudaLaunchCooperativeKernel(decode_steps, dim3(BLOCKS), dim3(THREADS), arguments,
                                            sizeof(Shared), stream);
    return error == cudaSuccess ? "" : cudaGetErrorString(error);
}
#endif
