// Chooses the route of messages and gradient sums between a job's GPUs: directly between their
// memories by NCCL, or through host memory. The choice is made when the job begins, and is the same
// on all workers.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "executor/device/device.h"
#include "executor/direct/direct_links.h"
#include "executor/job/job_options.h"
#include "net/transport/transport.h"

namespace hetu {

/// A worker's ability to use NCCL.
struct NcclStatus {
  std::string gpu_id;   ///< Device::gpu_id(); "" if the device is not shared with other workers
  std::string problem;  ///< why the worker can't use NCCL; "" if it can
};

/// Returns the reason why these workers cannot use NCCL with each other, naming the workers; "" if
/// they can. NCCL rejects two workers on one GPU.
std::string why_not_nccl(const std::vector<NcclStatus>& workers);

/// Returns the option that requires host memory regardless of the devices; "" if there is none.
std::string why_by_host(const JobOptions& options);

/// Returns true if averages of weights also go directly between GPUs where messages do. This holds
/// for partial reduce unless pipelines may be lost one by one.
bool averages_go_direct(const Averaging& how);

/// Returns the direct links that --gpu-messages asks for, or null if data goes through host memory.
/// Logs the choice on worker 0. The averager, if not null, uses the links where
/// averages_go_direct(). Collective: every worker of the transport calls it. Throws Unsupported if
/// nccl is requested but not possible.
std::unique_ptr<DirectLinks> open_direct(const JobOptions& options, comm::Transport& transport,
                                         Device& device, Averager* averager);

}  // namespace hetu
