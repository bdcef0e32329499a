// Whether the plans of all workers fit into the machines they run on: asked before anything large
// is allocated. Read by trainer.cpp and train_groups.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "net/transport/transport.h"

namespace hetu {

/// What one worker's plan needs, in bytes, on a machine that has so many; 0: unknown.
struct WorkerNeed {
  std::string host;
  std::int64_t needs = 0;
  std::int64_t machine = 0;
};

/// The first host whose workers together need more than it has, in one line; "" if all fit. In the
/// order of the workers' numbers.
std::string overfull_host(const std::vector<WorkerNeed>& workers);

/// What the workers of the transport need, in their order. Each calls it with its plan's bytes.
/// Blocks.
std::vector<WorkerNeed> gather_needs(comm::Transport& transport, std::int64_t needs, comm::Tag tag);

/// A line per worker, for those to whom there is no link, and back. needs_from throws Comm unless
/// it is such a text.
std::string to_text(const std::vector<WorkerNeed>& workers);
std::vector<WorkerNeed> needs_from(const std::string& text);

}  // namespace hetu
