// A keyed digest of one call's outputs, 128 bits, in one launch.
//
// Each thread is a lane: it absorbs 16-byte pieces with SipHash's round (Aumasson and Bernstein,
// "SipHash: a fast short-input PRF", 2012; one round a word, three to finish, 256-bit state). Lanes
// are hashed four to one up a tree, in the block and then over the blocks. The key is fresh in each
// call. Not linear in the outputs: an answer cannot be fitted afterwards by editing low bits.
//
// LEAVES: at most 24 contiguous arrays. `done` lies in host memory that the referee polls.

typedef unsigned long long u64;
struct State { u64 a, b, c, d; };
struct Leaf { const unsigned char* at; u64 bytes; };
struct Leaves { Leaf leaf[24]; int count; };

__device__ __forceinline__ u64 turn(u64 x, int by) { return (x << by) | (x >> (64 - by)); }

__device__ __forceinline__ void stir(State& s) {
    s.a += s.b; s.c += s.d; s.b = turn(s.b, 13); s.d = turn(s.d, 16);
    s.b ^= s.a; s.d ^= s.c; s.a = turn(s.a, 32);
    s.c += s.b; s.a += s.d; s.b = turn(s.b, 17); s.d = turn(s.d, 21);
    s.b ^= s.c; s.d ^= s.a; s.c = turn(s.c, 32);
}

__device__ __forceinline__ State keyed(u64 k0, u64 k1, u64 tag) {
    State s = {k0 ^ 0x736f6d6570736575ull, k1 ^ 0x646f72616e646f6dull,
               k0 ^ 0x6c7967656e657261ull, k1 ^ 0x7465646279746573ull ^ tag};
    return s;
}

__device__ __forceinline__ void absorb(State& s, u64 word) { s.d ^= word; stir(s); s.a ^= word; }

__device__ __forceinline__ ulonglong2 finish(State s) {
    s.c ^= 0xee; stir(s); stir(s); stir(s);
    return make_ulonglong2(s.a ^ s.b, s.c ^ s.d);
}

// Four to one until one is left; `count` is a power of four, at most 256.
__device__ ulonglong2 tree(ulonglong2* nodes, int count, u64 k0, u64 k1, u64 tag) {
    for (int left = count / 4; left >= 1; left /= 4, ++tag) {
        ulonglong2 made;
        if (threadIdx.x < left) {
            State s = keyed(k0, k1, tag);
            for (int i = 0; i < 4; ++i) {
                ulonglong2 child = nodes[threadIdx.x * 4 + i];
                absorb(s, child.x); absorb(s, child.y);
            }
            made = finish(s);
        }
        __syncthreads();
        if (threadIdx.x < left) nodes[threadIdx.x] = made;
        __syncthreads();
    }
    return nodes[0];
}

__device__ __forceinline__ void piece(State& s, const Leaf& leaf, u64 at) {
    if (at + 16 <= leaf.bytes && ((u64)leaf.at & 15) == 0) {
        ulonglong2 w = *(const ulonglong2*)(leaf.at + at);
        absorb(s, w.x); absorb(s, w.y);
    } else {
        u64 w[2] = {0, 0};
        for (u64 i = at; i < leaf.bytes && i < at + 16; ++i)
            w[(i - at) >> 3] |= (u64)leaf.at[i] << (8 * ((i - at) & 7));
        absorb(s, w[0]); absorb(s, w[1]);
    }
}

// blocks: at most 256, of 256 threads. `parts` holds a digest a block, `arrived` is 0 in between.
extern "C" __global__ void digest(Leaves leaves, u64 k0, u64 k1, ulonglong2* parts,
                                  unsigned* arrived, volatile u64* done, u64 number) {
    __shared__ ulonglong2 nodes[256];
    __shared__ bool last;
    const u64 lane = blockIdx.x * 256ull + threadIdx.x, step = gridDim.x * 256ull * 16;
    State s = keyed(k0, k1, lane);
    for (int i = 0; i < leaves.count; ++i) {
        const Leaf leaf = leaves.leaf[i];
        u64 at = lane * 16;
        if (((u64)leaf.at & 15) == 0) {
            for (; at + 3 * step + 16 <= leaf.bytes; at += 4 * step) {  // four loads on their way
                ulonglong2 w[4];
                for (int n = 0; n < 4; ++n) w[n] = *(const ulonglong2*)(leaf.at + at + n * step);
                for (int n = 0; n < 4; ++n) { absorb(s, w[n].x); absorb(s, w[n].y); }
            }
        }
        for (; at < leaf.bytes; at += step) piece(s, leaf, at);
        absorb(s, leaf.bytes);
    }
    nodes[threadIdx.x] = finish(s);
    __syncthreads();
    ulonglong2 root = tree(nodes, 256, k0, k1, 1ull << 32);
    if (gridDim.x > 1) {
        if (threadIdx.x == 0) {
            parts[blockIdx.x] = root;
            __threadfence();
            last = atomicAdd(arrived, 1) == gridDim.x - 1;
        }
        __syncthreads();
        if (!last) return;
        __threadfence();
        ulonglong2 none = make_ulonglong2(0, 0);
        nodes[threadIdx.x] = threadIdx.x < gridDim.x ? __ldcg(parts + threadIdx.x) : none;
        __syncthreads();
        root = tree(nodes, 256, k0, k1, 2ull << 32);
    }
    if (threadIdx.x == 0) {
        *arrived = 0;
        done[1] = root.x;
        done[2] = root.y;
        __threadfence_system();
        done[0] = number;
    }
}
