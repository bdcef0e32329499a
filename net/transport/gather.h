// Gathers a text from every worker on every worker: manifests, traces, reports.
#pragma once
#include <string>
#include <vector>

#include "net/transport/collective.h"

namespace hetu {

/// Returns the texts of all workers in worker order. Collective: every worker of the job calls it.
/// Blocks.
std::vector<std::string> gather_texts(const std::string& mine, comm::Transport& transport,
                                      const comm::Exchange& exchange);
/// As above, for the workers of a group, in the order of the group.
std::vector<std::string> gather_texts(const std::string& mine, comm::Transport& transport,
                                      const comm::Group& group, const comm::Exchange& exchange);

}  // namespace hetu
