// The shared memory of a block, and the list of pieces of each phase.
#pragma once
#include "kda.cuh"
#include "machine.cuh"
#include "mla.cuh"

constexpr int SLOTS = 3;         // pieces of a warp that are on their way
constexpr int MOST_PIECES = 46;  // of a block, in one phase
constexpr int LOADS = CHUNK / 2 / 4;
constexpr int EXPERTS_EACH = (MOST_EXPERTS + WARPS - 1) / WARPS;  // rows of the router, a warp

enum Kind { PROJECT, OUT, UP, DOWN, KINDS };

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

// n / of by its inverse: exact for the few thousand that are divided here.
__device__ __forceinline__ int quotient(int n, float inverse) {
    return (int)((n + 0.5f) * inverse);
}

// The pieces of one phase, column of tiles after column, and the share of this block.
struct Job {
    int chunks;  // pieces of a tile of columns
    int each;    // tiles, for down pieces, of one matrix
    float by_chunks, by_each;
    int wide;  // columns of the first matrices
    int first, last;

    __device__ void set(int kind, const Sizes &z, bool is_mla) {
        int tiles = pieces(z.hidden, TILE);
        wide = z.hidden;
        chunks = z.hidden / CHUNK;
        each = tiles;
        if (kind == PROJECT) {
            wide = is_mla ? z.mla_heads * (z.nope + z.rope) : z.kda_heads * z.dim;
            each = pieces(wide, TILE);
            tiles = is_mla ? each + pieces(z.latent + z.rope, TILE) : 4 * each;
        } else if (kind == OUT) {
            chunks = (is_mla ? z.mla_heads * z.v_dim : z.kda_heads * z.dim) / CHUNK;
        } else if (kind == UP) {
            wide = z.inter;
            each = pieces(z.inter, TILE);
            tiles = (z.active + 1) * 2 * each;
        } else {
            each = z.inter / CHUNK;
            chunks = (z.active + 1) * each;
        }
        by_chunks = 1.0f / chunks;
        by_each = 1.0f / each;
        const int all = tiles * chunks;
        first = share(all, blockIdx.x, gridDim.x);
        last = share(all, blockIdx.x + 1, gridDim.x);
        if (kind == OUT) {  // pieces of one tile only
            const int of_tile = gridDim.x / tiles, tile = least(blockIdx.x / of_tile, tiles - 1);
            const int place = least(blockIdx.x - tile * of_tile, of_tile);
            first = tile * chunks + share(chunks, place, of_tile);
            last = tile * chunks + share(chunks, least(place + 1, of_tile), of_tile);
        }
    }
    // Where the n-th of `of` equal shares begins.
    static __device__ int share(int all, int n, int of) { return all * n / of; }
    __device__ __forceinline__ int begin(int warp) const {
        return first + (last - first) * warp / WARPS;
    }
    __device__ __forceinline__ int tile(int at) const { return quotient(at, by_chunks); }
};

struct Shared {
    union {
        Ring ring;
        Attend attend;  // while no stream runs
    };
    union {
        Delta delta;
        Absorb absorb;
        Join join;
        alignas(16) float normed[TILE];
    };
    Vector vector;
    Reduced reduced;
    alignas(16) float stream[MOST_HIDDEN];
    alignas(16) float weighted[MOST_HIDDEN];  // the stream times the weight of a norm
    bf16 attn_norm[MOST_HIDDEN], moe_norm[MOST_HIDDEN];
    float partial[WARPS];
    float beta[MOST_HEADS];
    float logits[MOST_EXPERTS];
    float share[MOST_ACTIVE + 1];
    int chosen[MOST_ACTIVE + 1];
    Job jobs[2][KINDS];  // of KDA, of MLA
    Layer layers[LAYERS];
    Sizes sizes;
    Sums sums;  // of the present layer

    __device__ Shared() {}
};

#ifdef __CUDACC__
static_assert(sizeof(Shared) <= 232448, "shared memory of an SM");
#endif

#define SHARED(name)              \
    SHARED_MEMORY(shared_memory); \
    Shared &name = *(Shared *)shared_memory
