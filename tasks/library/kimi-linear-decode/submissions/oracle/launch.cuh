// The launch of `decode_step`, behind which this is included: sizes that it can do, its scratch,
// and what stays from call to call.
#pragma once
#include "shared.cuh"

// What of the sizes the kernel cannot do, on `blocks` blocks; nothing when it can.
static const char *refused(const Sizes &z, int blocks) {
    if (z.hidden > MOST_HIDDEN || z.hidden % GROUP) return "hidden";
    if (z.dim > MOST_DIM || z.dim % SLICE || z.kda_heads > MOST_HEADS) return "KDA heads";
    if (z.kda_heads * z.dim % GROUP || z.mla_heads * z.v_dim % GROUP) return "width of attention";
    if (z.latent > 512 || z.latent % GROUP || z.latent + z.rope > MOST_LATENT || z.rope % 8)
        return "latent";
    if (z.mla_heads > MOST_HEADS || z.nope > MOST_DIM || z.v_dim > MOST_DIM) return "MLA heads";
    if (z.nope % 8 || z.v_dim % 8) return "sizes of MLA heads";
    if (z.experts > MOST_EXPERTS || z.active > MOST_ACTIVE || z.inter % GROUP) return "experts";
    if (blocks > 512 || blocks < z.hidden / TILE) return "blocks";
    const int tiles[4] = {4 * ((z.kda_heads * z.dim + TILE - 1) / TILE), z.hidden / TILE,
                          (z.active + 1) * 2 * (z.inter / TILE), z.hidden / TILE};
    const int wide_ =
        z.kda_heads * z.dim > z.mla_heads * z.v_dim ? z.kda_heads * z.dim : z.mla_heads * z.v_dim;
    const int chunks[4] = {z.hidden / CHUNK, wide_ / CHUNK, z.hidden / CHUNK,
                           (z.active + 1) * (z.inter / CHUNK)};
    for (int n = 0; n < 4; n++) {
        const int most = (tiles[n] * chunks[n] + blocks - 1) / blocks;
        if (most > MOST_PIECES || most / WARPS + 1 > chunks[n] + 1)
            return "products on so few blocks";
    }
    return "";
}

struct Scratch {
    long sums, q_latent, parts, stats, counters, floats;  // where each begins
};
static Scratch scratch_of(const Sizes &z, int blocks) {
    Scratch s;
    s.counters = 0;
    s.sums = 32;
    s.q_latent = s.sums + (long)LAYERS * sums_of(z);
    s.q_latent = (s.q_latent + 31) / 32 * 32;
    s.parts = s.q_latent + MOST_HEADS * STRIDE / 2;
    s.stats = s.parts + (long)blocks * MOST_HEADS * z.latent;
    s.floats = s.stats + (long)blocks * MOST_HEADS * 2;
    return s;
}
static void place_scratch(Work &w, float *scratch, int blocks) {
    const Scratch at = scratch_of(w.sizes, blocks);
    w.counters = (unsigned *)(scratch + at.counters);
    w.sums = scratch + at.sums;
    w.q_latent = (bf16 *)(scratch + at.q_latent);
    w.parts = scratch + at.parts;
    w.stats = scratch + at.stats;
}

// What stays the same from call to call, of the addresses in the order of `Layer`.
static void fill(Work &w, const long long *sizes, const unsigned long long *layers, float scaling) {
    Sizes &z = w.sizes;
    int *const to[] = {&z.hidden, &z.kda_heads, &z.dim,     &z.mla_heads, &z.latent, &z.nope,
                       &z.rope,   &z.v_dim,     &z.experts, &z.active,    &z.inter};
    for (int *one : to) *one = (int)*sizes++;
    for (int n = 0; n < LAYERS; n++) {
        z.is_mla[n] = (int)*sizes++;
        w.layers[n] = *(const Layer *)(layers + n * (sizeof(Layer) / 8));
    }
    z.scaling = scaling;
}
// What a call brings: hidden, out, then of each layer the addresses of `State`.
static void bring(Work &w, const unsigned long long *at, int ctx) {
    w.hidden = (const bf16 *)at[0];
    w.out = (bf16 *)at[1];
    for (int n = 0; n < LAYERS; n++)
        w.states[n] = *(const State *)(at + 2 + n * (sizeof(State) / 8));
    w.sizes.ctx = ctx;
}

#ifdef __CUDACC__
#include <mutex>
#include <vector>

static std::mutex lock;
static std::vector<Work> models;  // what was prepared; a number is a place in it
static int blocks_there;

// Returns what is wrong, or nothing; `floats` is the scratch that a model needs, zeroed.
extern "C" const char *blocks_and_scratch(const long long *sizes, int *blocks, long long *floats) {
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(blocks, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(decode_step, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)sizeof(Shared));
    if (error != cudaSuccess) return cudaGetErrorString(error);
    Work w = {};
    std::vector<unsigned long long> none(LAYERS * (sizeof(Layer) / 8));
    fill(w, sizes, none.data(), 1);
    blocks_there = *blocks;
    *floats = scratch_of(w.sizes, *blocks).floats;
    return refused(w.sizes, *blocks);
}

// Keeps a model under `number`, or under a new number for a negative one; returns it.
extern "C" int prepare_model(int number, const long long *sizes, const unsigned long long *layers,
                             float scaling, float *scratch, const double *rates) {
    std::lock_guard<std::mutex> held(lock);
    if (number < 0) {
        number = (int)models.size();
        models.emplace_back();
    }
    Work &w = models[number];
    fill(w, sizes, layers, scaling);
    place_scratch(w, scratch, blocks_there);
    w.rates = rates;
    return number;
}

extern "C" const char *decode(int number, const unsigned long long *at, int ctx, void *stream) {
    Work w = models[number];
    bring(w, at, ctx);
    void *arguments[] = {&w};
    const cudaError_t error =
        cudaLaunchCooperativeKernel(decode_step, dim3(blocks_there), dim3(THREADS), arguments,
                                    sizeof(Shared), (cudaStream_t)stream);
    return error == cudaSuccess ? "" : cudaGetErrorString(error);
}
#endif
