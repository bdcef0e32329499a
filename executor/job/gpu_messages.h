// How messages and gradient sums of a job's GPUs go: straight between their memories by NCCL, or
// through host memory; chosen when the job begins, alike on all workers.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "executor/device/device.h"
#include "executor/direct/direct_links.h"
#include "executor/job/train_options.h"
#include "net/transport/transport.h"

namespace hetu {

/// What a worker has for NCCL.
struct NcclSeat {
  std::string card;     ///< Device::card(); "": shared with nobody
  std::string problem;  ///< why it has none; else ""
};

/// Why these workers cannot use NCCL with each other, naming them; "" if they can. NCCL refuses two
/// workers on one card.
std::string why_not_nccl(const std::vector<NcclSeat>& workers);

/// What of the options goes through host memory whatever the devices are; "" if nothing does.
std::string why_by_host(const TrainerOptions& options);

/// Whether means of weights go straight, too, where messages do: of partial reduce whose pipelines
/// live and die together.
bool averages_go_direct(const Averaging& how);

/// The links that --gpu-messages asks for, which it logs on worker 0; null: through host memory.
/// The averager, if there is one, averages by them where averages_go_direct(). Every worker of the
/// transport calls it. Throws Unsupported where nccl is asked for and cannot be.
std::unique_ptr<DirectLinks> open_direct(const TrainerOptions& options, comm::Transport& transport,
                                         Device& device, Averager* averager);

}  // namespace hetu
