// Every worker's text in every worker: manifests, traces, reports.
#pragma once
#include <string>
#include <vector>

#include "net/transport/collective.h"

namespace hetu {

/// The texts of all workers, in their order; every worker of the job calls it. Blocks.
std::vector<std::string> gather_texts(const std::string& mine, comm::Transport& transport,
                                      const comm::Exchange& exchange);
/// The same of a group's workers.
std::vector<std::string> gather_texts(const std::string& mine, comm::Transport& transport,
                                      const comm::Group& group, const comm::Exchange& exchange);

}  // namespace hetu
