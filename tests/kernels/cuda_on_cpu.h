// As much of CUDA as signatures.cu uses, on a CPU: the threads of a block are fibers that run in turn between barriers.
// There is one text for each block, so that a barrier of a warp and one of the block are the same.
#include <string.h>
#include <ucontext.h>

#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline

struct Index {
    unsigned x, y;
};
static Index threadIdx, blockIdx, blockDim;
static unsigned long long shared_memory[1 << 16];

static const int MOST = 128;
static ucontext_t scheduler, fibers[MOST];
static bool done[MOST];
static unsigned long long slots[MOST];
static int threads;

static void barrier() {
    unsigned self = threadIdx.x;
    swapcontext(&fibers[self], &scheduler);
    threadIdx.x = self;
}

static void __syncwarp() { barrier(); }
static void __syncthreads() { barrier(); }

template <class T>
static T from(T value, int other) {
    slots[threadIdx.x] = value;
    barrier();
    T found = (T)slots[other];
    barrier();
    return found;
}

template <class T>
static T __shfl_xor_sync(unsigned, T value, int far) {
    return from(value, threadIdx.x ^ far);
}
template <class T>
static T __shfl_up_sync(unsigned, T value, int far) {
    int self = threadIdx.x;
    return from(value, (self & 31) >= far ? self - far : self);
}
template <class T>
static T __shfl_sync(unsigned, T value, int lane) {
    return from(value, (threadIdx.x & ~31) | lane);
}

static bool __syncthreads_or(bool mine) {
    slots[threadIdx.x] = mine;
    barrier();
    bool any = false;
    for (int k = 0; k < threads; k++) any |= slots[k] != 0;
    barrier();
    return any;
}
static bool __any_sync(unsigned, bool mine) { return __syncthreads_or(mine); }

static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static void atomicMin(unsigned long long* where, unsigned long long value) {
    if (value < *where) *where = value;
}

static void (*body)();

static void run_fiber() {
    body();
    done[threadIdx.x] = true;
    barrier();
}

static void launch(int count, unsigned blocks, void (*what)()) {
    std::vector<std::vector<char>> stacks(count, std::vector<char>(1 << 16));
    body = what;
    threads = count;
    blockDim = {(unsigned)count, 1};
    for (unsigned block = 0; block < blocks; block++) {
        blockIdx = {block, 0};
        for (int k = 0; k < count; k++) {
            done[k] = false;
            getcontext(&fibers[k]);
            fibers[k].uc_stack.ss_sp = stacks[k].data();
            fibers[k].uc_stack.ss_size = stacks[k].size();
            fibers[k].uc_link = &scheduler;
            makecontext(&fibers[k], run_fiber, 0);
        }
        for (bool left = true; left;) {
            left = false;
            for (int k = 0; k < count; k++) {
                if (done[k]) continue;
                threadIdx = {(unsigned)k, 0};
                swapcontext(&scheduler, &fibers[k]);
                left |= !done[k];
            }
        }
    }
}
