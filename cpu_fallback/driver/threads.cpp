#include "driver/threads.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "driver/float_mode.hpp"

namespace gpuqs {
namespace {

using ShareOut = void (*)(int64_t, int, Piece, void*);
ShareOut of_other_module = nullptr;

// Waking a sleeping thread takes 40 to 80 us, so helpers first spin for about as long for the next job. Callers spin for the end of
// theirs, longer than most last pieces take: a document block of 1,000 trees takes 200 us.
constexpr std::chrono::microseconds kHelperLooks{50}, kCallerLooks{1000};

const int kMaxThreads = 4 * static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));

struct Job {
    const Piece piece;
    void* const work;
    const int64_t n;
    int n_joined, most;  // threads, including the caller
    std::atomic<int64_t> next{0}, n_done{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error{};  // of the piece that failed first
    Job* after = nullptr;
};

struct Pool {
    std::mutex lock;
    std::condition_variable called, done;
    Job* jobs = nullptr;  // those that helpers may join
    std::atomic<uint32_t> n_jobs{0};              // so far
    int n_wanted = 0;                             // helpers that all those jobs want
    int n_helpers = 0, n_idle = 0, n_called = 0;  // idle: those that nobody has called
    int n_looking = 0;                            // helpers that spin for a job
};

// Never destroyed: helpers sleep in it until the process ends.
Pool* const pool = new Pool;

// A forked child has none of its parent's helpers, and the parent's other threads may have been in the middle of changing the pool.
const bool survives_fork = pthread_atfork(nullptr, nullptr, [] { new (pool) Pool; }) == 0;

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spins until ready() holds, for at most `most`. Other threads can have the processor meanwhile.
template <class Ready> void look_out(std::chrono::microseconds most, Ready ready) {
    const auto end = std::chrono::steady_clock::now() + most;
    do {
        for (int i = 0; i < 32; i++) {
            if (ready()) return;
            relax();
        }
        sched_yield();
    } while (std::chrono::steady_clock::now() < end);
}

// The processors that this thread may use; 1 if unknown.
int n_processors() {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return 1;
}

void run(Job& job, int thread, int64_t p) {
    if (job.failed.load(std::memory_order_relaxed)) return;
    try {
        job.piece(job.work, thread, p);
    } catch (...) {
        if (!job.failed.exchange(true)) job.error = std::current_exception();
    }
}

// Runs piece p, then others. The next piece is taken before this one counts as done: once all are done, the job may be gone.
void run_from(Job& job, int thread, int64_t p) {
    const int64_t n = job.n;
    while (p < n) {
        run(job, thread, p);
        p = job.next.fetch_add(1, std::memory_order_relaxed);
        if (job.n_done.fetch_add(1, std::memory_order_acq_rel) + 1 == n && thread != 0) {
            pool->lock.lock();  // the caller has either not checked yet, or sleeps already
            pool->lock.unlock();
            pool->done.notify_all();
        }
    }
}

void help() {
    const DefaultFloatMode mode;  // a thread inherits the mode of the thread that starts it
    // Allocates what a thread needs to throw: if a piece throws because memory has run out, allocating that would end the process.
    static_cast<void>(std::uncaught_exceptions());
    bool worked = false;  // since it last spun for a job
    std::unique_lock<std::mutex> lock(pool->lock);
    for (;;) {
        Job* job = pool->jobs;
        int64_t p = 0;
        // A helper joins a job only with a piece of it to run: the caller waits only for pieces that were begun.
        while (job && (job->n_joined == job->most || (p = job->next.fetch_add(1, std::memory_order_relaxed)) >= job->n))
            job = job->after;
        if (job) {
            const int thread = job->n_joined++;
            lock.unlock();
            run_from(*job, thread, p);
            lock.lock();
            worked = true;
        } else if (std::exchange(worked, false) && pool->n_looking < n_processors() - 1) {
            const uint32_t n_jobs = pool->n_jobs;
            pool->n_looking++;
            lock.unlock();
            look_out(kHelperLooks, [n_jobs] { return pool->n_jobs.load(std::memory_order_relaxed) != n_jobs; });
            lock.lock();
            pool->n_looking--;
        } else {
            pool->n_idle++;
            pool->called.wait(lock, [] { return pool->n_called > 0; });
            pool->n_called--;
        }
    }
}

// Starts one more thread; false if the system refuses. The thread blocks all signals except those of faults: the others are for the
// program's own threads.
bool start_helper() {
    sigset_t none, before;
    sigfillset(&none);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP}) sigdelset(&none, fault);
    pthread_sigmask(SIG_SETMASK, &none, &before);
    bool started = true;
    try {
        std::thread(help).detach();
    } catch (const std::exception&) {
        started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

void call_helpers(Job& job) {
    int n_called, n_new;
    {
        const std::lock_guard<std::mutex> lock(pool->lock);
        job.after = pool->jobs;
        pool->jobs = &job;
        pool->n_jobs++;
        pool->n_wanted += job.most - 1;
        n_called = std::min(job.most - 1, pool->n_idle);
        n_new = std::max(std::min(pool->n_wanted, kMaxThreads - 1) - pool->n_helpers, 0);
        pool->n_idle -= n_called;
        pool->n_called += n_called;
        pool->n_helpers += n_new;
    }
    for (int i = 0; i < n_called; i++) pool->called.notify_one();
    while (n_new > 0 && start_helper()) n_new--;
    if (n_new > 0) {
        const std::lock_guard<std::mutex> lock(pool->lock);
        pool->n_helpers -= n_new;
    }
}

void wait_for_helpers(Job& job) {
    const auto all_done = [&] { return job.n_done.load(std::memory_order_acquire) == job.n; };
    look_out(kCallerLooks, all_done);
    std::unique_lock<std::mutex> lock(pool->lock);
    Job** at = &pool->jobs;
    while (*at != &job) at = &(*at)->after;
    *at = job.after;
    pool->n_wanted -= job.most - 1;
    pool->done.wait(lock, all_done);
}

}  // namespace

void* address_of_share_out() { return reinterpret_cast<void*>(static_cast<ShareOut>(share_out)); }
void share_out_by(void* other) { of_other_module = reinterpret_cast<ShareOut>(other); }

void share_out(int64_t n, int n_threads, Piece piece, void* work) {
    if (of_other_module) return of_other_module(n, n_threads, piece, work);
    const int most = static_cast<int>(std::min<int64_t>({n, n_threads, kMaxThreads}));
    if (most <= 1 || !survives_fork) {
        for (int64_t p = 0; p < n; p++) piece(work, 0, p);
        return;
    }
    Job job = {piece, work, n, 1, most};
    call_helpers(job);
    run_from(job, 0, job.next.fetch_add(1, std::memory_order_relaxed));
    wait_for_helpers(job);
    if (job.error) std::rethrow_exception(job.error);
}

}  // namespace gpuqs

int gpuqs_most_threads() { return gpuqs::kMaxThreads; }
