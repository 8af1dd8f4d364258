// Latent attention: queries in the latent space, partial softmaxes over rows of the cache (a part a
// block), and their join, of which four blocks have one head.
#pragma once
#include "machine.cuh"

constexpr int STRIDE = MOST_LATENT + 8;   // of rows in shared memory: no bank is met twice
constexpr int P_STRIDE = ROWS + 8;
constexpr int TILES_EACH = (512 / 8 + WARPS - 1) / WARPS;  // of eight latent columns, a warp

struct Attend {
    alignas(16) bf16 q[MOST_HEADS * STRIDE];
    alignas(16) bf16 rows[ROWS * STRIDE];
    alignas(16) bf16 p[MOST_HEADS * P_STRIDE];
    float scores[MOST_HEADS][ROWS + 1];
    float most[MOST_HEADS], total[MOST_HEADS], before[MOST_HEADS];
};
struct Absorb {
    float q[MOST_DIM];
    float offset;
};
struct Join {
    float share[512];
    alignas(16) float parts[WARPS][GROUP];  // then the columns of each warp
    float latent[GROUP], sums[GROUP / 32];
    float total;
};
constexpr int LINES_EACH = (GROUP / 2 + WARPS - 1) / WARPS;  // byte rows of a group, a warp
constexpr int AT_ONCE = 11;                                  // parts that a warp has under way

__device__ __forceinline__ int rows_of(const Sizes &z) { return z.ctx + 1; }
__device__ __forceinline__ int splits_of(const Sizes &z) {
    return least(gridDim.x, pieces(rows_of(z), ROWS));
}

// (a, b) turned by the angle of pair `i` at the new position
__device__ __forceinline__ float2 turned(const Work &w, int i, float a, float b) {
    const double half_turns = w.sizes.ctx * w.rates[i];
    const float2 by = cosine_and_sine((float)(half_turns - 2 * rint(half_turns / 2)));
    return float2{a * by.x - b * by.y, a * by.y + b * by.x};
}

// Four columns of this warp's byte rows of one group of kv_b, from `column` on.
__device__ __forceinline__ void lines_of(const Matrix &kv_b, int group, int n, long column, bool is_there,
                                         unsigned (&q4)[LINES_EACH]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < LINES_EACH; i++) {
        const int row = warp + i * WARPS;
        const byte *from = kv_b.q + (long)(group * (GROUP / 2) + row) * n + column + lane * 4;
        q4[i] = is_there && row < GROUP / 2 ? *(const unsigned *)from : 0;
    }
}

// Asks for what `absorb`, `attend` (beyond its first tile) and `join` of this block will read.
__device__ __forceinline__ void ask_for_latent(const Work &w, int layer) {
    const Sizes &z = w.sizes;
    const int groups = z.latent / GROUP, n = z.mla_heads * (z.nope + z.v_dim), splits = splits_of(z);
#pragma unroll 1
    for (int item = blockIdx.x; item < z.mla_heads * groups; item += gridDim.x) {
        const int column = item / groups * (z.nope + z.v_dim);
#pragma unroll 1
        for (int i = threadIdx.x; i < GROUP; i += THREADS) {
            const byte *line = w.layers[layer].in[2].q + (long)(item % groups * GROUP + i) / 2 * n + column;
            ask_into_l2(line + (i % 2 ? z.nope : 0));
        }
    }
#pragma unroll 1
    for (int first = (blockIdx.x + splits) * ROWS; first < z.ctx; first += splits * ROWS)
        for (int row = first + (int)threadIdx.x; row < least(first + ROWS, z.ctx); row += THREADS) {
            for (int e = 0; e < z.latent; e += 64) ask_into_l2(w.states[layer].c_kv + (long)row * z.latent + e);
            ask_into_l2(w.states[layer].k_rope + (long)row * z.rope);
        }
}

// The new row of the caches, rounded.
__device__ __forceinline__ void new_row(const Work &w, const Sums &sums, int layer) {
    const Sizes &z = w.sizes;
    const State &state = w.states[layer];
    const float *row = sums.projected + z.mla_heads * (z.nope + z.rope);
    for (int i = threadIdx.x; i < z.latent; i += THREADS)
        state.new_c_kv[(long)z.ctx * z.latent + i] = narrow(__ldcg(row + i));
    for (int i = threadIdx.x; i < z.rope / 2; i += THREADS) {
        const float2 pair = turned(w, i, __ldcg(row + z.latent + 2 * i), __ldcg(row + z.latent + 2 * i + 1));
        bf16 *to = state.new_k_rope + (long)z.ctx * z.rope + 2 * i;
        to[0] = narrow(pair.x);
        to[1] = narrow(pair.y);
    }
}

// q_latent of each head: its part of kv_b for keys, times q; and q's rotated part behind it. Scaled
// for softmax by powers of two. An item is one group of latent rows of one head.
__device__ __forceinline__ void absorb(const Work &w, const Sums &sums, int layer, Absorb &s) {
    const Sizes &z = w.sizes;
    const int groups = z.latent / GROUP, n = z.mla_heads * (z.nope + z.v_dim);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float scale = LOG2E * rsqrtf((float)(z.nope + z.rope));
    const Matrix &kv_b = w.layers[layer].in[2];
    if (blockIdx.x == gridDim.x - 1) new_row(w, sums, layer);
    for (int item = blockIdx.x; item < z.mla_heads * groups; item += gridDim.x) {
        const int head = item / groups, group = item % groups, column = head * (z.nope + z.v_dim);
        const float *q = sums.projected + head * (z.nope + z.rope);
        bf16 *to = w.q_latent + head * STRIDE;
        unsigned q4[LINES_EACH];
        lines_of(kv_b, group, n, column, lane * 4 < z.nope, q4);
        if (threadIdx.x < 32) {
            float offset = 0;
            for (int i = lane; i < z.nope; i += 32) {
                const long at = (long)group * n + column + i;
                const float value = __ldcg(q + i) * wide(kv_b.scales[at]) * scale;
                offset += value * wide(kv_b.zeros[at]);
                s.q[i] = value;
            }
            offset = warp_sum(offset);
            if (lane == 0) s.offset = offset;
        } else if (group == 0) {
            for (int i = threadIdx.x - 32; i < z.rope / 2; i += THREADS - 32) {
                const float2 pair = turned(w, i, __ldcg(q + z.nope + 2 * i), __ldcg(q + z.nope + 2 * i + 1));
                to[z.latent + 2 * i] = narrow(pair.x * scale);
                to[z.latent + 2 * i + 1] = narrow(pair.y * scale);
            }
        }
        __syncthreads();
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = lane * 4 < z.nope ? s.q[lane * 4 + i] : 0.0f;
#pragma unroll
        for (int line = 0; line < LINES_EACH; line++) {
            float even = 0, odd = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                even += (q4[line] >> (8 * i) & 15) * x[i];
                odd += (q4[line] >> (8 * i + 4) & 15) * x[i];
            }
            even = warp_sum(even);
            odd = warp_sum(odd);
            const int row = warp + line * WARPS;
            if (lane == 0 && row < GROUP / 2) {
                to[group * GROUP + 2 * row] = narrow(even - s.offset);
                to[group * GROUP + 2 * row + 1] = narrow(odd - s.offset);
            }
        }
        __syncthreads();
    }
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
                                                 : state.new_k_rope + (long)z.ctx * z.rope + (i - wide_) * 8));
    }
    const int pad = (16 - used % 16) % 16;
    for (int i = threadIdx.x; i < ROWS * pad; i += THREADS) s.rows[i / pad * STRIDE + used + i % pad] = 0;
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
__device__ __forceinline__ void left(unsigned (&a)[4], const bf16 *from, int stride, int head, int column) {
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
                const int head = half * 16 + lane / 4 + n / 2 * 8, row = eight * 8 + lane % 4 * 2 + n % 2;
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
        for (int half = 0; half < 2; half++) left(a[step][half], s.p, P_STRIDE, half * 16, step * 16);
#pragma unroll
    for (int i = 0; i < TILES_EACH; i++) {
        const int column = (warp + WARPS * i) * 8 + lane / 4;
        if ((warp + WARPS * i) * 8 >= w.sizes.latent) continue;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < 4; n++) value[i][half][n] *= s.before[half * 16 + lane / 4 + n / 2 * 8];
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

// What each part's softmax counts for, and their sum. By the first warp.
__device__ __forceinline__ void shares(const Work &w, int head, int splits, Join &s) {
    const int lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        float most = -INFINITY, total = 0;
        for (int n = lane; n < splits; n += 32)
            most = fmaxf(most, __ldcg(w.stats + (n * MOST_HEADS + head) * 2));
        most = warp_most(most);
        for (int n = lane; n < splits; n += 32) {
            const float *stat = w.stats + (n * MOST_HEADS + head) * 2;
            const float share = power_of_two(__ldcg(stat) - most);
            s.share[n] = share;
            total += share * __ldcg(stat + 1);
        }
        total = warp_sum(total);
        if (lane == 0) s.total = total;
    }
}

// `s.latent`, a group of latent columns of one head from all parts, and its sums by warp.
__device__ __forceinline__ void joined(const float *parts, int latent, int splits, Join &s) {
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const long each = (long)MOST_HEADS * latent;
    float4 sum{0, 0, 0, 0};
    for (int first = warp; first < splits || first == warp; first += AT_ONCE * WARPS) {
        float4 part[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int n = first + i * WARPS;
            if (n < splits) part[i] = __ldcg((const float4 *)(parts + n * each + lane * 4));
        }
        if (first == warp) __syncthreads();  // shares are there
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int n = first + i * WARPS;
            if (n >= splits) continue;
            const float share = s.share[n];
            sum.x += share * part[i].x;
            sum.y += share * part[i].y;
            sum.z += share * part[i].z;
            sum.w += share * part[i].w;
        }
    }
    *(float4 *)&s.parts[warp][lane * 4] = sum;
    __syncthreads();
    if (tid < GROUP) {
        float all = 0;
#pragma unroll
        for (int i = 0; i < WARPS; i++) all += s.parts[i][tid];
        all /= s.total;
        s.latent[tid] = all;
        all = warp_sum(all);
        if (lane == 0) s.sums[warp] = all;
    }
    __syncthreads();
}

// Joins the parts of a head for one group of latent columns, and takes them through kv_b's values.
__device__ __forceinline__ void join(const Work &w, const Sums &sums, int layer, Join &s) {
    const Sizes &z = w.sizes;
    const int groups = z.latent / GROUP, n = z.mla_heads * (z.nope + z.v_dim), splits = splits_of(z);
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const Matrix &kv_b = w.layers[layer].in[2];
    for (int item = blockIdx.x; item < z.mla_heads * groups; item += gridDim.x) {
        const int head = item / groups, group = item % groups;
        const long column = (long)head * (z.nope + z.v_dim) + z.nope;
        unsigned q4[LINES_EACH];
        lines_of(kv_b, group, n, column, lane * 4 < z.v_dim, q4);
        shares(w, head, splits, s);
        joined(w.parts + (long)head * z.latent + group * GROUP, z.latent, splits, s);
        float columns[4] = {0, 0, 0, 0};
#pragma unroll
        for (int line = 0; line < LINES_EACH; line++) {
            const int row = warp + line * WARPS;
            if (row >= GROUP / 2) continue;
#pragma unroll
            for (int i = 0; i < 4; i++)
                columns[i] += (q4[line] >> (8 * i) & 15) * s.latent[2 * row] +
                              (q4[line] >> (8 * i + 4) & 15) * s.latent[2 * row + 1];
        }
        *(float4 *)&s.parts[warp][lane * 4] = float4{columns[0], columns[1], columns[2], columns[3]};
        __syncthreads();
        if (tid < z.v_dim) {
            const long at = (long)group * n + column + tid;
            float sum = 0, latent = 0;
#pragma unroll
            for (int i = 0; i < WARPS; i++) sum += s.parts[i][tid];
            for (int i = 0; i < GROUP / 32; i++) latent += s.sums[i];
            add(sums.attended + head * z.v_dim + tid,
                wide(kv_b.scales[at]) * (sum - wide(kv_b.zeros[at]) * latent));
        }
        __syncthreads();
    }
}
