// The gate counts the threads within a guard. fork() closes it, waits for the count to drop, and
// opens it again in both processes.
#include "executor/device/fork_gate.h"

#include <dlfcn.h>
#include <omp.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>

namespace hetu {
namespace {

// Never destroyed, because a thread may leave a guard while the process ends.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;           // threads within a guard
  bool is_closing = false;  // a fork is waiting, so no other thread may enter
};

Gate& gate() {
  static auto* const one = new Gate;
  return *one;
}

thread_local int depth = 0;  // nesting depth of this thread's guards

// Ends OpenMP's threads, which a child would lack. Has no effect within a parallel region.
//
// The function is part of OpenMP 5.0, and thus of GCC 9's libgomp. PyTorch 2.6 ships a libgomp of
// OpenMP 4.5. If PyTorch is imported first, the loader uses that library for the whole process. The
// module must load there, too, so watch_forks() looks the function up at run time.
using EndThreads = int (*)(omp_pause_resource_t);
std::atomic<EndThreads> end_openmp_threads = nullptr;  // several threads may construct jobs

// Keeps the mutex locked during fork(), so that no other thread is within a guard. A fork from a
// callback, within a guard of its own thread, waits only for the other threads.
void before_fork() {
  Gate& g = gate();
  const int own = depth > 0 ? 1 : 0;
  std::unique_lock lock(g.mutex);
  g.is_closing = true;
  g.changed.wait(lock, [&] { return g.inside == own; });
  lock.release();
  if (const EndThreads end = end_openmp_threads; end != nullptr) end(omp_pause_soft);
}

void open_again() {
  Gate& g = gate();
  g.is_closing = false;
  g.mutex.unlock();
}

void after_fork_in_parent() {
  open_again();
  gate().changed.notify_all();
}

// The condition variable may hold waiters that exist only in the parent, so it is constructed
// again.
void after_fork_in_child() {
  new (&gate().changed) std::condition_variable;
  open_again();
}

}  // namespace

void watch_forks() {
  end_openmp_threads =
      reinterpret_cast<EndThreads>(::dlsym(RTLD_DEFAULT, "omp_pause_resource_all"));
  static const int registered =
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(registered);
}

NoFork::NoFork() {
  if (depth++ > 0) return;
  Gate& g = gate();
  std::unique_lock lock(g.mutex);
  g.changed.wait(lock, [&] { return !g.is_closing; });
  ++g.inside;
}

NoFork::~NoFork() {
  if (--depth > 0) return;
  Gate& g = gate();
  {
    const std::lock_guard lock(g.mutex);
    --g.inside;
  }
  g.changed.notify_all();
}

}  // namespace hetu
