// Support for fork() in a process that computes. A process may load a model and then compute in
// forked children (gunicorn --preload). Fork handlers in fork_gate.cpp do two things. First, fork()
// waits until no guarded call runs, so that the child's copy of every Predictor is consistent.
// Second, the forking thread ends its OpenMP team, so that parent and child each start a new one.
// Otherwise the child would wait for team members that exist only in the parent.
#pragma once
#include <sys/types.h>
#include <unistd.h>

namespace hetu {

/// Registers the fork handlers, once per process. Every object that computes calls it.
void watch_forks();

/// Scope guard for a call that fork() must not interrupt. Guards of one thread may nest. A fork()
/// on another thread waits until the outermost guard ends.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

/// The process in which an object was created.
class OwnProcess {
 public:
  OwnProcess() : id_(getpid()) {}
  pid_t id() const { return id_; }
  /// Returns true in a child that was forked after the object was created.
  bool is_forked() const { return getpid() != id_; }

 private:
  pid_t id_;
};

}  // namespace hetu
