#include "executor/job/gpu_messages.h"

#include <map>

#include "base/error.h"
#include "base/log.h"
#include "config/env.h"
#include "net/transport/gather.h"
#include "net/transport/tag_kinds.h"

namespace hetu {
namespace {

const comm::NcclLibrary& nccl() {
  // Loaded at the first use, because most jobs don't need NCCL. A failure to load throws Error.
  static const comm::NcclLibrary library = comm::load_nccl(env().nccl);
  return library;
}

NcclStatus nccl_status(const JobOptions& options, Device& device) {
  NcclStatus status{device.gpu_id(), why_by_host(options)};
  if (!status.problem.empty()) return status;
  if (device.in_host_memory()) {
    status.problem = fmt::format("device {} has no memory of its own", device.name());
    return status;
  }
  try {
    nccl();
  } catch (const Error& e) {
    status.problem = e.what();
  }
  return status;
}

// All workers evaluate the same gathered list, so that all of them choose the same route.
std::vector<NcclStatus> gather_statuses(const NcclStatus& mine, comm::Transport& transport) {
  std::vector<NcclStatus> all;
  for (const std::string& text : gather_texts(
           mine.gpu_id + "\n" + mine.problem, transport,
           {comm::make_tag(kStartTag, 0, 0, 2, 0), "the route of messages between GPUs"})) {
    const std::size_t end = text.find('\n');
    all.push_back({text.substr(0, end), text.substr(end + 1)});
  }
  return all;
}

}  // namespace

std::string why_not_nccl(const std::vector<NcclStatus>& workers) {
  std::map<std::string, std::size_t> first;  // the first worker of each GPU
  for (std::size_t w = 0; w < workers.size(); ++w) {
    if (!workers[w].problem.empty()) return fmt::format("worker {}: {}", w, workers[w].problem);
    if (workers[w].gpu_id.empty()) continue;
    const auto [other, fresh] = first.emplace(workers[w].gpu_id, w);
    if (!fresh)
      return fmt::format("workers {} and {} share one GPU, {}", other->second, w,
                         workers[w].gpu_id);
  }
  return {};
}

std::string why_by_host(const JobOptions& options) {
  if (ablation_of(options.payload).any()) return "--payload " + options.payload;
  if (options.wire != "float32") return "--wire " + options.wire;
  return {};
}

bool averages_go_direct(const Averaging& how) {
  return how.policy.method == groups::Method::PartialReduce && !how.apart;
}

std::unique_ptr<DirectLinks> open_direct(const JobOptions& options, comm::Transport& transport,
                                         Device& device, Averager* averager) {
  const bool asked = options.gpu_messages == "nccl";
  const bool may =
      asked || (options.gpu_messages == "auto" && std::string_view(device.name()) == "cuda");
  if (!may || transport.workers() == 1) return nullptr;
  const std::string why = why_not_nccl(gather_statuses(nccl_status(options, device), transport));
  if (!why.empty() && asked)
    fail(Code::Unsupported, "--gpu-messages nccl: {}; use --gpu-messages host", why);
  if (transport.worker() == 0)
    log(Level::Info, "messages and gradient sums between GPUs go {}",
        why.empty() ? "over NCCL" : "through host memory: " + why);
  if (!why.empty()) return nullptr;
  auto links = std::make_unique<DirectLinks>(transport, nccl(), device);
  if (averager != nullptr && averages_go_direct(*options.averaging))
    averager->go_direct(links->means());
  return links;
}

}  // namespace hetu
