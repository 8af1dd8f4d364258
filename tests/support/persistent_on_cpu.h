// Stands in for a GPU under one cooperative kernel: all threads of all blocks live at once, as
// coroutines, so that blocks can wait for each other. Slow; small grids only.
//
// Barriers and shuffles wait for all who take part. Bulk copies are done at once, or (`lazy`) when
// somebody waits for them; what is read too early or overwritten too late comes out wrong. Threads
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
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct uint4 {
    unsigned x, y, z, w;
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
static Index threadIdx, blockIdx, blockDim;

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
    memory.assign(blocks, nullptr);
    for (unsigned char *&of : memory) {
        of = (unsigned char *)aligned_alloc(128, (shared + 127) / 128 * 128);
        memset(of, 0xff, shared);
    }
}
static void launch(unsigned blocks, unsigned each, size_t shared, std::function<void()> body) {
    kernel = body;
    blockDim.x = each;
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
