// Products of one vector with 4-bit matrices, as a stream of pieces of 64 rows x 128 columns.
//
// All pieces of a phase, column after column, are one list; a block has an equal share of it, a warp
// an equal share of that. Each lane copies what it will read itself, SLOTS pieces ahead, so a stream
// needs no barrier, and begins before the vector is there.
//
// Tensor cores multiply: two bytes of one column, eight rows apart, make a pair of bfloat16
// 128 + q by a mask; x is the other operand, as two bfloat16 terms in two of its eight columns. What
// the 128 adds is taken off with the zero of the group.
#pragma once
#include "machine.cuh"

constexpr int SLOTS = 3;         // pieces of a warp that are on their way
constexpr int MOST_PIECES = 46;  // of a block, in one phase
constexpr int LOADS = CHUNK / 2 / 4;

enum Kind { PROJECT, OUT, UP, DOWN };

struct Slot {
    alignas(16) byte q[LOADS][32][16];  // what lane l copies in its n-th load is at [n][l]
    alignas(16) bf16 scales[TILE], zeros[TILE];
};
struct Ring {
    Slot slots[WARPS][SLOTS];
};
struct Vector {
    alignas(16) unsigned x[MOST_PIECES][4][2][4][2];  // piece, step, term, lane % 4, register
    float sum[MOST_PIECES];
};
struct Reduced {  // of each warp: its first tile and the one after it
    alignas(16) float columns[2][WARPS][TILE];
    int tile[WARPS];
};

// A piece: its first byte, the first of its scales, the length of a row, columns that are there.
struct Source {
    const byte *q;
    const bf16 *scales, *zeros;
    int n, columns;
};

__device__ __forceinline__ Source piece(const Matrix &m, long expert, int rows, int n, int column,
                                        int chunk) {
    long groups = rows / GROUP;
    long scale = (expert * groups + chunk * CHUNK / GROUP) * n + column;
    return Source{m.q + (expert * (rows / 2) + chunk * (CHUNK / 2)) * n + column, m.scales + scale,
                  m.zeros + scale, n, n - column};
}

// The pieces of one phase, and the share of this block and of this warp.
struct Job {
    Kind kind;
    int tiles, chunks;  // chunks: pieces of a tile of columns
    int first, last;    // of the block
    int begin, end;     // of the warp

    __device__ Job(Kind kind, const Sizes &z, bool is_mla) : kind(kind) {
        tiles = pieces(z.hidden, TILE);
        chunks = z.hidden / CHUNK;
        if (kind == PROJECT)
            tiles = is_mla ? pieces(z.mla_heads * (z.nope + z.rope), TILE) +
                                 pieces(z.latent + z.rope, TILE)
                           : 4 * pieces(z.kda_heads * z.dim, TILE);
        if (kind == OUT) chunks = (is_mla ? z.mla_heads * z.v_dim : z.kda_heads * z.dim) / CHUNK;
        if (kind == UP) tiles = (z.active + 1) * 2 * pieces(z.inter, TILE);
        if (kind == DOWN) chunks = (z.active + 1) * (z.inter / CHUNK);
        const int all = tiles * chunks, warp = threadIdx.x / 32;
        first = share(all, blockIdx.x, gridDim.x);
        last = share(all, blockIdx.x + 1, gridDim.x);
        if (kind == OUT) {  // pieces of one tile only
            const int each = gridDim.x / tiles, tile = least(blockIdx.x / each, tiles - 1);
            const int place = least(blockIdx.x - tile * each, each);
            first = tile * chunks + share(chunks, place, each);
            last = tile * chunks + share(chunks, least(place + 1, each), each);
        }
        begin = first + share(last - first, warp, WARPS);
        end = first + share(last - first, warp + 1, WARPS);
    }
    // Where the n-th of `of` equal shares begins.
    static __device__ int share(int all, int n, int of) { return (int)((long)all * n / of); }
};

__device__ __forceinline__ Source source(const Job &job, const Layer &w, const Sizes &z, bool is_mla,
                                         const int *chosen, int at) {
    const int tile = at / job.chunks, chunk = at % job.chunks;
    if (job.kind == PROJECT) {
        const int wide_ = is_mla ? z.mla_heads * (z.nope + z.rope) : z.kda_heads * z.dim;
        const int each = pieces(wide_, TILE), which = is_mla ? tile >= each : tile / each;
        const int n = is_mla && which ? z.latent + z.rope : wide_;
        return piece(w.in[which], 0, z.hidden, n, (tile - which * each) * TILE, chunk);
    }
    if (job.kind == OUT) return piece(w.out, 0, job.chunks * CHUNK, z.hidden, tile * TILE, chunk);
    if (job.kind == UP) {
        const int each = pieces(z.inter, TILE), expert = tile / (2 * each);
        const bool is_up = tile % (2 * each) >= each;
        const int column = tile % each * TILE;
        if (expert == z.active)
            return piece(is_up ? w.s_up : w.s_gate, 0, z.hidden, z.inter, column, chunk);
        return piece(is_up ? w.up : w.gate, chosen[expert], z.hidden, z.inter, column, chunk);
    }
    const int each = z.inter / CHUNK, expert = chunk / each;
    if (expert == z.active) return piece(w.s_down, 0, z.inter, z.hidden, tile * TILE, chunk % each);
    return piece(w.down, chosen[expert], z.inter, z.hidden, tile * TILE, chunk % each);
}

// Where the sums of a tile go, and how many columns it has.
struct Target {
    float *to;
    int columns;
};
__device__ __forceinline__ Target target(const Job &job, const Sizes &z, bool is_mla, const Sums &s,
                                         int tile) {
    if (job.kind == PROJECT) {
        const int wide_ = is_mla ? z.mla_heads * (z.nope + z.rope) : z.kda_heads * z.dim;
        const int each = pieces(wide_, TILE), which = is_mla ? tile >= each : tile / each;
        const int n = is_mla && which ? z.latent + z.rope : wide_;
        const int column = (tile - which * each) * TILE;
        return Target{s.projected + (long)which * wide_ + column, n - column};
    }
    if (job.kind == UP) {
        const int each = pieces(z.inter, TILE);
        return Target{s.up + (long)(tile / each) * z.inter + tile % each * TILE,
                      z.inter - tile % each * TILE};
    }
    return Target{(job.kind == OUT ? s.h : s.down) + tile * TILE, z.hidden - tile * TILE};
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

// One warp's way through its pieces of a job.
struct Stream {
    int asked;  // pieces whose copies have begun

    __device__ void ask(Ring &ring, const Job &job, const Layer &w, const Sizes &z, bool is_mla,
                        const int *chosen) {
        if (job.begin + asked < job.end)
            request(ring.slots[threadIdx.x / 32][asked % SLOTS],
                    source(job, w, z, is_mla, chosen, job.begin + asked));
        copies_end();
        asked++;
    }
    __device__ void start(Ring &ring, const Job &job, const Layer &w, const Sizes &z, bool is_mla,
                          const int *chosen) {
        asked = 0;
        for (int n = 0; n < SLOTS; n++) ask(ring, job, w, z, is_mla, chosen);
    }
};

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
        const unsigned ones[4] = {one.x, one.y, one.z, one.w}, twos[4] = {two.x, two.y, two.z, two.w};
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

// All pieces of this warp; they are of two tiles at most.
__device__ __forceinline__ void run(Stream &stream, Ring &ring, const Vector &vector,
                                    Reduced &reduced, const Job &job, const Layer &w, const Sizes &z,
                                    bool is_mla, const int *chosen) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int tile = job.begin / job.chunks;
    float sums[16], d[8][4], x_sum = 0;
    int kept = 0;
#pragma unroll
    for (int n = 0; n < 16; n++) sums[n] = 0;
#pragma unroll
    for (int j = 0; j < 8; j++) d[j][0] = d[j][1] = d[j][2] = d[j][3] = 0;
    for (int at = job.begin; at < job.end; at++) {
        if (!kept && at / job.chunks != tile) {
            keep(reduced, 0, sums);
            kept = 1;
        }
        copies_wait<SLOTS - 1>();
        __syncwarp();
        const Slot &slot = ring.slots[warp][(at - job.begin) % SLOTS];
        multiply(slot, vector.x[at - job.first], d);
        x_sum += vector.sum[at - job.first];
        if (at % (GROUP / CHUNK) == GROUP / CHUNK - 1 || at + 1 == job.end) {  // a group ends
            if (lane % 4 == 0) scaled(slot, x_sum, d, sums);
            x_sum = 0;
#pragma unroll
            for (int j = 0; j < 8; j++) d[j][0] = d[j][1] = d[j][2] = d[j][3] = 0;
        }
        __syncwarp();
        stream.ask(ring, job, w, z, is_mla, chosen);
    }
    keep(reduced, kept, sums);
    if (!kept) keep(reduced, 1, sums);
    if (lane == 0) reduced.tile[warp] = tile;
    copies_wait<0>();
}

// What the warps of this block have of each tile, added to its sums. `also(tile, column, sum)` by
// the thread of each column.
template <typename Also>
__device__ __forceinline__ void reduce(const Reduced &reduced, const Job &job, const Sizes &z,
                                       bool is_mla, const Sums &to, Also also) {
    __syncthreads();
    if (job.first == job.last) return;
    const int first = job.first / job.chunks, last = (job.last - 1) / job.chunks;
    for (int i = threadIdx.x; i < (last - first + 1) * TILE; i += THREADS) {
        const int tile = first + i / TILE, column = i % TILE;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < WARPS; n++)
            for (int which = 0; which < 2; which++)
                if (reduced.tile[n] + which == tile) sum += reduced.columns[which][n][column];
        const Target out = target(job, z, is_mla, to, tile);
        if (column < out.columns) add(out.to + column, sum);
        also(tile - first, column, column < out.columns ? sum : 0.0f);
    }
}

// The vector of a job, piece after piece: `values(k)`, rows k and k + 1 of the tile's matrices.
template <typename Values>
__device__ __forceinline__ void prepare(Vector &vector, const Job &job, Values values) {
    constexpr int MOST = (MOST_PIECES + WARPS - 1) / WARPS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, m = lane % 8;
    float2 x[MOST];
#pragma unroll
    for (int n = 0; n < MOST; n++) {
        const int at = job.first + warp + n * WARPS;
        if (at < job.last) x[n] = values(at % job.chunks * CHUNK + 2 * lane);
    }
#pragma unroll
    for (int n = 0; n < MOST; n++) {
        const int at = warp + n * WARPS;
        if (job.first + at >= job.last) continue;
        bf16 *to = (bf16 *)vector.x[at][lane / 8] + m % 4 * 4 + m / 4;
        const bf16 even = narrow(x[n].x), odd = narrow(x[n].y);
        const bf16 even_rest = narrow(x[n].x - wide(even)), odd_rest = narrow(x[n].y - wide(odd));
        to[0] = even;
        to[2] = odd;
        to[16] = even_rest;
        to[18] = odd_rest;
        const float sum = warp_sum(wide(even) + wide(even_rest) + wide(odd) + wide(odd_rest));
        if (lane == 0) vector.sum[at] = sum;
    }
    __syncthreads();
}
