// The coordinator's state of one training: its slots, and the state of each. Read only by
// coordinator.cpp and coordinator_life.cpp.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/group_log.h"

namespace hetu::ps {

/// The slot of one worker: one stage of one pipeline.
struct Coordinator::WorkerSlot {
  int pipeline = 0;
  int stage = 0;
  int worker = 0;
  Peer peer = 0;
  bool taken = false;
  bool left = false;
  bool open = false;  ///< an unanswered request, or an early one
  std::int64_t heard_us = 0;
  std::string endpoint;
  std::optional<Arrive> arrived;  ///< has arrived at the rendezvous
  std::int64_t asked = 0;         ///< newest update for which it has requested a group
  std::int64_t averaged = 0;      ///< newest update that is known to have reached another pipeline
  /// members of its last answer, until its average is known to be complete
  std::vector<int> group;
  std::vector<std::int64_t> group_updates;
  std::optional<RunStart> next;       ///< has begun a run that other workers have not begun
  std::optional<std::int64_t> early;  ///< its request of that run

  /// Returns the worker's name for error texts.
  std::string describe() const {
    return fmt::format("worker {} (pipeline {}, stage {})", worker, pipeline, stage);
  }
};

/// The state of a training. The first Hello creates it.
struct Coordinator::Job {
  explicit Job(const ClientOptions& agreed)
      : options(agreed),
        policy(agreed.policy),
        slots(static_cast<std::size_t>(agreed.policy.stages) * agreed.policy.pipelines),
        introduced(agreed.policy.stages, false),
        lost(agreed.policy.pipelines, false),
        lost_by(agreed.policy.pipelines),
        done(agreed.policy.pipelines, 0) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      slots[i].pipeline = static_cast<int>(i) / agreed.policy.stages;
      slots[i].stage = static_cast<int>(i) % agreed.policy.stages;
    }
    log.open(agreed.group_log);
  }
  /// Returns the slot of a worker.
  WorkerSlot& slot(int pipeline, int stage) {
    return slots[static_cast<std::size_t>(pipeline) * options.policy.stages + stage];
  }

  ClientOptions options;
  groups::Policy policy;
  std::vector<WorkerSlot> slots;
  std::vector<bool> introduced;      ///< per stage
  std::vector<bool> lost;            ///< per pipeline
  std::vector<std::string> lost_by;  ///< per pipeline: the reason
  std::vector<std::int64_t> done;    ///< per pipeline: updates before the run
  bool running = false;
  bool stops_soon = false;  ///< applies to the next run
  std::int64_t first_begin_us = -1;
  GroupLog log;
};

}  // namespace hetu::ps
