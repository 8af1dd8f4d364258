// Stands in for a GPU, so that a CUDA C++ source can be run, slowly, where there is none.
//
// A block's threads are coroutines, one block runs after the other. What threads do together (a
// barrier, a shuffle, a product of matrices) waits for all of them: a warp's instruction for its 32
// lanes, so divergence around one hangs, and `stuck` ends the process. Asynchronous copies are done
// no sooner than a wait asks for them. Threads are resumed last to first in odd rounds, so what
// lacks a barrier is likely to come out wrong.
//
// Meant to be included before the source, which leaves its own device part out without nvcc.

#pragma once
#undef _FORTIFY_SOURCE // its longjmp takes a change of stacks for a mistake
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define __align__(bytes)
#define __launch_bounds__(...)

using std::max;
using std::min;

typedef void *Stream;
struct uint4 {
    uint32_t x, y, z, w;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
static dim3 blockIdx, blockDim, gridDim, threadIdx;
alignas(1024) static unsigned char memory[227 << 10]; // of one block

namespace on_cpu {

const int LANES = 32, STACK = 256 << 10;
const long PATIENCE = 1000; // rounds in which no thread gets on

struct Copy {
    uint32_t to;
    const void *from;
    bool is_there;
};

struct Thread {
    ucontext_t context; // to begin on a stack of its own
    jmp_buf at;         // to go on: no system call, as swapcontext makes
    bool has_begun = false;
    std::unique_ptr<char[]> stack;
    bool is_done = false;
    std::vector<std::vector<Copy>> groups = std::vector<std::vector<Copy>>(1);
};

struct Meeting {
    int arrived = 0;
    unsigned long number = 0;
    uint32_t in[LANES][12], out[LANES][4];
};

static std::vector<Thread> threads;
static std::vector<Meeting> warps;
static Meeting block;
static jmp_buf scheduler;
static int current;
static long progress;
static std::function<void()> body;

inline void stuck(const char *why) {
    fprintf(stderr, "cuda_on_cpu: %s, block %u %u\n", why, blockIdx.x, blockIdx.y);
    abort();
}

inline void yield() {
    if (!_setjmp(threads[current].at)) _longjmp(scheduler, 1);
}

inline void resume(Thread &thread) {
    if (_setjmp(scheduler)) return;
    if (thread.has_begun) _longjmp(thread.at, 1);
    thread.has_begun = true;
    setcontext(&thread.context);
}

template <class Last> void meet(Meeting &at, int count, Last last) {
    unsigned long number = at.number;
    if (++at.arrived == count) {
        last();
        at.arrived = 0;
        at.number++;
        progress++;
    } else {
        while (at.number == number) yield();
    }
}

inline int lane() { return current % LANES; }
inline Meeting &warp() { return warps[current / LANES]; }

inline void run() {
    body();
    threads[current].is_done = true;
    progress++;
    _longjmp(scheduler, 1);
}

inline void run_block(int count) {
    threads = std::vector<Thread>(count);
    warps.assign(count / LANES, Meeting());
    block = Meeting();
    memset(memory, 0xFF, sizeof memory); // NaN
    for (auto &thread : threads) {
        thread.stack = std::make_unique<char[]>(STACK);
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.get();
        thread.context.uc_stack.ss_size = STACK;
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, run, 0);
    }
    long seen = -1, idle = 0;
    for (long round = 0, left = count; left; round++) {
        left = 0;
        for (int n = 0; n < count; n++) {
            current = round % 2 ? count - 1 - n : n;
            if (threads[current].is_done) continue;
            left++;
            threadIdx = dim3(current);
            resume(threads[current]);
        }
        idle = progress == seen ? idle + 1 : 0;
        seen = progress;
        if (idle > PATIENCE) stuck("threads wait for each other");
    }
}

inline float widened16(uint32_t bits) {
    uint32_t whole = bits << 16;
    float value;
    memcpy(&value, &whole, 4);
    return value;
}

inline uint32_t rounded16(float value) {
    uint32_t whole;
    memcpy(&whole, &value, 4);
    if (std::isnan(value)) return 0x7FFF;
    return (whole + 0x7FFF + (whole >> 16 & 1)) >> 16;
}

inline float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

inline uint32_t as_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

// mma.m16n8k16 by the fragment layouts of the PTX manual, summed in float32.
inline void product(Meeting &at) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < LANES; lane++) {
        int row = lane / 4, pair = lane % 4 * 2;
        const uint32_t *in = at.in[lane];
        for (int e = 0; e < 2; e++) {
            for (int n = 0; n < 4; n++)
                a[row + n % 2 * 8][pair + n / 2 * 8 + e] = widened16(in[n] >> 16 * e & 0xFFFF);
            for (int n = 0; n < 2; n++) b[pair + n * 8 + e][row] = widened16(in[4 + n] >> 16 * e & 0xFFFF);
        }
    }
    for (int lane = 0; lane < LANES; lane++)
        for (int n = 0; n < 4; n++) {
            float sum = as_float(at.in[lane][6 + n]);
            for (int k = 0; k < 16; k++) sum += a[lane / 4 + n / 2 * 8][k] * b[k][lane % 4 * 2 + n % 2];
            at.out[lane][n] = as_bits(sum);
        }
}

inline uint32_t two_bytes(uint32_t at) {
    if (at % 2 || at + 2 > sizeof memory) stuck("a read outside of shared memory");
    return memory[at] | memory[at + 1] << 8;
}

inline void matrices(uint32_t (&r)[4], uint32_t address, bool transposed) {
    if (address % 16) stuck("a row of a matrix that is not on 16 bytes");
    Meeting &at = warp();
    at.in[lane()][0] = address;
    meet(at, LANES, [&] {
        for (int lane = 0; lane < LANES; lane++)
            for (int n = 0; n < 4; n++) {
                uint32_t both = 0;
                for (int e = 0; e < 2; e++) {
                    int row = transposed ? lane % 4 * 2 + e : lane / 4;
                    int column = transposed ? lane / 4 : lane % 4 * 2 + e;
                    both |= two_bytes(at.in[n * 8 + row][0] + column * 2) << 16 * e;
                }
                at.out[lane][n] = both;
            }
    });
    for (int n = 0; n < 4; n++) r[n] = at.out[lane()][n];
}

} // namespace on_cpu

inline void __syncthreads() { on_cpu::meet(on_cpu::block, on_cpu::threads.size(), [] {}); }

inline float __shfl_xor_sync(unsigned, float value, int mask) {
    auto &at = on_cpu::warp();
    at.in[on_cpu::lane()][0] = on_cpu::as_bits(value);
    on_cpu::meet(at, on_cpu::LANES, [&] {
        for (int lane = 0; lane < on_cpu::LANES; lane++) at.out[lane][0] = at.in[lane ^ mask][0];
    });
    return on_cpu::as_float(at.out[on_cpu::lane()][0]);
}

inline bool __any_sync(unsigned, bool value) {
    auto &at = on_cpu::warp();
    at.in[on_cpu::lane()][0] = value;
    on_cpu::meet(at, on_cpu::LANES, [&] {
        uint32_t any = 0;
        for (auto &in : at.in) any |= in[0];
        for (auto &out : at.out) out[0] = any;
    });
    return at.out[on_cpu::lane()][0];
}

inline int __clz(uint32_t bits) { return bits ? __builtin_clz(bits) : 32; }
inline void atomicOr(uint32_t *at, uint32_t bits) { *at |= bits; }

inline uint32_t address_of(const void *shared) {
    return (uint32_t)((const unsigned char *)shared - memory);
}

inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    auto &at = on_cpu::warp();
    uint32_t *in = at.in[on_cpu::lane()];
    for (int n = 0; n < 4; n++) in[n] = a[n], in[6 + n] = on_cpu::as_bits(c[n]);
    in[4] = b0, in[5] = b1;
    on_cpu::meet(at, on_cpu::LANES, [&] { on_cpu::product(at); });
    for (int n = 0; n < 4; n++) c[n] = on_cpu::as_float(at.out[on_cpu::lane()][n]);
}

inline void read_matrices(uint32_t (&r)[4], uint32_t at) { on_cpu::matrices(r, at, false); }
inline void read_transposed(uint32_t (&r)[4], uint32_t at) { on_cpu::matrices(r, at, true); }

inline void copy16(uint32_t to, const void *from, bool is_there) {
    if (to % 16 || to + 16 > sizeof memory || (uintptr_t)from % 16)
        on_cpu::stuck("a copy that is not on 16 bytes, or outside of shared memory");
    on_cpu::threads[on_cpu::current].groups.back().push_back({to, from, is_there});
}

inline void close_group() { on_cpu::threads[on_cpu::current].groups.emplace_back(); }

template <int LEFT> void wait_groups() {
    auto &groups = on_cpu::threads[on_cpu::current].groups; // the last one is still open
    while (groups.size() > LEFT + 1) {
        for (auto &copy : groups.front())
            if (copy.is_there) memcpy(memory + copy.to, copy.from, 16);
            else memset(memory + copy.to, 0, 16);
        groups.erase(groups.begin());
    }
}

inline float power_of_two(float x) { return exp2f(x); }
inline float widened(uint32_t bits) { return on_cpu::widened16(bits); }
inline uint32_t packed(float low, float high) {
    return on_cpu::rounded16(low) | on_cpu::rounded16(high) << 16;
}
inline void let_next_begin() {}
inline void wait_for_previous() {}

template <class... Wanted, class... Given>
int start(void (*kernel)(Wanted...), dim3 grid, int threads, size_t bytes, Stream, bool,
          Given... given) {
    if (bytes > sizeof memory || threads % on_cpu::LANES) return 1;
    gridDim = grid, blockDim = dim3(threads);
    on_cpu::body = [=] { kernel(given...); };
    for (unsigned y = 0; y < grid.y; y++)
        for (unsigned x = 0; x < grid.x; x++) {
            blockIdx = dim3(x, y);
            on_cpu::run_block(threads);
        }
    return 0;
}
