// Attention of all heads in the latent space: a softmax over some rows of the cache, a part a
// block.
#pragma once
#include "machine.cuh"

constexpr int STRIDE = MOST_LATENT + 8;  // of rows in shared memory: no bank is met twice
constexpr int P_STRIDE = ROWS + 8;
constexpr int TILES_EACH = (512 / 8 + WARPS - 1) / WARPS;  // of eight latent columns, a warp

struct Attend {
    alignas(16) bf16 q[MOST_HEADS * STRIDE];
    alignas(16) bf16 rows[ROWS * STRIDE];
    alignas(16) bf16 p[MOST_HEADS * P_STRIDE];
    float scores[MOST_HEADS][ROWS + 1];
    float most[MOST_HEADS], total[MOST_HEADS], before[MOST_HEADS];
};
__device__ __forceinline__ int rows_of(const Sizes &z) { return z.ctx + 1; }
__device__ __forceinline__ int splits_of(const Sizes &z) {
    return least(gridDim.x, pieces(rows_of(z), ROWS));
}

// Begins to copy the old rows of a tile of the cache.
__device__ __forceinline__ void ask_for_rows(const Work &w, int layer, int tile, Attend &s) {
    const Sizes &z = w.sizes;
    const int wide_ = z.latent / 8, all = wide_ + z.rope / 8;
    for (int i = threadIdx.x; i < ROWS * all; i += THREADS) {
        const int row = i / all, part = i % all;
        const long at = tile * ROWS + row;
        const bool is_there = at < z.ctx;
        const bf16 *from = part < wide_ ? w.states[layer].c_kv + at * z.latent + part * 8
                                        : w.states[layer].k_rope + at * z.rope + (part - wide_) * 8;
        copy16(s.rows + row * STRIDE + part * 8, is_there ? from : w.states[layer].c_kv, is_there);
    }
    copies_end();
}

// Waits for the rows; adds the new one, and columns of zeros up to a multiple of 16. Where the new
// caches are not the old ones, the rows go there.
__device__ __forceinline__ void rows_are_there(const Work &w, int layer, int tile, Attend &s) {
    const Sizes &z = w.sizes;
    const State &state = w.states[layer];
    const int wide_ = z.latent / 8, all = wide_ + z.rope / 8, used = z.latent + z.rope;
    copies_wait<0>();
    __syncthreads();
    const int row = z.ctx - tile * ROWS;
    if (row >= 0 && row < ROWS) {
        for (int i = threadIdx.x; i < all; i += THREADS)
            *(uint4 *)&s.rows[row * STRIDE + i * 8] =
                __ldcg((const uint4 *)(i < wide_ ? state.new_c_kv + (long)z.ctx * z.latent + i * 8
                                                 : state.new_k_rope + (long)z.ctx * z.rope +
                                                       (i - wide_) * 8));
    }
    const int pad = (16 - used % 16) % 16;
    for (int i = threadIdx.x; i < ROWS * pad; i += THREADS)
        s.rows[i / pad * STRIDE + used + i % pad] = 0;
    if (state.new_c_kv != state.c_kv)
        for (int i = threadIdx.x; i < ROWS * all; i += THREADS) {
            const int part = i % all;
            const long at = tile * ROWS + i / all;
            if (at >= z.ctx) continue;
            bf16 *to = part < wide_ ? state.new_c_kv + at * z.latent + part * 8
                                    : state.new_k_rope + at * z.rope + (part - wide_) * 8;
            *(uint4 *)to = *(const uint4 *)&s.rows[i / all * STRIDE + part * 8];
        }
    __syncthreads();
}

// Sixteen heads (from `head`) by the 16 columns from `column` of a matrix in shared memory.
__device__ __forceinline__ void left(unsigned (&a)[4], const bf16 *from, int stride, int head,
                                     int column) {
    const int lane = threadIdx.x % 32;
    const bf16 *at = from + (head + lane / 4) * stride + column + lane % 4 * 2;
    a[0] = *(const unsigned *)at;
    a[1] = *(const unsigned *)(at + 8 * stride);
    a[2] = *(const unsigned *)(at + 8);
    a[3] = *(const unsigned *)(at + 8 * stride + 8);
}

__device__ __forceinline__ void score(const Work &w, int tile, Attend &s) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int steps = pieces(w.sizes.latent + w.sizes.rope, 16);
    for (int eight = warp; eight < ROWS / 8; eight += WARPS) {
        float d[2][4] = {};
        for (int step = 0; step < steps; step++) {
            const bf16 *at = s.rows + (eight * 8 + lane / 4) * STRIDE + step * 16 + lane % 4 * 2;
            const unsigned b[2] = {*(const unsigned *)at, *(const unsigned *)(at + 8)};
#pragma unroll
            for (int half = 0; half < 2; half++) {
                unsigned a[4];
                left(a, s.q, STRIDE, half * 16, step * 16);
                mma(d[half], a, b);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int head = half * 16 + lane / 4 + n / 2 * 8,
                          row = eight * 8 + lane % 4 * 2 + n % 2;
                s.scores[head][row] = tile * ROWS + row < rows_of(w.sizes) ? d[half][n] : -INFINITY;
            }
    }
    __syncthreads();
}

__device__ __forceinline__ void soften(Attend &s) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int head = warp; head < MOST_HEADS; head += WARPS) {
        const float one = s.scores[head][lane], two = s.scores[head][lane + 32];
        const float old = s.most[head];
        const float most = fmaxf(old, warp_most(fmaxf(one, two)));
        const bf16 p = narrow(power_of_two(one - most)), r = narrow(power_of_two(two - most));
        s.p[head * P_STRIDE + lane] = p;
        s.p[head * P_STRIDE + lane + 32] = r;
        const float total = warp_sum(wide(p) + wide(r)), before = power_of_two(old - most);
        __syncwarp();
        if (lane == 0) {
            s.before[head] = before;
            s.total[head] = s.total[head] * before + total;
            s.most[head] = most;
        }
    }
    __syncthreads();
}

// value[i]: heads by the eight latent columns from 8 (warp + WARPS i)
__device__ __forceinline__ void weigh(const Work &w, Attend &s, float (&value)[TILES_EACH][2][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned a[ROWS / 16][2][4];
#pragma unroll
    for (int step = 0; step < ROWS / 16; step++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            left(a[step][half], s.p, P_STRIDE, half * 16, step * 16);
#pragma unroll
    for (int i = 0; i < TILES_EACH; i++) {
        const int column = (warp + WARPS * i) * 8 + lane / 4;
        if ((warp + WARPS * i) * 8 >= w.sizes.latent) continue;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < 4; n++)
                value[i][half][n] *= s.before[half * 16 + lane / 4 + n / 2 * 8];
#pragma unroll
        for (int step = 0; step < ROWS / 16; step++) {
            const bf16 *at = s.rows + (step * 16 + lane % 4 * 2) * STRIDE + column;
            const unsigned b[2] = {at[0] | (unsigned)at[STRIDE] << 16,
                                   at[8 * STRIDE] | (unsigned)at[9 * STRIDE] << 16};
#pragma unroll
            for (int half = 0; half < 2; half++) mma(value[i][half], a[step][half], b);
        }
    }
    __syncthreads();
}

// This block's part of the softmax of all heads. The copies of its first tile have begun.
__device__ __forceinline__ void attend(const Work &w, int layer, Attend &s) {
    const Sizes &z = w.sizes;
    const int splits = splits_of(z), tiles = pieces(rows_of(z), ROWS);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (blockIdx.x >= splits) return;
    for (int i = threadIdx.x * 8; i < MOST_HEADS * STRIDE; i += THREADS * 8)
        copy16(s.q + i, w.q_latent + i, true);
    copies_end();
    for (int head = threadIdx.x; head < MOST_HEADS; head += THREADS) {
        s.most[head] = -INFINITY;
        s.total[head] = 0;
    }
    float value[TILES_EACH][2][4] = {};
    for (int tile = blockIdx.x; tile < tiles; tile += splits) {
        if (tile != blockIdx.x) ask_for_rows(w, layer, tile, s);
        rows_are_there(w, layer, tile, s);
        score(w, tile, s);
        soften(s);
        weigh(w, s, value);
    }
    float *to = w.parts + (long)blockIdx.x * MOST_HEADS * z.latent;
#pragma unroll
    for (int i = 0; i < TILES_EACH; i++) {
        const int column = (warp + WARPS * i) * 8 + lane % 4 * 2;
        if ((warp + WARPS * i) * 8 >= z.latent) continue;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < 4; n += 2)
                *(float2 *)(to + (long)(half * 16 + lane / 4 + n / 2 * 8) * z.latent + column) =
                    float2{value[i][half][n], value[i][half][n + 1]};
    }
    for (int head = threadIdx.x; head < MOST_HEADS; head += THREADS) {
        float *stat = w.stats + (blockIdx.x * MOST_HEADS + head) * 2;
        stat[0] = s.most[head];
        stat[1] = s.total[head];
    }
}
