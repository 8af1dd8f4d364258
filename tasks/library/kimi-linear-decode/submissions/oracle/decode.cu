// One decoding step of Kimi-Linear blocks in one cooperative launch, a block on each SM.
//
// Phases of a layer, between which all blocks meet:
//
//   KDA  project | delta rule |                        o | gate, up | down
//   MLA  project | absorb q | attend | join, values | o | gate, up | down
//
// Products go as streams of pieces (`products.cuh`): a phase's first pieces, 36 of a block, are
// asked for before the meeting that it has to wait for, so that memory works meanwhile. Where
// results of many blocks are added, they add to sums in global memory, which a later phase sets
// back to zero. Every block keeps the whole residual stream. The router is linear in it: its logits
// are added up by whoever has a part of the stream, so routing needs no phase.
#include "products.cuh"

__device__ __forceinline__ float block_sum(Shared &s, float value) {
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) s.partial[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int n = 0; n < WARPS; n++) sum += s.partial[n];
    return sum;
}

// The norms' weights of a layer.
__device__ __forceinline__ void load_norms(Shared &s, const Layer &w) {
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        const int e = threadIdx.x + n * THREADS;
        if (e >= s.sizes.hidden) continue;
        s.attn_norm[e] = w.attn_norm[e];
        s.moe_norm[e] = w.moe_norm[e];
    }
}

// Adds what a phase has summed to the stream; 1 / rms of it. Also `s.weighted`.
__device__ NOT_INLINE float residual(const float *sums, bool is_moe) {
    SHARED(s);
    const int hidden = s.sizes.hidden;
    const bf16 *norm = is_moe ? s.moe_norm : s.attn_norm;
    float squares = 0, more[EACH];
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        const int e = threadIdx.x + n * THREADS;
        more[n] = sums && e < hidden ? __ldcg(sums + e) : 0.0f;
    }
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        const int e = threadIdx.x + n * THREADS;
        if (e >= hidden) continue;
        const float value = s.stream[e] + more[n];
        s.stream[e] = value;
        s.weighted[e] = value * wide(norm[e]);
        squares += value * value;
    }
    return rsqrtf(block_sum(s, squares) / hidden + EPS);
}

// sum over the stream of itself times a norm's weight times a row of the router, or of beta
__device__ NOT_INLINE float along(const bf16 *row, bool is_moe) {
    SHARED(s);
    const bf16 *norm = is_moe ? s.moe_norm : s.attn_norm;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        const int e = threadIdx.x + n * THREADS;
        if (e < s.sizes.hidden) sum += s.stream[e] * wide(norm[e]) * wide(row[e]);
    }
    return block_sum(s, sum);
}

// Beta of the heads whose slices of S are this block's items.
__device__ __forceinline__ void betas(Shared &s, const Layer &w, float scale) {
    const Sizes &z = s.sizes;
    const int slices = z.dim / SLICE;
    for (int item = blockIdx.x; item < z.kda_heads * slices; item += gridDim.x) {
        const float sum = along(w.beta + (long)(item / slices) * z.hidden, false);
        if (threadIdx.x == 0) s.beta[item / gridDim.x] = sigmoid(sum * scale);
    }
}

// What the stream before attention adds to the router's logits.
__device__ __forceinline__ void old_logits(Shared &s, const Layer &w) {
    const Sizes &z = s.sizes;
    for (int e = blockIdx.x; e < z.experts; e += gridDim.x) {
        const float sum = along(w.router + (long)e * z.hidden, true);
        if (threadIdx.x == 0) add(s.sums.logits + e, sum);
    }
}

// Four columns of this block's tile of o, of each row of the router that this warp has.
__device__ __forceinline__ void router_of(const Shared &s, const Layer &w, const Job &job,
                                          uint2 (&rows)[EXPERTS_EACH]) {
    const Sizes &z = s.sizes;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bf16 *from = w.router + job.tile(job.first) * TILE + lane * 4;
#pragma unroll
    for (int i = 0; i < EXPERTS_EACH; i++) {
        const int e = warp + i * WARPS;
        const bool is_mine = e < z.experts && job.first < job.last;
        rows[i] = is_mine ? *(const uint2 *)(from + (long)e * z.hidden) : uint2{0, 0};
    }
}

// What this block's share of o, which `s.normed` holds, adds to the logits.
__device__ __forceinline__ void new_logits(Shared &s, const Job &job,
                                           const uint2 (&rows)[EXPERTS_EACH]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    if (job.first == job.last) return;
    const float4 x = *(const float4 *)&s.normed[lane * 4];
#pragma unroll
    for (int i = 0; i < EXPERTS_EACH; i++) {
        const int e = warp + i * WARPS;
        const float sum = warp_sum(low(rows[i].x) * x.x + high(rows[i].x) * x.y +
                                   low(rows[i].y) * x.z + high(rows[i].y) * x.w);
        if (lane == 0 && e < s.sizes.experts) add(s.sums.logits + e, sum);
    }
}

// Asks for what `router_of` will read.
__device__ __forceinline__ void ask_for_router(const Shared &s, const Layer &w, const Job &job) {
    if (job.first == job.last) return;
    const bf16 *from = w.router + job.tile(job.first) * TILE;
#pragma unroll 1
    for (int i = threadIdx.x; i < 2 * s.sizes.experts; i += THREADS)
        ask_into_l2(from + (long)(i / 2) * s.sizes.hidden + i % 2 * 64);
}

// The experts of the largest logits, ties by the lower number: `s.chosen`, their logits in
// `s.share`.
__device__ __forceinline__ void choose(Shared &s) {
    const int own = threadIdx.x, experts = s.sizes.experts;
    if (own < MOST_EXPERTS) s.logits[own] = own < experts ? __ldcg(s.sums.logits + own) : -INFINITY;
    __syncthreads();
    if (own < experts) {
        const float mine = s.logits[own];
        int rank = 0;
#pragma unroll 16
        for (int e = 0; e < MOST_EXPERTS; e++) {
            const float other = s.logits[e];
            rank += other > mine || (other == mine && e < own);
        }
        if (rank < s.sizes.active) {
            s.chosen[rank] = own;
            s.share[rank] = mine;
        }
    }
    __syncthreads();
}

// From logits to the factors of the experts' outputs, the shared one last.
__device__ __forceinline__ void weigh_experts(Shared &s, float scale) {
    const int active = s.sizes.active;
    if (threadIdx.x == 0) {
        float sum = 0, most = s.share[0];
        for (int i = 0; i < active; i++) sum += s.share[i] = expf((s.share[i] - most) * scale);
        for (int i = 0; i < active; i++) s.share[i] *= s.sizes.scaling / sum;
        s.share[active] = 1;
    }
    __syncthreads();
}

// Floats to zero, an equal share for each block.
__device__ __forceinline__ void clear(float *from, int n) {
#pragma unroll 1
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) from[i] = 0;
}

// What a block keeps of the launch's parameters, and its shares of all phases.
__device__ __forceinline__ void begin(Shared &s, const Work &w) {
    const int tid = threadIdx.x, kind = tid % KINDS;
    static_assert(sizeof(Layer) * LAYERS / 8 <= THREADS, "a word a thread");
    if (tid < LAYERS * (int)sizeof(Layer) / 8)
        ((uint64_t *)s.layers)[tid] = ((const uint64_t *)w.layers)[tid];
    if (tid == 0) {
        s.sizes = w.sizes;
        s.chosen[w.sizes.active] = 0;  // the shared expert is the only one of its matrices
    }
    if (tid < 2 * KINDS) s.jobs[tid / KINDS][kind].set(kind, w.sizes, tid / KINDS);
    for (int e = tid; e < w.sizes.hidden; e += THREADS) s.stream[e] = wide(w.hidden[e]);
    __syncthreads();
}

// Asks for what a layer needs first; its sums are those that are added to from now on.
__device__ __forceinline__ void enter(Shared &s, const Work &w, int layer) {
    if (threadIdx.x == 0) s.sums = sums_at(w, layer);
    start(PROJECT, layer);
    if (s.sizes.is_mla[layer])
        ask_for_latent(w, layer);
    else
        ask_for_state(w, layer);
    load_norms(s, s.layers[layer]);
}

__device__ __forceinline__ void attention(Shared &s, const Work &w, int layer, float scale,
                                          Meeting &all) {
    const Layer &own = s.layers[layer];
    if (s.sizes.is_mla[layer]) {
        if (blockIdx.x < splits_of(s.sizes)) ask_for_rows(w, layer, blockIdx.x, s.attend);
        old_logits(s, own);
        all.wait();
        absorb(w, s.sums, layer, s.absorb);
        all.arrive();
        all.wait();
        attend(w, layer, s.attend);
        all.arrive();
        start(OUT, layer);
        all.wait();
        join(w, s.sums, layer, s.join);
        all.arrive();
    } else {
        start(OUT, layer);
        betas(s, own, scale);
        all.wait();
        delta_rule(w, s.sums, layer, s.beta, s.delta);
        all.arrive();
        old_logits(s, own);
    }
}

__global__ void __launch_bounds__(THREADS, 1) decode_step(const __grid_constant__ Work w) {
    SHARED(s);
    Meeting all{w.counters, 0};
    begin(s, w);
    enter(s, w, 0);
    const float *before = nullptr;  // what the last phase has summed
#pragma unroll 1
    for (int layer = 0; layer < LAYERS; layer++) {
        float scale = 0;
#pragma unroll 1
        for (int kind = PROJECT; kind < KINDS; kind++) {
            const Job &job = s.jobs[s.sizes.is_mla[layer]][kind];
            uint2 router[EXPERTS_EACH];
            if (kind == PROJECT) scale = residual(before, false);
            if (kind == UP) {
                choose(s);
                start(UP, layer);
                scale = residual(s.sums.h, true);
                weigh_experts(s, scale);
            }
            prepare(kind, layer, scale);
            run(kind, layer);
            if (kind == OUT) router_of(s, s.layers[layer], job, router);
            reduce(kind, layer);
            if (kind == OUT) new_logits(s, job, router);
            if (kind == DOWN) before = s.sums.down;
            all.arrive();
            if (kind == PROJECT) {
                attention(s, w, layer, scale, all);
                ask_for_router(s, s.layers[layer], s.jobs[s.sizes.is_mla[layer]][OUT]);
                if (layer) clear(sums_at(w, layer - 1).projected, sums_of(s.sizes));
            }
            if (kind == UP) start(DOWN, layer);
            if (kind == DOWN && layer + 1 < LAYERS) enter(s, w, layer + 1);
            all.wait();
        }
    }
    if (blockIdx.x == 0)
        for (int e = threadIdx.x; e < s.sizes.hidden; e += THREADS) {
            w.out[e] = narrow(s.stream[e] + __ldcg(before + e));
            s.sums.down[e] = 0;
        }
    clear(s.sums.projected, sums_of(s.sizes) - s.sizes.hidden);
    all.leave();
}

#include "launch.cuh"  // of this kernel
