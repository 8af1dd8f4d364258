// A mixture of SwiGLU experts for bfloat16 on tensor cores; see solution.py for the design.
//
// Without nvcc this file is compiled over a header that stands in for the device (the tests do so):
// what depends on the device is in the first part, and there alone.

#ifdef __CUDACC__
#include <cuda_runtime.h>
#include <stdint.h>

typedef cudaStream_t Stream;

__device__ __forceinline__ uint32_t address_of(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

// c += a b for a 16 x 16, b 16 x 8, c 16 x 8.
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices, whose rows lie at the addresses of eight lanes each.
__device__ __forceinline__ void read_matrices(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

// 16 bytes to shared memory; zeros where there is no source.
__device__ __forceinline__ void copy16(uint32_t to, const void *from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
                 "r"(is_there ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void close_group() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

template <int LEFT> __device__ __forceinline__ void wait_groups() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT) : "memory");
}

__device__ __forceinline__ uint32_t packed(float low, float high) {
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float widened(uint32_t bits) { return __uint_as_float(bits << 16); }

template <class... Wanted, class... Given>
int start(void (*kernel)(Wanted...), dim3 grid, int threads, size_t bytes, Stream stream, bool,
          Given... given) {
    if (bytes > (48 << 10)) {
        auto limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
        if (int code = cudaFuncSetAttribute((const void *)kernel, limit, (int)bytes)) return code;
    }
    kernel<<<grid, threads, bytes, stream>>>(Wanted(given)...);
    return cudaGetLastError();
}

#define SHARED extern __shared__ __align__(1024) unsigned char memory[]
#else
inline int atomicAdd(int *at, int more) { return (*at += more) - more; }
#define SHARED
#endif

typedef unsigned short Bits; // of a bfloat16

const int THREADS = 256, WARPS = THREADS / 32;
const int WIDE = 128;  // columns of a tile
const int DEEP = 64;   // elements of a step, 128 bytes a row
const int STAGES = 3;  // steps on their way
const int SORTING = 256; // threads that sort the visits

// What the kernels tell each other. A visit is (token, slot): number token * slots + slot, where the
// first top_k slots are the token's choices and the others the shared experts.
struct Plan {
    int *order;  // visits, grouped by expert
    int *begins; // (experts + 1): where an expert's visits begin in `order`
    int *tiles;  // (experts + 1): tiles of the experts before
};

struct Sizes {
    int T, E, top_k, n_shared, H, I;
    __device__ int slots() const { return top_k + n_shared; }
    __device__ int experts() const { return E + n_shared; }
};

__device__ __forceinline__ int expert_of(const Sizes &of, const long long *ids, int visit) {
    int token = visit / of.slots(), slot = visit % of.slots();
    return slot < of.top_k ? (int)ids[(long)token * of.top_k + slot] : of.E + slot - of.top_k;
}

// One block: counts the visits of each expert and puts them in its part of `order`.
__global__ void glm_sort_visits(const long long *ids, Plan plan, Sizes of, int tall) {
    SHARED;
    int *counts = (int *)memory, experts = of.experts(), visits = of.T * of.slots();
    for (int e = threadIdx.x; e < experts; e += SORTING) counts[e] = 0;
    __syncthreads();
    for (int v = threadIdx.x; v < visits; v += SORTING) atomicAdd(&counts[expert_of(of, ids, v)], 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        int begin = 0, tiles = 0;
        for (int e = 0; e < experts; e++) {
            int count = counts[e];
            plan.begins[e] = counts[e] = begin;
            plan.tiles[e] = tiles;
            begin += count;
            tiles += (count + tall - 1) / tall;
        }
        plan.begins[experts] = begin;
        plan.tiles[experts] = tiles;
    }
    __syncthreads();
    for (int v = threadIdx.x; v < visits; v += SORTING)
        plan.order[atomicAdd(&counts[expert_of(of, ids, v)], 1)] = v;
}

// Which expert's tile a block works on. Blocks that share columns follow each other.
struct Place {
    int expert, row, rows, column; // first row in `order`, rows that are there, tile of columns

    __device__ bool find(const Plan &plan, int experts, int tall, int columns) {
        int at = blockIdx.x / columns, low = 0, high = experts;
        if (at >= plan.tiles[experts]) return false;
        while (high - low > 1) {
            int middle = (low + high) / 2;
            (plan.tiles[middle] <= at ? low : high) = middle;
        }
        expert = low;
        int first = plan.tiles[low], tiles = plan.tiles[low + 1] - first;
        int local = blockIdx.x - first * columns;
        int begin = plan.begins[low], end = plan.begins[low + 1];
        row = begin + local % tiles * tall;
        rows = min(tall, end - row);
        column = local / tiles;
        return true;
    }
};

// A tile of TALL rows and WIDE columns, summed in registers: a warp has 32 rows.
template <int TALL> struct Tile {
    static const int DOWN = TALL / 32, ACROSS = WARPS / DOWN, OWN = WIDE / ACROSS, PARTS = OWN / 8;
    static const int OF_A = TALL * DEEP * 2, OF_B = WIDE * DEEP * 2, STAGE = OF_A + OF_B;
    float sums[2][PARTS][4];

    // Byte of a chunk of 16 in rows of 128: eight rows at one chunk lie in different banks.
    static __device__ __forceinline__ uint32_t at(int row, int chunk) {
        return row * 128 + ((chunk ^ (row & 7)) << 4);
    }

    // `a(row)` and `b(row)` give where a row begins, null for one that is not there.
    template <class A, class B> __device__ void multiply_all(int depth, A a, B b) {
        SHARED;
        uint32_t base = address_of(memory);
        for (auto &down : sums)
            for (auto &part : down)
                for (float &sum : part) sum = 0;
        auto load = [&](int step) {
            uint32_t to = base + step % STAGES * STAGE;
            for (int n = threadIdx.x; n < TALL * 8; n += THREADS) {
                const Bits *from = a(n / 8);
                copy16(to + at(n / 8, n % 8), from ? from + step * DEEP + n % 8 * 8 : b(0), from);
            }
            for (int n = threadIdx.x; n < WIDE * 8; n += THREADS)
                copy16(to + OF_A + at(n / 8, n % 8), b(n / 8) + step * DEEP + n % 8 * 8, true);
        };
        int steps = depth / DEEP;
        for (int step = 0; step < STAGES - 1; step++) {
            if (step < steps) load(step);
            close_group();
        }
        for (int step = 0; step < steps; step++) {
            wait_groups<STAGES - 2>();
            __syncthreads(); // this step is there, and the one before has been used
            if (step + STAGES - 1 < steps) load(step + STAGES - 1);
            close_group();
            use(base + step % STAGES * STAGE);
        }
    }

    __device__ __forceinline__ void use(uint32_t stage) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        int row = warp / ACROSS * 32, column = warp % ACROSS * OWN;
        for (int k = 0; k < DEEP / 16; k++) {
            uint32_t a[2][4];
            for (int m = 0; m < 2; m++)
                read_matrices(a[m], stage + at(row + m * 16 + lane % 16, k * 2 + lane / 16));
            for (int n = 0; n < PARTS; n += 2) {
                uint32_t b[4];
                int of = column + n * 8 + lane % 8 + lane / 16 * 8;
                read_matrices(b, stage + OF_A + at(of, k * 2 + lane / 8 % 2));
                for (int m = 0; m < 2; m++) {
                    multiply(sums[m][n], a[m], b[0], b[1]);
                    multiply(sums[m][n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

    // Row in the tile of this thread's two sums `half` of block m of 16 rows.
    static __device__ __forceinline__ int row_of(int m, int half) {
        return threadIdx.x / 32 / ACROSS * 32 + m * 16 + half * 8 + threadIdx.x % 32 / 4;
    }
};

// hidden = silu(gate x) * (up x) for the visits of a tile: half of a warp's columns are gate's.
template <int TALL>
__global__ void __launch_bounds__(THREADS, 2)
    glm_hidden(const Bits *x, const Bits *routed, const Bits *shared, Plan plan, Bits *hidden,
               Sizes of) {
    using T = Tile<TALL>;
    const int HALF = WIDE / 2, EACH = T::OWN / 2;
    Place here;
    if (!here.find(plan, of.experts(), TALL, of.I / HALF)) return;
    long matrix = 2L * of.I * of.H;
    const Bits *w = here.expert < of.E ? routed + here.expert * matrix
                                       : shared + (here.expert - of.E) * matrix;
    int first = here.column * HALF, slots = of.slots();
    T tile;
    tile.multiply_all(
        of.H,
        [&](int row) -> const Bits * {
            if (row >= here.rows) return nullptr;
            return x + (long)(plan.order[here.row + row] / slots) * of.H;
        },
        [&](int row) -> const Bits * {
            int within = row % T::OWN, column = first + row / T::OWN * EACH + within % EACH;
            return w + (long)(within < EACH ? column : of.I + column) * of.H;
        });
    int lane = threadIdx.x % 32, part = threadIdx.x / 32 % T::ACROSS;
    for (int m = 0; m < 2; m++)
        for (int half = 0; half < 2; half++) {
            int row = T::row_of(m, half);
            if (row >= here.rows) continue;
            Bits *to = hidden + (long)(here.row + row) * of.I + first + part * EACH + lane % 4 * 2;
            for (int n = 0; n < T::PARTS / 2; n++) {
                float value[2];
                for (int e = 0; e < 2; e++) {
                    float gate = tile.sums[m][n][half * 2 + e];
                    float up = tile.sums[m][T::PARTS / 2 + n][half * 2 + e];
                    value[e] = gate / (1 + expf(-gate)) * up;
                }
                *(uint32_t *)(to + n * 8) = packed(value[0], value[1]);
            }
        }
}

// results[visit] = w2 hidden, not weighted yet.
template <int TALL>
__global__ void __launch_bounds__(THREADS, 2)
    glm_results(const Bits *hidden, const Bits *routed, const Bits *shared, Plan plan,
                Bits *results, Sizes of) {
    using T = Tile<TALL>;
    Place here;
    if (!here.find(plan, of.experts(), TALL, of.H / WIDE)) return;
    long matrix = (long)of.H * of.I;
    const Bits *w = here.expert < of.E ? routed + here.expert * matrix
                                       : shared + (here.expert - of.E) * matrix;
    int first = here.column * WIDE;
    T tile;
    tile.multiply_all(
        of.I,
        [&](int row) -> const Bits * {
            return row < here.rows ? hidden + (long)(here.row + row) * of.I : nullptr;
        },
        [&](int row) -> const Bits * { return w + (long)(first + row) * of.I; });
    int lane = threadIdx.x % 32, part = threadIdx.x / 32 % T::ACROSS;
    for (int m = 0; m < 2; m++)
        for (int half = 0; half < 2; half++) {
            int row = T::row_of(m, half);
            if (row >= here.rows) continue;
            long visit = plan.order[here.row + row];
            Bits *to = results + visit * of.H + first + part * T::OWN + lane % 4 * 2;
            for (int n = 0; n < T::PARTS; n++)
                *(uint32_t *)(to + n * 8) =
                    packed(tile.sums[m][n][half * 2], tile.sums[m][n][half * 2 + 1]);
        }
}

// y[token] = the sum of its visits' results by their weights; eight columns a thread.
__global__ void glm_combine(const Bits *results, const Bits *weights, Bits *y, Sizes of) {
    int token = blockIdx.y, column = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (column >= of.H) return;
    float sums[8] = {};
    for (int slot = 0; slot < of.slots(); slot++) {
        float by = slot < of.top_k ? widened(weights[(long)token * of.top_k + slot]) : 1;
        uint4 eight = *(const uint4 *)(results + ((long)token * of.slots() + slot) * of.H + column);
        uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
        for (int n = 0; n < 8; n++) sums[n] += by * widened(pairs[n / 2] >> n % 2 * 16 & 0xFFFF);
    }
    uint4 eight = {packed(sums[0], sums[1]), packed(sums[2], sums[3]), packed(sums[4], sums[5]),
                   packed(sums[6], sums[7])};
    *(uint4 *)(y + (long)token * of.H + column) = eight;
}

struct Given {
    const Bits *x, *w1, *w2, *w1_shared, *w2_shared, *weights;
    const long long *ids;
    Bits *hidden, *results, *y;
};

template <int TALL> int run(const Given &g, Plan plan, Sizes of, Stream stream) {
    int experts = of.E + of.n_shared, visits = of.T * (of.top_k + of.n_shared);
    int most = min(visits, visits / TALL + experts); // tiles, a partial one for each expert
    size_t bytes = STAGES * Tile<TALL>::STAGE;
    if (int code = start(glm_sort_visits, dim3(1), SORTING, experts * sizeof(int), stream, false,
                         g.ids, plan, of, TALL))
        return code;
    if (int code = start(glm_hidden<TALL>, dim3(most * (of.I / (WIDE / 2))), THREADS, bytes, stream,
                         false, g.x, g.w1, g.w1_shared, plan, g.hidden, of))
        return code;
    if (int code = start(glm_results<TALL>, dim3(most * (of.H / WIDE)), THREADS, bytes, stream,
                         false, (const Bits *)g.hidden, g.w2, g.w2_shared, plan, g.results, of))
        return code;
    return start(glm_combine, dim3((of.H / 8 + 127) / 128, of.T), 128, 0, stream, false,
                 (const Bits *)g.results, g.weights, g.y, of);
}

// `scratch` is int32: visits, then 2 (experts + 1). Returns a CUDA error code.
extern "C" int launch(long x, long ids, long weights, long w1, long w2, long w1_shared,
                      long w2_shared, long scratch, long hidden, long results, long y, int T, int E,
                      int top_k, int n_shared, int H, int I, int tall, long stream) {
    Given g = {(const Bits *)x,         (const Bits *)w1,        (const Bits *)w2,
               (const Bits *)w1_shared, (const Bits *)w2_shared, (const Bits *)weights,
               (const long long *)ids,  (Bits *)hidden,          (Bits *)results,
               (Bits *)y};
    Sizes of = {T, E, top_k, n_shared, H, I};
    int *order = (int *)scratch, *begins = order + (long)T * (top_k + n_shared);
    Plan plan = {order, begins, begins + E + n_shared + 1};
    auto chosen = tall == 32 ? run<32> : tall == 64 ? run<64> : run<128>;
    return chosen(g, plan, of, (Stream)stream);
}
