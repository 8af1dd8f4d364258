// Block-selected causal attention for bfloat16 on tensor cores; see solution.py for the design.
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

__device__ __forceinline__ void read_transposed(uint32_t (&r)[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
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

__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ uint32_t packed(float low, float high) {
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float widened(uint32_t bits) { return __uint_as_float(bits << 16); }

// The next kernel of the stream may begin, and waits itself for what it needs of this one.
__device__ __forceinline__ void let_next_begin() {
    asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}

__device__ __forceinline__ void wait_for_previous() {
    asm volatile("griddepcontrol.wait;\n" ::: "memory");
}

template <class... Wanted, class... Given>
int start(void (*kernel)(Wanted...), dim3 grid, int threads, size_t bytes, Stream stream,
          bool overlaps, Given... given) {
    cudaLaunchAttribute early;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = grid, how.blockDim = dim3(threads), how.dynamicSmemBytes = bytes;
    how.stream = stream, how.attrs = &early, how.numAttrs = overlaps ? 1 : 0;
    if (bytes > (48 << 10)) {
        auto limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
        if (int code = cudaFuncSetAttribute((const void *)kernel, limit, (int)bytes)) return code;
    }
    return cudaLaunchKernelEx(&how, kernel, Wanted(given)...);
}
#endif

typedef unsigned short Bits; // of a bfloat16

// To tune.
const bool OVERLAPS = true;   // the second kernel begins while the first one ends
const int WIDE_FROM = 264;    // tiles of 128 queries from which each warp takes 32 of them, not 16
const int WARPS = 4;          // of a tile
const int RESIDENT_64 = 2;    // tiles on an SM that registers are rationed for, D = 64
const int RESIDENT_128 = 1;   // and D = 128

const int BLOCK = 64, KEPT = 8, WINDOW = 64;
const int PARTS = 3;  // bfloat16 numbers that make one float32
const int SCORED = 32; // blocks that are scored at once
const int PITCH = SCORED + 1;
const int SUMMING = 128; // threads that sum one block

// Byte of a 16-byte chunk in rows of D: eight rows at one chunk lie in different banks.
template <int D> __device__ __forceinline__ uint32_t place(int row, int chunk) {
    return (row * (D / 8) + (chunk ^ (row & 7))) * 16;
}

// ROWS rows from `first` on; those at or past `end` become zeros.
template <int D, int ROWS, int THREADS>
__device__ __forceinline__ void load(uint32_t to, const Bits *from, long first, long end) {
    constexpr int ALL = ROWS * D / 8;
    static_assert(ALL % THREADS == 0, "whole rounds");
#pragma unroll
    for (int round = 0; round < ALL / THREADS; round++) {
        int at = round * THREADS + (int)threadIdx.x, row = at / (D / 8), chunk = at % (D / 8);
        bool is_there = first + row < end;
        const Bits *source = from + (is_there ? (first + row) * D + chunk * 8 : 0);
        copy16(to + place<D>(row, chunk), source, is_there);
    }
}

// Each whole block's sum of keys, as PARTS bfloat16 numbers whose sum it is: (head, block, part, D).
template <int D>
__global__ void __launch_bounds__(SUMMING) nsa_block_sums(const Bits *k, Bits *parts, int S) {
    constexpr int CHUNKS = D / 8, GROUPS = SUMMING / CHUNKS;
    extern __shared__ __align__(128) unsigned char memory[];
    float *sums = (float *)memory; // (GROUPS, D)
    let_next_begin();
    int block = blockIdx.x, chunk = threadIdx.x % CHUNKS, group = threadIdx.x / CHUNKS;
    const Bits *keys = k + ((long)blockIdx.y * S + (long)block * BLOCK) * D;
    float sum[8] = {};
#pragma unroll
    for (int row = group; row < BLOCK; row += GROUPS) {
        uint4 eight = *(const uint4 *)(keys + row * D + chunk * 8);
        uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            sum[2 * n] += widened(pairs[n] & 0xFFFF);
            sum[2 * n + 1] += widened(pairs[n] >> 16);
        }
    }
#pragma unroll
    for (int n = 0; n < 8; n++) sums[group * D + chunk * 8 + n] = sum[n];
    __syncthreads();
    if (threadIdx.x >= D) return;
    float left = 0;
    for (int n = 0; n < GROUPS; n++) left += sums[n * D + threadIdx.x];
    Bits *to = parts + (((long)blockIdx.y * gridDim.x + block) * PARTS) * D + threadIdx.x;
    for (int n = 0; n < PARTS; n++) {
        uint32_t bits = packed(left, 0.0f) & 0xFFFF;
        left -= widened(bits);
        to[n * D] = (Bits)bits;
    }
}

// A descending list; of equal values the later one comes first.
struct Best {
    float value[KEPT];
    int block[KEPT];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int n = 0; n < KEPT; n++) value[n] = -INFINITY, block[n] = -1;
    }

    __device__ __forceinline__ void take(float fresh, int number) {
        if (!(fresh >= value[KEPT - 1])) return;
#pragma unroll
        for (int n = KEPT - 1; n > 0; n--) {
            bool moves = fresh >= value[n - 1], enters = fresh >= value[n];
            block[n] = moves ? block[n - 1] : enters ? number : block[n];
            value[n] = moves ? value[n - 1] : enters ? fresh : value[n];
        }
        if (fresh >= value[0]) value[0] = fresh, block[0] = number;
    }
};

template <int D, int TALL> struct Tile {
    static constexpr int THREADS = 32 * WARPS, EACH = 16 * TALL, ROWS = EACH * WARPS;
    static constexpr bool HOLDS = D == 64; // queries stay in registers
    static constexpr int STEPS = D / 16;
    static constexpr uint32_t OF_BLOCK = BLOCK * D * 2;
    static constexpr uint32_t QUERIES = 0, STAGES = QUERIES + ROWS * D * 2;
    static constexpr uint32_t SCORES = STAGES + SCORED * PARTS * D * 2; // over the stages
    static constexpr uint32_t KEPT_AT = STAGES + 4 * OF_BLOCK, OWN = KEPT_AT + ROWS * KEPT * 4;
    static constexpr uint32_t NEEDED = OWN + ROWS * 4;
    static_assert(SCORES + ROWS * PITCH * 4 <= KEPT_AT, "scores fit over the stages");
    static_assert(BLOCK % EACH == 0 && ROWS % BLOCK == 0 && ROWS <= THREADS, "rows");

    static size_t bytes(int words) { return NEEDED + (size_t)WARPS * words * 4; }

    uint32_t base;
    const unsigned char *memory;
    int lane, row0, own; // of the warp: its first row in the tile, the block of its queries
    long t0;             // the warp's first query
    uint32_t held[HOLDS ? TALL : 1][HOLDS ? STEPS : 1][4];
    float sum[TALL][D / 8][4], top[TALL][2], weight[TALL][2];
    uint32_t chosen[TALL][2]; // blocks of the current word that this thread's rows have kept

    __device__ __forceinline__ void read_queries(uint32_t (&a)[4], int tall, int step) const {
        int row = row0 + tall * 16 + (lane & 15);
        read_matrices(a, base + QUERIES + place<D>(row, step * 2 + (lane >> 4)));
    }

    __device__ __forceinline__ void hold_queries() {
        if constexpr (HOLDS) {
#pragma unroll
            for (int tall = 0; tall < TALL; tall++)
#pragma unroll
                for (int step = 0; step < STEPS; step++) read_queries(held[tall][step], tall, step);
        }
    }

    // score[n] += queries times the rows 8 n .. 8 n + 7 at `at`, for 16 FROM .. 16 TO of the warp.
    template <int FROM, int TO, int WIDE>
    __device__ __forceinline__ void products(float (&score)[TO - FROM][WIDE][4], uint32_t at) const {
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            uint32_t a[TO - FROM][4];
#pragma unroll
            for (int tall = FROM; tall < TO; tall++) {
                if constexpr (HOLDS) {
#pragma unroll
                    for (int n = 0; n < 4; n++) a[tall - FROM][n] = held[tall][step][n];
                } else {
                    read_queries(a[tall - FROM], tall, step);
                }
            }
#pragma unroll
            for (int pair = 0; pair < WIDE / 2; pair++) {
                int row = pair * 16 + (lane & 7) + (lane >> 4) * 8;
                uint32_t b[4];
                read_matrices(b, at + place<D>(row, step * 2 + (lane >> 3 & 1)));
#pragma unroll
                for (int tall = 0; tall < TO - FROM; tall++) {
                    multiply(score[tall][2 * pair], a[tall], b[0], b[1]);
                    multiply(score[tall][2 * pair + 1], a[tall], b[2], b[3]);
                }
            }
        }
    }

    // Row in the tile of a thread's `half` of an accumulator.
    __device__ __forceinline__ int row_of(int tall, int half) const {
        return row0 + tall * 16 + half * 8 + (lane >> 2);
    }

    // The mean score of the causal keys of the queries' own block.
    __device__ __forceinline__ void score_own(uint32_t keys, float *means) const {
        float score[TALL][BLOCK / 8][4] = {};
        products<0, TALL>(score, keys);
#pragma unroll
        for (int tall = 0; tall < TALL; tall++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int last = row_of(tall, half) % BLOCK;
                float total = 0;
#pragma unroll
                for (int n = 0; n < BLOCK / 8; n++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        if (n * 8 + (lane & 3) * 2 + e <= last) total += score[tall][n][half * 2 + e];
                total += __shfl_xor_sync(0xFFFFFFFFu, total, 1);
                total += __shfl_xor_sync(0xFFFFFFFFu, total, 2);
                if ((lane & 3) == 0) means[row_of(tall, half)] = total / (last + 1);
            }
    }

    // The products with SCORED block sums.
    __device__ __forceinline__ void score_past(float *scores) const {
        float score[TALL][SCORED / 8][4] = {};
#pragma unroll
        for (int part = 0; part < PARTS; part++)
            products<0, TALL>(score, base + STAGES + part * SCORED * D * 2);
#pragma unroll
        for (int tall = 0; tall < TALL; tall++)
#pragma unroll
            for (int n = 0; n < SCORED / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int column = n * 8 + (lane & 3) * 2 + (e & 1);
                    scores[row_of(tall, e >> 1) * PITCH + column] = score[tall][n][e];
                }
    }

    __device__ __forceinline__ void choose_word(int word) {
        const int *kept = (const int *)(memory + KEPT_AT);
#pragma unroll
        for (int tall = 0; tall < TALL; tall++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t bits = 0;
#pragma unroll
                for (int n = 0; n < KEPT; n++) {
                    int block = kept[row_of(tall, half) * KEPT + n];
                    if (block >> 5 == word) bits |= 1u << (block & 31);
                }
                chosen[tall][half] = bits;
            }
    }

    // One block of keys and values for 16 FROM .. 16 TO of the warp's queries.
    template <int FROM, int TO>
    __device__ __forceinline__ void attend(int block, uint32_t keys, uint32_t values, float scale) {
        bool is_near = block >= own - 1;
        float score[TO - FROM][BLOCK / 8][4] = {};
        products<FROM, TO>(score, keys);
#pragma unroll
        for (int tall = FROM; tall < TO; tall++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                weigh(score[tall - FROM], tall, half, block, is_near, scale);
#pragma unroll
        for (int step = 0; step < BLOCK / 16; step++) {
            uint32_t a[TO - FROM][4];
#pragma unroll
            for (int tall = 0; tall < TO - FROM; tall++)
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const float(&two)[4] = score[tall][2 * step + (n >> 1)];
                    a[tall][n] = packed(two[(n & 1) * 2], two[(n & 1) * 2 + 1]);
                }
#pragma unroll
            for (int pair = 0; pair < D / 16; pair++) {
                uint32_t b[4];
                int row = step * 16 + (lane & 15);
                read_transposed(b, values + place<D>(row, pair * 2 + (lane >> 4)));
#pragma unroll
                for (int tall = FROM; tall < TO; tall++) {
                    multiply(sum[tall][2 * pair], a[tall - FROM], b[0], b[1]);
                    multiply(sum[tall][2 * pair + 1], a[tall - FROM], b[2], b[3]);
                }
            }
        }
    }

    // Scores of one row become weights; what was summed before is scaled to the new maximum.
    __device__ __forceinline__ void weigh(float (&score)[BLOCK / 8][4], int tall, int half,
                                          int block, bool is_near, float scale) {
        bool is_kept = chosen[tall][half] >> (block & 31) & 1;
        if (!is_near && !__any_sync(0xFFFFFFFFu, is_kept)) { // none of eight rows
#pragma unroll
            for (int n = 0; n < BLOCK / 8; n++) score[n][half * 2] = score[n][half * 2 + 1] = 0;
            return;
        }
        // The last key that is seen, counted from the block's first one, and the first that is.
        int last = BLOCK - 1, first = is_kept ? 0 : BLOCK;
        if (is_near) {
            int here = (int)(t0 - (long)block * BLOCK) + tall * 16 + half * 8 + (lane >> 2);
            last = here;
            if (!is_kept) first = here - (WINDOW - 1);
        }
        float highest = -INFINITY;
#pragma unroll
        for (int n = 0; n < BLOCK / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int key = n * 8 + (lane & 3) * 2 + e;
                float &one = score[n][half * 2 + e];
                if (key < first || key > last) one = -INFINITY;
                highest = fmaxf(highest, one);
            }
        highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, 2));
        float before = top[tall][half], now = fmaxf(before, highest);
        float shrink = power_of_two((before - now) * scale), shift = now * scale, total = 0;
#pragma unroll
        for (int n = 0; n < BLOCK / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &one = score[n][half * 2 + e];
                one = power_of_two(fmaf(one, scale, -shift));
                total += one;
            }
        top[tall][half] = now;
        weight[tall][half] = weight[tall][half] * shrink + total;
        if (__any_sync(0xFFFFFFFFu, now > before)) {
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                sum[tall][n][half * 2] *= shrink;
                sum[tall][n][half * 2 + 1] *= shrink;
            }
        }
    }

    __device__ __forceinline__ bool wants(int tall, int block) const {
        uint32_t any = (chosen[tall][0] | chosen[tall][1]) >> (block & 31) & 1;
        return __any_sync(0xFFFFFFFFu, any) || block >= own - 1;
    }

    __device__ __forceinline__ void attend_wanted(int block, uint32_t keys, float scale) {
        uint32_t values = keys + OF_BLOCK;
        if constexpr (TALL == 1) {
            if (wants(0, block)) attend<0, 1>(block, keys, values, scale);
        } else {
            bool upper = wants(0, block), lower = wants(1, block);
            if (upper && lower) attend<0, 2>(block, keys, values, scale);
            else if (upper) attend<0, 1>(block, keys, values, scale);
            else if (lower) attend<1, 2>(block, keys, values, scale);
        }
    }

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int tall = 0; tall < TALL; tall++) {
#pragma unroll
            for (int half = 0; half < 2; half++) top[tall][half] = -INFINITY, weight[tall][half] = 0;
#pragma unroll
            for (int n = 0; n < D / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) sum[tall][n][e] = 0;
        }
    }

    __device__ __forceinline__ void store(Bits *out, int S) const {
#pragma unroll
        for (int tall = 0; tall < TALL; tall++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float total = weight[tall][half];
                total += __shfl_xor_sync(0xFFFFFFFFu, total, 1);
                total += __shfl_xor_sync(0xFFFFFFFFu, total, 2);
                long t = t0 + tall * 16 + half * 8 + (lane >> 2);
                if (t >= S) continue;
                float share = 1.0f / total;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    uint32_t both = packed(sum[tall][n][half * 2] * share,
                                           sum[tall][n][half * 2 + 1] * share);
                    *(uint32_t *)(out + t * D + n * 8 + (lane & 3) * 2) = both;
                }
            }
    }
};

// The highest block up to `block` that a warp of the tile needs, or -1.
__device__ __forceinline__ int needed_below(const uint32_t *needed, int words, int block) {
    uint32_t mask = 0xFFFFFFFFu >> (31 - (block & 31));
    for (int word = block >> 5; block >= 0 && word >= 0; word--, mask = 0xFFFFFFFFu) {
        uint32_t bits = 0;
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++) bits |= needed[warp * words + word];
        if (bits & mask) return word * 32 + 31 - __clz(bits & mask);
    }
    return -1;
}

// Which blocks each query of the tile keeps (KEPT_AT), and each warp needs (NEEDED).
template <int D, int TALL>
__device__ __forceinline__ void select(const Tile<D, TALL> &tile, unsigned char *memory,
                                       const Bits *parts, int first, int S) {
    using T = Tile<D, TALL>;
    int row = threadIdx.x, whole = S / BLOCK, words = ((S + BLOCK - 1) / BLOCK + 31) / 32;
    int own = first / BLOCK + row / BLOCK; // of the query that this thread chooses for
    int past = min(first / BLOCK + T::ROWS / BLOCK - 1, whole);
    uint32_t *needed = (uint32_t *)(memory + T::NEEDED);
    float *means = (float *)(memory + T::OWN), *scores = (float *)(memory + T::SCORES);
    Best best;
    best.clear();
    for (int n = threadIdx.x; n < WARPS * words; n += T::THREADS) needed[n] = 0;
    tile.score_own(tile.base + T::STAGES + tile.row0 / BLOCK * T::OF_BLOCK, means);
    wait_for_previous();
    for (int start = 0; start < past && past >= KEPT; start += SCORED) {
        __syncthreads();
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            constexpr int ALL = SCORED * D / 8;
            for (int at = threadIdx.x; at < ALL; at += T::THREADS) {
                int block = at / (D / 8), chunk = at % (D / 8);
                bool is_there = start + block < whole;
                long from = is_there ? ((long)(start + block) * PARTS + part) * D + chunk * 8 : 0;
                uint32_t to = tile.base + T::STAGES + part * SCORED * D * 2;
                copy16(to + place<D>(block, chunk), parts + from, is_there);
            }
        }
        close_group();
        wait_groups<0>();
        __syncthreads();
        tile.score_past(scores);
        __syncthreads();
        int end = min(SCORED, min(own, past) - start);
        if (row < T::ROWS)
            for (int n = 0; n < end; n++) best.take(scores[row * PITCH + n] / BLOCK, start + n);
    }
    __syncthreads();
    if (row < T::ROWS) {
        int *kept = (int *)(memory + T::KEPT_AT) + row * KEPT;
        bool is_query = first + row < S;
        if (past >= KEPT) best.take(means[row], own);
#pragma unroll
        for (int n = 0; n < KEPT; n++) {
            int block = past >= KEPT ? best.block[n] : n <= own ? n : -1;
            block = is_query ? block : -1;
            kept[n] = block;
            uint32_t *word = needed + row / T::EACH * words + (block >> 5);
            if (block >= 0) atomicOr(word, 1u << (block & 31));
        }
        for (int block = max(own - 1, 0); block <= own && is_query; block++)
            atomicOr(needed + row / T::EACH * words + (block >> 5), 1u << (block & 31));
    }
    __syncthreads();
}

template <int D, int TALL>
__global__ void __launch_bounds__(32 * WARPS, D == 64 ? RESIDENT_64 : RESIDENT_128)
    nsa_attend(const Bits *q, const Bits *k, const Bits *v, const Bits *parts, Bits *out, int S,
               float scale) {
    using T = Tile<D, TALL>;
    extern __shared__ __align__(128) unsigned char memory[];
    long head = blockIdx.x, size = head * S * D;
    int first = (gridDim.y - 1 - blockIdx.y) * T::ROWS; // the longest rows begin first
    int words = ((S + BLOCK - 1) / BLOCK + 31) / 32, warp = threadIdx.x / 32;
    q += size, k += size, v += size, out += size;
    parts += head * (S / BLOCK) * PARTS * D;

    T tile;
    tile.base = address_of(memory), tile.memory = memory;
    tile.lane = threadIdx.x % 32, tile.row0 = warp * T::EACH, tile.t0 = first + tile.row0;
    tile.own = tile.t0 / BLOCK;
    load<D, T::ROWS, T::THREADS>(tile.base + T::QUERIES, q, first, S);
    load<D, T::ROWS, T::THREADS>(tile.base + T::STAGES, k, first, S);
    close_group();
    wait_groups<0>();
    __syncthreads();
    tile.hold_queries();
    select<D, TALL>(tile, memory, parts, first, S);

    const uint32_t *needed = (const uint32_t *)(memory + T::NEEDED);
    int last = min(first + T::ROWS, S) - 1;
    int block = needed_below(needed, words, last / BLOCK), stage = 0, word = -1;
    uint32_t stages = tile.base + T::STAGES;
    load<D, BLOCK, T::THREADS>(stages, k, (long)block * BLOCK, S);
    load<D, BLOCK, T::THREADS>(stages + T::OF_BLOCK, v, (long)block * BLOCK, S);
    close_group();
    tile.begin();
    while (block >= 0) {
        int next = needed_below(needed, words, block - 1);
        uint32_t here = stages + stage * 2 * T::OF_BLOCK;
        uint32_t there = stages + (1 - stage) * 2 * T::OF_BLOCK;
        if (next >= 0) {
            load<D, BLOCK, T::THREADS>(there, k, (long)next * BLOCK, S);
            load<D, BLOCK, T::THREADS>(there + T::OF_BLOCK, v, (long)next * BLOCK, S);
        }
        close_group();
        if (block >> 5 != word) tile.choose_word(word = block >> 5);
        wait_groups<1>();
        __syncthreads();
        if (needed[warp * words + word] >> (block & 31) & 1) tile.attend_wanted(block, here, scale);
        __syncthreads();
        block = next, stage = 1 - stage;
    }
    tile.store(out, S);
}

template <int D, int TALL>
int attend(const Bits *q, const Bits *k, const Bits *v, Bits *parts, Bits *out, int heads, int S,
           Stream stream) {
    using T = Tile<D, TALL>;
    int whole = S / BLOCK, words = ((S + BLOCK - 1) / BLOCK + 31) / 32;
    if (whole > 0) {
        size_t bytes = SUMMING / (D / 8) * D * sizeof(float);
        dim3 grid(whole, heads);
        int code = start(nsa_block_sums<D>, grid, SUMMING, bytes, stream, false, k, parts, S);
        if (code) return code;
    }
    float scale = 1.4426950408889634f / sqrtf((float)D); // exp(x) is 2^(x log2 e)
    dim3 grid(heads, (S + T::ROWS - 1) / T::ROWS);
    bool overlaps = OVERLAPS && whole > 0;
    return start(nsa_attend<D, TALL>, grid, T::THREADS, T::bytes(words), stream, overlaps, q, k, v,
                 (const Bits *)parts, out, S, scale);
}

// `parts` is scratch: heads * (S / 64) * 3 * D bfloat16. Returns a CUDA error code.
extern "C" int launch(long q, long k, long v, long parts, long out, int heads, int S, int D,
                      long stream) {
    bool is_wide = heads * ((S + 127) / 128) >= WIDE_FROM;
    auto chosen = D == 64 ? (is_wide ? attend<64, 2> : attend<64, 1>)
                          : (is_wide ? attend<128, 2> : attend<128, 1>);
    return chosen((const Bits *)q, (const Bits *)k, (const Bits *)v, (Bits *)parts, (Bits *)out,
                  heads, S, (Stream)stream);
}
