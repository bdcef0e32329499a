// Checks that the plans of all workers fit into the memory of their machines, before anything large
// is allocated. Used by job.cpp and job_groups.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "net/transport/transport.h"

namespace hetu {

/// The bytes that one worker's plan needs, and the bytes that its machine has; 0 if unknown.
struct WorkerNeed {
  std::string host;
  std::int64_t needs = 0;
  std::int64_t machine = 0;
};

/// Returns one line about the first host whose workers together need more memory than it has; "" if
/// all fit. Hosts are checked in the order of worker numbers.
std::string overfull_host(const std::vector<WorkerNeed>& workers);

/// Returns the needs of all workers of the transport, in their order. Collective: each worker
/// passes the bytes of its own plan. Blocks.
std::vector<WorkerNeed> gather_needs(comm::Transport& transport, std::int64_t needs, comm::Tag tag);

/// Converts needs to text, one line per worker, and back, for exchange with workers to which there
/// is no link. needs_from throws Comm if the text is malformed.
std::string to_text(const std::vector<WorkerNeed>& workers);
std::vector<WorkerNeed> needs_from(const std::string& text);

}  // namespace hetu
