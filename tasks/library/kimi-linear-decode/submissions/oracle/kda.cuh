// The gated delta rule: convolutions of q, k and v, and the step of S. An item is SLICE columns of
// the S of one head.
#pragma once
#include "machine.cuh"

constexpr int LANES = SLICE / 4;            // of four columns each
constexpr int LINES = 256 / LANES;          // rows of S at once
constexpr int OWN_ROWS = MOST_DIM / LINES;  // of a thread

struct Delta {
    float q[MOST_DIM], k[MOST_DIM], decay[MOST_DIM], v[SLICE];
    alignas(16) float sums[8][2][SLICE];  // of each warp: S k and S q
    alignas(16) float error[SLICE];
    float dot;
};

// One channel of q, k or v (`which`), after convolution and SiLU; `keeps` its new window.
__device__ __forceinline__ float convolved(const Work &w, const Sums &sums, int layer, int which,
                                           int channel, bool keeps) {
    const Sizes &z = w.sizes;
    const int wide_ = z.kda_heads * z.dim;
    const State &state = w.states[layer];
    const bf16 *held = state.windows[which] + channel * 3;
    const bf16 *taps = w.layers[layer].conv + ((long)which * wide_ + channel) * 4;
    const float now = __ldcg(sums.projected + (long)which * wide_ + channel);
    const bf16 one = held[0], two = held[1], three = held[2];
    if (keeps) {
        bf16 *to = state.new_windows[which] + channel * 3;
        to[0] = two;
        to[1] = three;
        to[2] = narrow(now);
    }
    return silu(wide(taps[0]) * wide(one) + wide(taps[1]) * wide(two) +
                wide(taps[2]) * wide(three) + wide(taps[3]) * now);
}

// Asks for what a later `delta_rule` of this block will read.
__device__ __forceinline__ void ask_for_state(const Work &w, int layer) {
    const Sizes &z = w.sizes;
    const int slices = z.dim / SLICE;
#pragma unroll 1
    for (int item = blockIdx.x; item < z.kda_heads * slices; item += gridDim.x) {
        const float *S = w.states[layer].S + (long)(item / slices) * z.dim * z.dim;
#pragma unroll 1
        for (int row = threadIdx.x; row < z.dim; row += THREADS)
            ask_into_l2(S + row * z.dim + item % slices * SLICE);
#pragma unroll 1
        for (int i = threadIdx.x; i < 3 * z.dim; i += THREADS) {
            const int which = i / z.dim, channel = item / slices * z.dim + i % z.dim;
            ask_into_l2(w.states[layer].windows[which] + channel * 3);
            ask_into_l2(w.layers[layer].conv + ((long)which * z.kda_heads * z.dim + channel) * 4);
        }
    }
}

// `beta`: of the items of this block.
__device__ __forceinline__ void delta_rule(const Work &w, const Sums &sums, int layer,
                                           const float *beta, Delta &s) {
    const Sizes &z = w.sizes;
    const int tid = threadIdx.x, slices = z.dim / SLICE, wide_ = z.kda_heads * z.dim;
    const int lane = tid % LANES, line = tid / LANES;
    for (int item = blockIdx.x; item < z.kda_heads * slices; item += gridDim.x) {
        const int head = item / slices, first = item % slices * SLICE, base = head * z.dim;
        const long at = (long)base * z.dim + first + lane * 4;
        float4 S[OWN_ROWS];
        if (tid < 256)
#pragma unroll
            for (int n = 0; n < OWN_ROWS; n++)
                if (line + n * LINES < z.dim)
                    S[n] = __ldcg(
                        (const float4 *)(w.states[layer].S + at + (line + n * LINES) * z.dim));
        for (int i = tid; i < 3 * z.dim + SLICE; i += THREADS) {
            const int e = i % z.dim;
            const bool is_own = e >= first && e < first + SLICE;
            if (i < z.dim)
                s.q[e] = convolved(w, sums, layer, 0, base + e, is_own);
            else if (i < 2 * z.dim)
                s.k[e] = convolved(w, sums, layer, 1, base + e, is_own);
            else if (i < 3 * z.dim)
                s.decay[e] = expf(-softplus(__ldcg(sums.projected + 3L * wide_ + base + e)));
            else
                s.v[e] = convolved(w, sums, layer, 2, base + first + e, true);
        }
        __syncthreads();
        if (tid < 256) {
            float4 by_k{0, 0, 0, 0}, by_q{0, 0, 0, 0};
#pragma unroll
            for (int n = 0; n < OWN_ROWS; n++) {
                const int row = line + n * LINES;
                if (row >= z.dim) continue;
                const float decay = s.decay[row], k = s.k[row], q = s.q[row];
                S[n].x *= decay;
                S[n].y *= decay;
                S[n].z *= decay;
                S[n].w *= decay;
                by_k.x += S[n].x * k;
                by_k.y += S[n].y * k;
                by_k.z += S[n].z * k;
                by_k.w += S[n].w * k;
                by_q.x += S[n].x * q;
                by_q.y += S[n].y * q;
                by_q.z += S[n].z * q;
                by_q.w += S[n].w * q;
            }
            float all[8] = {by_k.x, by_k.y, by_k.z, by_k.w, by_q.x, by_q.y, by_q.z, by_q.w};
#pragma unroll
            for (int n = 0; n < 8; n++) {  // over the lines of a warp
                all[n] += __shfl_xor_sync(0xffffffffu, all[n], 8);
                all[n] += __shfl_xor_sync(0xffffffffu, all[n], 16);
                if (tid % 32 < LANES) s.sums[tid / 32][n / 4][lane * 4 + n % 4] = all[n];
            }
        } else if (tid < 288) {  // k . q
            float dot = 0;
            for (int e = tid - 256; e < z.dim; e += 32) dot += s.k[e] * s.q[e];
            dot = warp_sum(dot);
            if (tid == 256) s.dot = dot;
        }
        __syncthreads();
        if (tid < SLICE) {
            float by_k = 0, by_q = 0;
            for (int n = 0; n < 8; n++) {
                by_k += s.sums[n][0][tid];
                by_q += s.sums[n][1][tid];
            }
            const float error = beta[item / gridDim.x] * (s.v[tid] - by_k);
            s.error[tid] = error;
            sums.attended[base + first + tid] = (by_q + error * s.dot) * rsqrtf((float)z.dim);
        }
        __syncthreads();
        if (tid < 256) {
            const float4 error = *(const float4 *)&s.error[lane * 4];
#pragma unroll
            for (int n = 0; n < OWN_ROWS; n++) {
                const int row = line + n * LINES;
                if (row >= z.dim) continue;
                const float k = s.k[row];
                S[n].x += k * error.x;
                S[n].y += k * error.y;
                S[n].z += k * error.z;
                S[n].w += k * error.w;
                *(float4 *)(w.states[layer].new_S + at + row * z.dim) = S[n];
            }
        }
        __syncthreads();
    }
}
