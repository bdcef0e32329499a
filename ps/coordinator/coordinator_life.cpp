// Timeouts and deaths: heartbeats, dead workers, the loss of a pipeline, and the end of a training,
// after which the next one may begin.
#include <algorithm>

#include "base/log.h"
#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/coordinator_impl.h"

namespace hetu::ps {

namespace {
constexpr std::int64_t kSecond_us = 1000000;
constexpr std::int64_t kCheck_us = kSecond_us;  // time between checks for silent workers
constexpr std::int64_t kStopped_us =
    2 * kSecond_us;  // a longer gap means that this process itself was stopped
}  // namespace

void Coordinator::tick(std::int64_t now_us) {
  if (!job_ || !failure_.empty()) return;
  if (job_->running) {
    try {
      job_->policy.tick(now_us);
    } catch (const Error& error) {
      fail_all(error.code(), error.what());
      return;
    }
    hand_out();
  }
  if (now_us - looked_us_ >= kCheck_us) check_heartbeats(now_us);
}

std::optional<std::int64_t> Coordinator::wakes_at_us() const {
  if (!job_ || !failure_.empty()) return std::nullopt;
  const std::int64_t check = looked_us_ + kCheck_us;
  const std::optional<std::int64_t> policy =
      job_->running ? job_->policy.wakes_at_us() : std::nullopt;
  return policy ? std::min(*policy, check) : check;
}

void Coordinator::check_heartbeats(std::int64_t now_us) {
  const bool stood_still = now_us - looked_us_ > kStopped_us;
  looked_us_ = now_us;
  if (options_.dead_after_s <= 0) return;
  const auto limit_us = static_cast<std::int64_t>(options_.dead_after_s * kSecond_us);
  std::vector<int> silent;  // a death may end the job and destroy its slots
  for (WorkerSlot& slot : job_->slots) {
    if (!slot.taken || slot.left || job_->lost[slot.pipeline]) continue;
    if (stood_still) slot.heard_us = now_us;
    if (now_us - slot.heard_us > limit_us) silent.push_back(slot.worker);
  }
  for (const int worker : silent) {
    worker_died(worker, fmt::format("is silent for {:g} s", options_.dead_after_s), now_us);
  }
}

void Coordinator::worker_died(int worker, const std::string& reason, std::int64_t now_us) {
  if (!failure_.empty()) return;
  // heturun may report a death before the worker's Hello arrives.
  dead_workers_[worker] = reason;
  if (!job_) return;
  for (const WorkerSlot& slot : job_->slots) {
    if (!slot.taken || slot.worker != worker || slot.left || job_->lost[slot.pipeline]) continue;
    return end_worker(slot, reason, now_us);
  }
  fail_if_one_never_joins();
}

void Coordinator::end_worker(const WorkerSlot& slot, const std::string& reason,
                             std::int64_t now_us) {
  const std::string text = fmt::format("{} {}", slot.describe(), reason);
  if (job_->options.on_failure_shrink) {
    lose(slot.pipeline, text, now_us);
  } else {
    fail_all(Code::Comm, text);
  }
}

void Coordinator::fail_if_one_never_joins() {
  // A job that can lose pipelines waits for heturun's report of the pipeline, whose number is known
  // only there.
  if (job_->options.on_failure_shrink) return;
  const auto& slots = job_->slots;
  if (std::all_of(slots.begin(), slots.end(), [](const WorkerSlot& s) { return s.taken; })) return;
  for (const auto& [worker, reason] : dead_workers_) {
    const auto is_its = [w = worker](const WorkerSlot& s) { return s.taken && s.worker == w; };
    if (worker < 0 || worker >= std::ssize(slots)) continue;
    if (std::any_of(slots.begin(), slots.end(), is_its)) continue;
    return fail_all(Code::Comm, fmt::format("worker {} {}, before it joined", worker, reason));
  }
}

void Coordinator::pipeline_died(int pipeline, const std::string& reason, std::int64_t now_us) {
  // heturun may report a death before any worker of the training has connected.
  if (!job_ && pipeline >= 0 && pipeline < kMostPipelines) died_before_[pipeline] = reason;
  if (!job_ || !failure_.empty()) return;
  if (pipeline < 0 || pipeline >= job_->options.policy.pipelines || job_->lost[pipeline]) return;
  const std::string text = fmt::format("pipeline {} {}", pipeline, reason);
  if (job_->options.on_failure_shrink) {
    lose(pipeline, text, now_us);
  } else {
    fail_all(Code::Comm, text);
  }
}

void Coordinator::lose(int pipeline, const std::string& reason, std::int64_t now_us) {
  log(Level::Warning, "coordinator: {}; the job continues without pipeline {}", reason, pipeline);
  if (options_.on_loss) options_.on_loss(pipeline, reason);
  job_->lost[pipeline] = true;
  job_->lost_by[pipeline] = reason;
  job_->log.write_lost(pipeline, job_->first_begin_us < 0 ? 0 : now_us - job_->first_begin_us);
  job_->log.flush();
  const Lost lost = loss_of(pipeline, reason);
  for (WorkerSlot& slot : job_->slots) {  // its average may be incomplete because of this death
    if (std::find(slot.group.begin(), slot.group.end(), pipeline) != slot.group.end())
      slot.group.clear();
  }
  bool any_left = false;
  for (const WorkerSlot& slot : job_->slots) {
    if (!job_->lost[slot.pipeline]) any_left = true;
    if (!slot.taken || slot.left) continue;
    if (slot.pipeline == pipeline) {
      // Workers of the lost pipeline that still run end, too.
      send(slot.peer, Refusal{Code::Comm, reason});
    } else {
      send(slot.peer, lost);
    }
  }
  if (!any_left) {
    fail_all(Code::Comm, reason + "; no pipeline is left");
    return;
  }
  try {
    job_->policy.remove(pipeline, now_us);
  } catch (const Error& error) {
    fail_all(error.code(), error.what());
    return;
  }
  begin_if_all_have(now_us);
  if (failure_.empty()) hand_out();
  for (int stage = 0; stage < job_->options.policy.stages && failure_.empty(); ++stage) {
    introduce(stage);
  }
  if (failure_.empty()) release_if_all_have_come();
  begin_next_job_if_over(now_us);
}

Lost Coordinator::loss_of(int pipeline, const std::string& reason) {
  Lost lost{pipeline, 0, groups::kRunsOn, reason};
  for (int stage = 0; stage < job_->options.policy.stages; ++stage) {
    const WorkerSlot& slot = job_->slot(pipeline, stage);
    lost.updates = std::max(lost.updates, slot.asked);
    lost.averaged = std::min(lost.averaged, slot.averaged);
  }
  return lost;
}

// Returns true if the worker has left this training, so that its Hello is for the next one. Other
// workers may still be in this one. The check is by worker number, because the next training may
// give the worker another slot.
bool Coordinator::is_done_with_it(int worker) const {
  return finished() ||
         std::any_of(job_->slots.begin(), job_->slots.end(), [&](const WorkerSlot& slot) {
           return slot.taken && slot.left && slot.worker == worker;
         });
}

// A pipeline stays lost in later trainings of the job.
void Coordinator::begin_next_job_if_over(std::int64_t now_us) {
  if (!failure_.empty() || early_.empty() || !finished()) return;
  for (std::size_t p = 0; p < job_->lost.size(); ++p) {
    if (job_->lost[p]) died_before_[static_cast<int>(p)] = "died in an earlier training of the job";
  }
  slot_of_.clear();
  job_.reset();
  for (const auto& [peer, hello] : std::exchange(early_, {})) take_hello(peer, hello, now_us);
}

void Coordinator::fail_all(Code code, const std::string& text) {
  failure_code_ = code;
  failure_ = text;
  for (const WorkerSlot& slot : job_->slots) {
    if (slot.taken && !slot.left) send(slot.peer, Refusal{code, text});
  }
  for (const auto& [peer, hello] : std::exchange(early_, {})) send(peer, Refusal{code, text});
}

bool Coordinator::finished() const {
  if (!job_) return false;
  return std::all_of(job_->slots.begin(), job_->slots.end(), [&](const WorkerSlot& slot) {
    return slot.left || job_->lost[slot.pipeline];
  });
}

}  // namespace hetu::ps
