// Stands in for a GPU under one cooperative kernel: all threads of all blocks live at once, as
// coroutines, so that blocks can wait for each other. Slow; small grids only.
//
// Barriers and shuffles wait for all who take part. Bulk copies are done at once, or (`lazy`) when
// somebody waits for them, and so are the asynchronous copies of a thread; what is read too early or
// overwritten too late comes out wrong. A product of tensor cores is one meeting of a warp. Threads
// are resumed first to last and last to first by turns, and shared memory begins as NaN.

#pragma once
#undef _FORTIFY_SOURCE // its longjmp takes a change of stacks for a mistake
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <vector>

#define __global__
#define ON_BOTH inline
#define NOT_INLINE inline
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct uint4 {
    unsigned x, y, z, w;
};
struct uint2 {
    unsigned x, y;
};
struct float4 {
    float x, y, z, w;
};
struct float2 {
    float x, y;
};
struct Index {
    unsigned x;
};
static Index threadIdx, blockIdx, blockDim, gridDim;

namespace on_cpu {

const long PATIENCE = 3000000; // rounds until all have ended
const size_t STACK = 16384;

struct Copy {
    void *to;
    const void *from;
    unsigned bytes;
    unsigned long long *bar;
};
struct Meeting {
    unsigned count, turn;
};
struct Fragment { // what one lane brings to a product
    unsigned a[4], b[2];
};
struct Thread {
    ucontext_t begin;
    jmp_buf at;
    bool has_begun, has_ended;
};

static std::vector<Thread> threads;
static std::vector<Meeting> of_block, of_warp;
static std::vector<float> exchanged;
static std::vector<unsigned char *> memory;
static std::vector<std::vector<Copy>> pending;
static std::vector<Fragment> fragments;
static std::vector<std::vector<std::vector<Copy>>> groups; // of each thread; the last one is open
static std::function<void()> kernel;
static jmp_buf scheduler;
static Thread *current;
static bool lazy;

static void stuck(const char *why) {
    fprintf(stderr, "persistent_on_cpu: %s, block %u thread %u\n", why, blockIdx.x, threadIdx.x);
    exit(3);
}
static void pause() {
    if (!setjmp(current->at)) longjmp(scheduler, 1);
}
static void meet(Meeting &meeting, unsigned members) {
    unsigned turn = meeting.turn;
    if (++meeting.count == members) {
        meeting.count = 0;
        meeting.turn++;
    } else {
        while (meeting.turn == turn) pause();
    }
}
static unsigned warp() { return (blockIdx.x * blockDim.x + threadIdx.x) / 32; }

// An mbarrier: phases that are over, then the bytes that the present one lacks.
static void arrive(const Copy &copy) {
    unsigned *state = (unsigned *)copy.bar;
    memcpy(copy.to, copy.from, copy.bytes);
    if (state[1] < copy.bytes) stuck("more bytes than were expected");
    state[1] -= copy.bytes;
    if (!state[1]) state[0]++;
}
static void enter() {
    kernel();
    current->has_ended = true;
    longjmp(scheduler, 1);
}
static void resume(Thread &thread) {
    current = &thread;
    if (setjmp(scheduler)) return;
    if (thread.has_begun) longjmp(thread.at, 1);
    thread.has_begun = true;
    setcontext(&thread.begin);
}
static void prepare(unsigned blocks, size_t shared) {
    of_block.assign(blocks, {});
    of_warp.assign(threads.size() / 32, {});
    exchanged.assign(threads.size() * 2, 0);
    pending.assign(blocks, {});
    fragments.assign(threads.size() * 2, {});
    groups.assign(threads.size(), {{}});
    memory.assign(blocks, nullptr);
    for (unsigned char *&of : memory) {
        of = (unsigned char *)aligned_alloc(128, (shared + 127) / 128 * 128);
        memset(of, 0xff, shared);
    }
}
static void launch(unsigned blocks, unsigned each, size_t shared, std::function<void()> body) {
    kernel = body;
    blockDim.x = each;
    gridDim.x = blocks;
    threads.assign(blocks * each, {});
    prepare(blocks, shared);
    char *stacks = (char *)malloc(STACK * threads.size());
    for (size_t n = 0; n < threads.size(); n++) {
        ucontext_t &begin = threads[n].begin;
        getcontext(&begin);
        begin.uc_stack.ss_sp = stacks + n * STACK;
        begin.uc_stack.ss_size = STACK;
        makecontext(&begin, enter, 0);
    }
    size_t left = threads.size();
    for (volatile long round = 0; left; round = round + 1) {
        if (round > PATIENCE) stuck("nobody gets on");
        left = 0;
        for (volatile size_t n = 0; n < threads.size(); n = n + 1) {
            size_t one = round % 2 ? n : threads.size() - 1 - n;
            if (threads[one].has_ended) continue;
            left++;
            blockIdx.x = one / each;
            threadIdx.x = one % each;
            resume(threads[one]);
        }
    }
    free(stacks);
    for (unsigned char *of : memory) free(of);
    for (auto &copies : pending)
        if (!copies.empty()) stuck("a copy that nobody waited for");
    for (auto &of_thread : groups)
        for (auto &copies : of_thread)
            if (!copies.empty()) stuck("a thread's copy that it did not wait for");
}
static void aligned(uintptr_t bits) {
    if (bits & 15) stuck("a bulk copy that is not aligned");
}

} // namespace on_cpu

#define SHARED_MEMORY(name) unsigned char *name = on_cpu::memory[blockIdx.x]

template <typename T> T __ldcg(const T *from) { return *from; }
static float from_bits(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
static unsigned to_bits(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}
static float power_of_two(float x) { return exp2f(x); }
static float rsqrtf(float x) { return 1 / sqrtf(x); }
static void __syncthreads() { on_cpu::meet(on_cpu::of_block[blockIdx.x], blockDim.x); }
static void __syncwarp() { on_cpu::meet(on_cpu::of_warp[on_cpu::warp()], 32); }
static float __shfl_xor_sync(unsigned, float value, int by) {
    on_cpu::Meeting &meeting = on_cpu::of_warp[on_cpu::warp()];
    float *held = &on_cpu::exchanged[on_cpu::warp() * 64 + meeting.turn % 2 * 32];
    held[threadIdx.x % 32] = value;
    on_cpu::meet(meeting, 32);
    return held[(threadIdx.x % 32) ^ by];
}
static float bfloat(unsigned bits, int half) {
    return from_bits(half ? bits & 0xffff0000u : bits << 16);
}
static void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    on_cpu::Meeting &meeting = on_cpu::of_warp[on_cpu::warp()];
    on_cpu::Fragment *held = &on_cpu::fragments[on_cpu::warp() * 64 + meeting.turn % 2 * 32];
    unsigned lane = threadIdx.x % 32;
    memcpy(held[lane].a, a, sizeof a);
    memcpy(held[lane].b, b, sizeof b);
    on_cpu::meet(meeting, 32);
    for (int n = 0; n < 4; n++) { // row lane / 4 (+ 8), column 2 (lane % 4) (+ 1)
        unsigned row = lane / 4, column = lane % 4 * 2 + n % 2;
        for (int k = 0; k < 16; k++) {
            unsigned left = held[row * 4 + k % 8 / 2].a[k / 8 * 2 + n / 2];
            unsigned right = held[column * 4 + k % 8 / 2].b[k / 8];
            d[n] += bfloat(left, k % 2) * bfloat(right, k % 2);
        }
    }
}
static void copied(void *to, const void *from, unsigned bytes, bool valid) {
    if (((uintptr_t)to | (uintptr_t)from) % bytes) on_cpu::stuck("a copy that is not aligned");
    static const char zeros[16] = {};
    on_cpu::Copy copy{to, valid ? from : zeros, bytes, nullptr};
    if (on_cpu::lazy)
        on_cpu::groups[on_cpu::current - &on_cpu::threads[0]].back().push_back(copy);
    else
        memcpy(to, copy.from, bytes);
}
static void copy16(void *to, const void *from, bool valid) { copied(to, from, 16, valid); }
static void copy8(void *to, const void *from, bool valid) { copied(to, from, 8, valid); }
static void copies_end() { on_cpu::groups[on_cpu::current - &on_cpu::threads[0]].push_back({}); }
template <int LEFT> void copies_wait() { // for all groups that have ended but the last LEFT
    auto &mine = on_cpu::groups[on_cpu::current - &on_cpu::threads[0]];
    while (mine.size() > LEFT + 1) {
        for (const on_cpu::Copy &copy : mine.front()) memcpy(copy.to, copy.from, copy.bytes);
        mine.erase(mine.begin());
    }
}
static void ask_into_l2(const void *from) {
    if (*(const volatile char *)from) return; // it must be there
}
static unsigned bytes_of(unsigned a, unsigned b, unsigned which) {
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned found = 0;
    for (int n = 0; n < 4; n++) found |= (both >> ((which >> 4 * n & 7) * 8) & 255) << 8 * n;
    return found;
}
static float2 cosine_and_sine(float half_turns) {
    return {(float)cos(half_turns * 3.141592653589793), (float)sin(half_turns * 3.141592653589793)};
}
static void add(float *to, float value) { *to += value; }
static unsigned add_and_tell(unsigned *counter) { return (*counter)++; }
static void relax() { on_cpu::pause(); }
static void add_release(unsigned *counter) { ++*counter; }
static unsigned load_acquire(const unsigned *counter) {
    return *(const volatile unsigned *)counter;
}
static void barrier_init(unsigned long long *bar) { *bar = 0; }
static void barriers_are_there() {}
static void expect(unsigned long long *bar, unsigned bytes) {
    unsigned *state = (unsigned *)bar;
    if (state[1]) on_cpu::stuck("a phase that is not over yet");
    state[1] = bytes;
}
static void bulk_load(void *to, const void *from, unsigned bytes, unsigned long long *bar) {
    on_cpu::aligned((uintptr_t)to | (uintptr_t)from | bytes);
    on_cpu::Copy copy{to, from, bytes, bar};
    if (on_cpu::lazy)
        on_cpu::pending[blockIdx.x].push_back(copy);
    else
        on_cpu::arrive(copy);
}
static void wait_full(unsigned long long *bar, unsigned parity) {
    const unsigned *state = (const unsigned *)bar;
    while (state[0] % 2 == parity) {
        std::vector<on_cpu::Copy> later;
        for (const on_cpu::Copy &copy : on_cpu::pending[blockIdx.x])
            if (copy.bar == bar)
                on_cpu::arrive(copy);
            else
                later.push_back(copy);
        on_cpu::pending[blockIdx.x] = later;
        if (state[0] % 2 == parity) on_cpu::pause();
    }
}
static void bulk_prefetch(const void *from, unsigned bytes) {
    on_cpu::aligned((uintptr_t)from | bytes);
    if (((const volatile char *)from)[bytes - 1]) return; // it must be there
}
