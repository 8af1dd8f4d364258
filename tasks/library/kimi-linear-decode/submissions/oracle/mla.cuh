// What is around latent attention (`attend.cuh`): queries in the latent space before it, and after
// it the join of its parts, of which four blocks have one head.
#pragma once
#include "attend.cuh"

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

// (a, b) turned by the angle of pair `i` at the new position
__device__ __forceinline__ float2 turned(const Work &w, int i, float a, float b) {
    const double half_turns = w.sizes.ctx * w.rates[i];
    const float2 by = cosine_and_sine((float)(half_turns - 2 * rint(half_turns / 2)));
    return float2{a * by.x - b * by.y, a * by.y + b * by.x};
}

// Four columns of this warp's byte rows of one group of kv_b, from `column` on.
__device__ __forceinline__ void lines_of(const Matrix &kv_b, int group, int n, long column,
                                         bool is_there, unsigned (&q4)[LINES_EACH]) {
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
    const int groups = z.latent / GROUP, n = z.mla_heads * (z.nope + z.v_dim),
              splits = splits_of(z);
#pragma unroll 1
    for (int item = blockIdx.x; item < z.mla_heads * groups; item += gridDim.x) {
        const int column = item / groups * (z.nope + z.v_dim);
#pragma unroll 1
        for (int i = threadIdx.x; i < GROUP; i += THREADS) {
            const byte *line =
                w.layers[layer].in[2].q + (long)(item % groups * GROUP + i) / 2 * n + column;
            ask_into_l2(line + (i % 2 ? z.nope : 0));
        }
    }
#pragma unroll 1
    for (int first = (blockIdx.x + splits) * ROWS; first < z.ctx; first += splits * ROWS)
        for (int row = first + (int)threadIdx.x; row < least(first + ROWS, z.ctx); row += THREADS) {
            for (int e = 0; e < z.latent; e += 64)
                ask_into_l2(w.states[layer].c_kv + (long)row * z.latent + e);
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
        const float2 pair =
            turned(w, i, __ldcg(row + z.latent + 2 * i), __ldcg(row + z.latent + 2 * i + 1));
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
                const float2 pair =
                    turned(w, i, __ldcg(q + z.nope + 2 * i), __ldcg(q + z.nope + 2 * i + 1));
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
    const int groups = z.latent / GROUP, n = z.mla_heads * (z.nope + z.v_dim),
              splits = splits_of(z);
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
        *(float4 *)&s.parts[warp][lane * 4] =
            float4{columns[0], columns[1], columns[2], columns[3]};
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
