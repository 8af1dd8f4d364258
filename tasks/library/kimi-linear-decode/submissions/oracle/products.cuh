// Products of one vector with 4-bit matrices, as a stream of pieces of 64 rows x 128 columns.
//
// All pieces of a phase, column after column, are one list; a block has an equal share of it, a
// warp an equal share of that. Each lane copies what it will read itself, SLOTS pieces ahead, so a
// stream needs no barrier, and begins before the vector is there.
//
// Tensor cores multiply: two bytes of one column, four rows apart, make a pair of bfloat16
// 128 + q by a mask; x is the other operand, as two bfloat16 terms in two of its eight columns.
// What the 128 adds is taken off with the zero of the group.
//
// One kernel has many phases: what they share is not inlined, or its code would fit into no cache.
#pragma once
#include "shared.cuh"

// A piece: its first byte, the first of its scales, the length of a row, columns that are there.
struct Source {
    const byte *q;
    const bf16 *scales, *zeros;
    int n, columns;
};

__device__ __forceinline__ Source piece(const Matrix &m, int expert, int rows, int n, int column,
                                        int chunk) {
    const long scale = (long)(expert * (rows / GROUP) + chunk / (GROUP / CHUNK)) * n + column;
    const long row = (long)expert * (rows / 2) + chunk * (CHUNK / 2);
    return Source{m.q + row * n + column, m.scales + scale, m.zeros + scale, n, n - column};
}

__device__ __forceinline__ Source source(const Shared &s, int kind, int layer, int at) {
    const Sizes &z = s.sizes;
    const Layer &w = s.layers[layer];
    const bool is_mla = z.is_mla[layer];
    const Job &job = s.jobs[is_mla][kind];
    const int tile = job.tile(at), chunk = at - tile * job.chunks;
    if (kind == OUT) return piece(w.out, 0, job.chunks * CHUNK, z.hidden, tile * TILE, chunk);
    if (kind == DOWN) {
        const int expert = quotient(chunk, job.by_each), own = chunk - expert * job.each;
        const bool is_shared = expert == z.active;
        return piece(is_shared ? w.s_down : w.down, s.chosen[expert], z.inter, z.hidden,
                     tile * TILE, own);
    }
    const int which = quotient(tile, job.by_each), column = (tile - which * job.each) * TILE;
    if (kind == PROJECT) {
        const bool is_row = is_mla && which;
        return piece(w.in[is_row ? 1 : which], 0, z.hidden, is_row ? z.latent + z.rope : job.wide,
                     is_row ? (tile - job.each) * TILE : column, chunk);
    }
    const int expert = which / 2;
    const Matrix &gate = expert == z.active ? w.s_gate : w.gate,
                 &up = expert == z.active ? w.s_up : w.up;
    return piece(which % 2 ? up : gate, s.chosen[expert], z.hidden, z.inter, column, chunk);
}

// Where the sums of a tile go, and how many columns it has.
struct Target {
    float *to;
    int columns;
};
__device__ __forceinline__ Target target(const Shared &s, int kind, int layer, int tile) {
    const Sizes &z = s.sizes;
    const bool is_mla = z.is_mla[layer];
    const Job &job = s.jobs[is_mla][kind];
    if (kind == OUT || kind == DOWN)
        return Target{(kind == OUT ? s.sums.h : s.sums.down) + tile * TILE, z.hidden - tile * TILE};
    int which = quotient(tile, job.by_each), n = job.wide;
    if (kind == PROJECT && is_mla && which) {
        which = 1;
        n = z.latent + z.rope;
    }
    const int column = (tile - which * job.each) * TILE;
    return Target{(kind == PROJECT ? s.sums.projected : s.sums.up) + which * job.wide + column,
                  n - column};
}

__device__ __forceinline__ void request(Slot &slot, const Source &from) {
    const int lane = threadIdx.x % 32, group = lane / 4, part = lane % 4;
    const int column = group * 16;
#pragma unroll
    for (int n = 0; n < LOADS; n++) {
        const byte *q = from.q + (long)(4 * n + part) * from.n + column;
        byte *to = slot.q[n][lane];
        if (from.n % 16 == 0) {
            copy16(to, column < from.columns ? q : from.q, column < from.columns);
        } else {  // rows begin at multiples of eight only
            copy8(to, column < from.columns ? q : from.q, column < from.columns);
            copy8(to + 8, column + 8 < from.columns ? q + 8 : from.q, column + 8 < from.columns);
        }
    }
    const int at = lane % 16 * 8;
    const bf16 *scale = lane < 16 ? from.scales : from.zeros;
    bf16 *to = lane < 16 ? slot.scales : slot.zeros;
    copy16(to + at, at < from.columns ? scale + at : scale, at < from.columns);
}

// d[j] += x . (128 + q) of columns 2 j (d[0], d[1]: terms of x) and 2 j + 1 (d[2], d[3])
__device__ __forceinline__ void multiply(const Slot &slot, const unsigned (&x)[4][2][4][2],
                                         float (&d)[8][4]) {
    const int lane = threadIdx.x % 32, group = lane / 4, part = lane % 4;
    constexpr unsigned NIBBLES = 0x000f000fu, ONES = 0x43004300u;  // 128 twice
#pragma unroll
    for (int step = 0; step < 4; step++) {
        unsigned b[2] = {0, 0};
        if (group < 2) {
            b[0] = x[step][group][part][0];
            b[1] = x[step][group][part][1];
        }
        const uint4 one = *(const uint4 *)slot.q[2 * step][lane];
        const uint4 two = *(const uint4 *)slot.q[2 * step + 1][lane];
        const unsigned ones[4] = {one.x, one.y, one.z, one.w},
                       twos[4] = {two.x, two.y, two.z, two.w};
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const unsigned p = bytes_of(ones[j / 2], twos[j / 2], j % 2 ? 0x7632 : 0x5410);
            const unsigned a[4] = {(p & NIBBLES) | ONES, ((p >> 8) & NIBBLES) | ONES,
                                   ((p >> 4) & NIBBLES) | ONES, ((p >> 12) & NIBBLES) | ONES};
            mma(d[j], a, b);
        }
    }
}

// sums += scale * (d - (128 + zero) * sum of x), by the lanes that hold d's first two columns
__device__ __forceinline__ void scaled(const Slot &slot, float x_sum, const float (&d)[8][4],
                                       float (&sums)[16]) {
    const int column = threadIdx.x % 32 / 4 * 16;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        unsigned scale = *(const unsigned *)&slot.scales[column + 2 * j];
        unsigned zero = *(const unsigned *)&slot.zeros[column + 2 * j];
        sums[2 * j] += low(scale) * (d[j][0] + d[j][1] - (128 + low(zero)) * x_sum);
        sums[2 * j + 1] += high(scale) * (d[j][2] + d[j][3] - (128 + high(zero)) * x_sum);
    }
}

__device__ __forceinline__ void keep(Reduced &reduced, int which, float (&sums)[16]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane % 4 == 0) {
#pragma unroll
        for (int n = 0; n < 16; n += 4)
            *(float4 *)&reduced.columns[which][warp][lane * 4 + n] =
                float4{sums[n], sums[n + 1], sums[n + 2], sums[n + 3]};
    }
#pragma unroll
    for (int n = 0; n < 16; n++) sums[n] = 0;
}

// Asks for the n-th piece of this warp, where it has so many.
__device__ __forceinline__ void ask(Shared &s, int kind, int layer, int n) {
    const int warp = threadIdx.x / 32;
    const Job &job = s.jobs[s.sizes.is_mla[layer]][kind];
    const int at = job.begin(warp) + n;
    if (at < job.begin(warp + 1))
        request(s.ring.slots[warp][n % SLOTS], source(s, kind, layer, at));
    copies_end();
}

// Begins the stream of a phase.
__device__ NOT_INLINE void start(int kind, int layer) {
    SHARED(s);
#pragma unroll 1
    for (int n = 0; n < SLOTS; n++) ask(s, kind, layer, n);
}

// All pieces of this warp; they are of two tiles at most.
__device__ NOT_INLINE void run(int kind, int layer) {
    SHARED(s);
    const Job &job = s.jobs[s.sizes.is_mla[layer]][kind];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int begin = job.begin(warp), end = job.begin(warp + 1), first = job.first;
    const int tile = job.tile(begin), next_tile = (tile + 1) * job.chunks;
    float sums[16], d[8][4], x_sum = 0;
#pragma unroll
    for (int n = 0; n < 16; n++) sums[n] = 0;
#pragma unroll
    for (int j = 0; j < 8; j++) d[j][0] = d[j][1] = d[j][2] = d[j][3] = 0;
#pragma unroll 1
    for (int at = begin; at < end; at++) {
        if (at == next_tile && at > begin) keep(s.reduced, 0, sums);
        copies_wait<SLOTS - 1>();
        __syncwarp();
        const Slot &slot = s.ring.slots[warp][(at - begin) % SLOTS];
        multiply(slot, s.vector.x[at - first], d);
        x_sum += s.vector.sum[at - first];
        if (at % (GROUP / CHUNK) == GROUP / CHUNK - 1 || at + 1 == end) {  // a group ends
            if (lane % 4 == 0) scaled(slot, x_sum, d, sums);
            x_sum = 0;
#pragma unroll
            for (int j = 0; j < 8; j++) d[j][0] = d[j][1] = d[j][2] = d[j][3] = 0;
        }
        __syncwarp();
        ask(s, kind, layer, at - begin + SLOTS);
    }
    const bool has_two = end > next_tile;
    keep(s.reduced, has_two, sums);
    if (!has_two) keep(s.reduced, 1, sums);
    if (lane == 0) s.reduced.tile[warp] = tile;
    copies_wait<0>();
}

// What the warps of this block have of each tile, added to its sums. Of o, `s.normed` gets it too,
// times the weight of the norm that follows.
__device__ NOT_INLINE void reduce(int kind, int layer) {
    SHARED(s);
    const Job &job = s.jobs[s.sizes.is_mla[layer]][kind];
    __syncthreads();
    if (job.first == job.last) return;
    const int first = job.tile(job.first), last = job.tile(job.last - 1);
    for (int i = threadIdx.x; i < (last - first + 1) * TILE; i += THREADS) {
        const int tile = first + i / TILE, column = i % TILE;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < WARPS; n++) {
            const int which = tile - s.reduced.tile[n];
            if (which == 0 || which == 1) sum += s.reduced.columns[which][n][column];
        }
        const Target out = target(s, kind, layer, tile);
        if (column < out.columns) add(out.to + column, sum);
        if (kind == OUT) s.normed[column] = sum * wide(s.moe_norm[tile * TILE + column]);
    }
}

// Rows k and k + 1 of the vector of a phase; `scale` is that of the norm.
__device__ __forceinline__ float2 values(const Shared &s, int kind, int k, float scale) {
    if (kind == OUT) return __ldcg((const float2 *)(s.sums.attended + k));
    if (kind == DOWN) {
        const int inter = s.sizes.inter, expert = quotient(k, s.jobs[0][DOWN].by_each / CHUNK);
        const float *at = s.sums.up + expert * inter + k;
        const float2 gate = __ldcg((const float2 *)at), up = __ldcg((const float2 *)(at + inter));
        const float share = s.share[expert];
        return float2{silu(gate.x) * up.x * share, silu(gate.y) * up.y * share};
    }
    const float2 x = *(const float2 *)&s.weighted[k];
    return float2{x.x * scale, x.y * scale};
}

// The vector of a phase, piece after piece of this block.
__device__ NOT_INLINE void prepare(int kind, int layer, float scale) {
    SHARED(s);
    const Job &job = s.jobs[s.sizes.is_mla[layer]][kind];
    constexpr int MOST = (MOST_PIECES + WARPS - 1) / WARPS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, m = lane % 8;
    float2 x[MOST];
#pragma unroll
    for (int n = 0; n < MOST; n++) {
        const int at = job.first + warp + n * WARPS;
        if (at < job.last)
            x[n] = values(s, kind, (at - job.tile(at) * job.chunks) * CHUNK + 2 * lane, scale);
    }
#pragma unroll
    for (int n = 0; n < MOST; n++) {
        const int at = warp + n * WARPS;
        if (job.first + at >= job.last) continue;
        bf16 *to = (bf16 *)s.vector.x[at][lane / 8] + m % 4 * 4 + m / 4;
        const bf16 even = narrow(x[n].x), odd = narrow(x[n].y);
        const bf16 even_rest = narrow(x[n].x - wide(even)), odd_rest = narrow(x[n].y - wide(odd));
        to[0] = even;
        to[2] = odd;
        to[16] = even_rest;
        to[18] = odd_rest;
        const float sum = warp_sum(wide(even) + wide(even_rest) + wide(odd) + wide(odd_rest));
        if (lane == 0) s.vector.sum[at] = sum;
    }
    __syncthreads();
}
