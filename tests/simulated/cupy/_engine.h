// Runs the blocks of a kernel one after the other: their threads as plain calls, or, where they wait for each other,
// as fibers that go from barrier to barrier. Compiled after _simulated.h.
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace simulated {

char fault[256];
char* dynamic_shared;

// Pairs of bytes that are NaN as bfloat16, float32 and float64.
void garbage(char* at, unsigned long long n) {
    for (unsigned long long i = 0; i < n; ++i) at[i] = (char)(i & 1 ? 0xFF : 0xF5);
}

// A thread of a block: where it goes on, and what it waits for.
enum State { READY, AT_WARP, AT_BLOCK, LEFT };
struct Fiber {
    jmp_buf at;
    ucontext_t context;
    uint3 index;
    State state;
    int line;
    unsigned mask;
    unsigned shuffles;
    bool born;
    unsigned char slots[3][8];
};
const unsigned MAX_THREADS = 1024;
// An odd number of cache lines apart, so that the tops of the stacks do not crowd into one set of the cache.
const size_t STACK = 64 * 1024 + 5 * 64;
// They live on from launch to launch: each runs its kernel, waits, and runs the next.
static Fiber fibers[MAX_THREADS];
// The thread that runs; null while threads are plain calls.
static Fiber* running;
static jmp_buf scheduler;
static unsigned threads;
static void (*body)(void**);
static void** body_args;

__attribute__((noinline)) static void leave() {
    if (!_setjmp(running->at)) _longjmp(scheduler, 1);
}

static void entry() {
    for (;;) {
        body(body_args);
        running->state = LEFT;
        leave();
    }
}

__attribute__((noinline)) static void resume(Fiber* f) {
    running = f;
    threadIdx = f->index;
    if (_setjmp(scheduler)) return;
    if (f->born) _longjmp(f->at, 1);
    f->born = true;
    setcontext(&f->context);
}

__attribute__((noinline)) void wait_block(int line) {
    if (running == nullptr) return fail("a barrier that the text of the kernel does not show");
    running->state = AT_BLOCK;
    running->line = line;
    leave();
}

__attribute__((noinline)) void wait_warp(unsigned mask) {
    if (running == nullptr) return fail("a shuffle that the text of the kernel does not show");
    if (!(mask >> ((running - fibers) & 31) & 1)) return fail("a lane uses a mask that it is not in");
    running->state = AT_WARP;
    running->mask = mask;
    leave();
}

unsigned lane() { return running == nullptr ? 0 : (unsigned)(running - fibers) & 31u; }

// Two slots in turn make one wait enough while all lanes take part; those who are fewer wait once more.
unsigned char* shown(bool full) {
    if (running == nullptr) return nullptr;
    return running->slots[full ? ++running->shuffles & 1 : 2];
}

const unsigned char* seen(unsigned mask, unsigned from, bool full) {
    unsigned at = ((unsigned)(running - fibers) & ~31u) + from;
    if (at >= threads || !(mask >> from & 1)) return nullptr;
    // one that has left after this shuffle was there for it
    if (full ? fibers[at].shuffles < running->shuffles : fibers[at].state == LEFT) return nullptr;
    return fibers[at].slots[full ? running->shuffles & 1 : 2];
}

// The lanes of a warp that may go on: those whose mask has nobody left who does not wait for the same.
static unsigned complete(unsigned first, unsigned lanes, unsigned* waiting) {
    unsigned left = 0, ready = 0;
    *waiting = 0;
    for (unsigned i = 0; i < lanes; ++i) {
        if (fibers[first + i].state == AT_WARP) *waiting |= 1u << i;
        if (fibers[first + i].state == LEFT) left |= 1u << i;
    }
    unsigned there = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
    for (unsigned todo = *waiting; todo != 0;) {
        unsigned mask = fibers[first + (unsigned)__builtin_ctz(todo)].mask, same = 0;
        for (unsigned i = 0; i < lanes; ++i)
            if (todo >> i & 1 && fibers[first + i].mask == mask) same |= 1u << i;
        if ((mask & there & ~left & ~same) == 0) ready |= same;
        todo &= ~same;
    }
    return ready;
}

static bool run_warp(unsigned first, unsigned lanes, bool reverse) {
    for (;;) {
        for (unsigned i = 0; i < lanes; ++i) {
            Fiber* f = fibers + first + (reverse ? lanes - 1 - i : i);
            if (f->state == READY) resume(f);
        }
        unsigned waiting, ready = complete(first, lanes, &waiting);
        if (waiting == 0) return true;
        if (ready == 0) {
            fail("lanes of a warp wait for others that wait at another barrier");
            return false;
        }
        for (unsigned i = 0; i < lanes; ++i)
            if (ready >> i & 1) fibers[first + i].state = READY;
    }
}

static bool run_block(bool reverse) {
    unsigned warps = (threads + 31) / 32;
    for (unsigned t = 0; t < threads; ++t) {
        fibers[t].state = READY;
        fibers[t].shuffles = 0;
    }
    for (;;) {
        for (unsigned i = 0; i < warps; ++i) {
            unsigned first = 32 * (reverse ? warps - 1 - i : i);
            if (!run_warp(first, threads - first < 32 ? threads - first : 32, reverse)) return false;
        }
        unsigned waiting = 0;
        for (unsigned t = 0; t < threads; ++t)
            if (fibers[t].state == AT_BLOCK) ++waiting;
        if (waiting == 0) return true;
        if (waiting < threads) {
            fail("__syncthreads is reached by %u of the %u threads of a block", waiting, threads);
            return false;
        }
        for (unsigned t = 0; t < threads; ++t) {
            if (fibers[t].line != fibers[0].line) {
                fail("threads of a block wait at different __syncthreads");
                return false;
            }
            fibers[t].state = READY;
        }
    }
}

inline uint3 unravel(unsigned n, unsigned x, unsigned y) { return uint3{n % x, n / x % y, n / x / y}; }

static void ready_fibers(const Launch& l) {
    static char* stacks = (char*)mmap(nullptr, MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (unsigned t = 0; t < threads; ++t) {
        fibers[t].index = unravel(t, l.block[0], l.block[1]);
        // One that a fault stopped in its kernel starts anew.
        if (fibers[t].born && fibers[t].state == LEFT) continue;
        fibers[t].born = false;
        getcontext(&fibers[t].context);
        fibers[t].context.uc_stack.ss_sp = stacks + t * STACK;
        fibers[t].context.uc_stack.ss_size = STACK;
        makecontext(&fibers[t].context, entry, 0);
    }
}

const char* run_grid(void (*kernel)(void**), void** args, const Launch& l, char* shared, size_t shared_bytes) {
    fault[0] = 0;
    body = kernel;
    body_args = args;
    blockDim = dim3(l.block[0], l.block[1], l.block[2]);
    gridDim = dim3(l.grid[0], l.grid[1], l.grid[2]);
    threads = l.block[0] * l.block[1] * l.block[2];
    dynamic_shared = l.shared;
    if (l.fibers) ready_fibers(l);
    unsigned long long blocks = (unsigned long long)l.grid[0] * l.grid[1] * l.grid[2];
    for (unsigned long long b = 0; b < blocks && fault[0] == 0; ++b) {
        unsigned long long n = l.reverse ? blocks - 1 - b : b;
        blockIdx = uint3{(unsigned)(n % l.grid[0]), (unsigned)(n / l.grid[0] % l.grid[1]),
                         (unsigned)(n / l.grid[0] / l.grid[1])};
        garbage(shared, shared_bytes);
        garbage(l.shared, l.shared_bytes);
        if (l.fibers) {
            if (!run_block(l.reverse)) break;
            running = nullptr;
            continue;
        }
        for (unsigned t = 0; t < threads; ++t) {
            threadIdx = unravel(l.reverse ? threads - 1 - t : t, l.block[0], l.block[1]);
            kernel(args);
        }
    }
    running = nullptr;
    return fault[0] ? fault : nullptr;
}

}  // namespace simulated
