// Computation and fork(). A process that loads a model and then forks (gunicorn --preload) may
// compute in its children. Two things make that work, both done by fork handlers of this file:
// fork() waits until no guarded call runs, so that the child's copy of every Predictor is whole;
// and the forking thread gives up its OpenMP team, so that parent and child each start a new one.
// Without that, the child would wait for team members that exist only in the parent.
#pragma once
#include <sys/types.h>
#include <unistd.h>

namespace hetu {

/// Registers the fork handlers, once per process. Called by everything that computes.
void watch_forks();

/// Scope guard of a call that fork() must not cut in half. Guards of one thread may nest. A fork()
/// of another thread waits for the end of the outermost one.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

/// The process in which an object was made.
class OwnProcess {
 public:
  OwnProcess() : id_(getpid()) {}
  pid_t id() const { return id_; }
  /// True in a child that was forked after the object was made.
  bool is_forked() const { return getpid() != id_; }

 private:
  pid_t id_;
};

}  // namespace hetu
