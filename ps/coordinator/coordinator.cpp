// The coordinator is deterministic: the same frames at the same times give the same decisions. All
// decisions about groups are made by groups::Policy; this file checks messages and distributes the
// decisions. A run begins only after every living worker has sent BeginRun; a faster worker's first
// request waits in WorkerSlot::early until then.

#include "ps/coordinator/coordinator.h"

#include <algorithm>

#include "base/log.h"
#include "ps/coordinator/coordinator_impl.h"

namespace hetu::ps {

namespace {
constexpr int kDropsLogged = 5;
}  // namespace

Coordinator::Coordinator(CoordinatorOptions options) : options_(std::move(options)) {}
Coordinator::~Coordinator() = default;

void Coordinator::send(Peer to, const FromCoordinator& message) {
  outgoing_.push_back({to, encode(message)});
}

void Coordinator::drop(const std::string& why) {
  if (++dropped_ <= kDropsLogged) log(Level::Warning, "coordinator: a frame was dropped: {}", why);
}

std::vector<Coordinator::Outgoing> Coordinator::take() { return std::exchange(outgoing_, {}); }

void Coordinator::receive(Peer from, const std::byte* data, std::size_t bytes,
                          std::int64_t now_us) {
  FromWorker message;
  try {
    message = decode_from_worker(data, bytes);
  } catch (const Error& error) {
    drop(error.what());
    if (slot_of_.count(from) == 0) send(from, Refusal{Code::Comm, error.what()});
    return;
  }
  const auto found = slot_of_.find(from);
  if (const auto* hello = std::get_if<Hello>(&message)) {
    const bool is_early = std::any_of(early_.begin(), early_.end(),
                                      [&](const auto& held) { return held.first == from; });
    if (found != slot_of_.end() || is_early) {
      drop(fmt::format("worker {} says hello twice", hello->options.worker));
    } else {
      take_hello(from, *hello, now_us);
    }
  } else if (found == slot_of_.end()) {
    drop("its sender has not said hello");
  } else if (WorkerSlot& slot = *found->second; !job_->lost[slot.pipeline]) {
    slot.heard_us = now_us;
    take_message(slot, message, now_us);
  }
}

void Coordinator::take_hello(Peer from, const Hello& hello, std::int64_t now_us) {
  const ClientOptions& options = hello.options;
  const auto refuse = [&](Code code, const std::string& text) { send(from, Refusal{code, text}); };
  if (!failure_.empty()) return refuse(failure_code_, failure_);
  // A Hello for the next training waits until this one is over.
  if (job_ && is_done_with_it(options.worker)) {
    early_.emplace_back(from, hello);
    begin_next_job_if_over(now_us);
    return;
  }
  try {
    if (!job_) job_ = std::make_unique<Job>(options);
  } catch (const Error& error) {
    return refuse(error.code(), error.what());
  }
  for (const auto& [pipeline, reason] : std::exchange(died_before_, {})) {
    pipeline_died(pipeline, reason, now_us);
  }
  const auto death = dead_workers_.find(options.worker);
  if (failure_.empty() && death == dead_workers_.end()) fail_if_one_never_joins();
  if (!failure_.empty()) return refuse(failure_code_, failure_);
  if (agreed_part(options) != agreed_part(job_->options)) {
    return refuse(Code::InvalidArgument,
                  fmt::format("worker {} has other averaging options than the workers before it; "
                              "give every worker the same flags",
                              options.worker));
  }
  WorkerSlot& slot = job_->slot(options.pipeline, options.stage);
  if (slot.taken) {
    return refuse(Code::InvalidArgument,
                  fmt::format("worker {} has the same pipeline and stage as {}; "
                              "each stage of a pipeline has one worker",
                              options.worker, slot.describe()));
  }
  if (job_->lost[options.pipeline]) {
    return refuse(Code::Comm, fmt::format("pipeline {} has left the job", options.pipeline));
  }
  slot.taken = true;
  slot.worker = options.worker;
  slot.peer = from;
  slot.heard_us = now_us;
  slot.endpoint = options.endpoint;
  slot_of_[from] = &slot;
  send(from, Welcome{});
  for (std::size_t p = 0; p < job_->lost.size(); ++p) {
    if (job_->lost[p]) send(from, loss_of(static_cast<int>(p), job_->lost_by[p]));
  }
  if (death != dead_workers_.end()) return end_worker(slot, death->second, now_us);
  introduce(slot.stage);
}

void Coordinator::take_message(WorkerSlot& slot, const FromWorker& message, std::int64_t now_us) {
  if (std::holds_alternative<Heartbeat>(message)) {
    send(slot.peer, Heartbeat{});
  } else if (std::holds_alternative<Leave>(message)) {
    slot.left = true;
    send(slot.peer, Left{});
    begin_next_job_if_over(now_us);
  } else if (!failure_.empty()) {
    send(slot.peer, Refusal{failure_code_, failure_});
  } else if (std::holds_alternative<StopSoon>(message)) {
    if (slot.next)
      job_->stops_soon = true;
    else
      job_->policy.stop_soon();
  } else if (const auto* begin = std::get_if<BeginRun>(&message)) {
    take_begin(slot, begin->run, now_us);
  } else if (const auto* arrive = std::get_if<Arrive>(&message)) {
    if (slot.arrived) return drop(slot.describe() + " joins a rendezvous twice");
    slot.arrived = *arrive;
    confirm_average(slot);
    release_if_all_have_come();
  } else {
    take_ask(slot, std::get<Ask>(message).update, now_us);
  }
}

// Releases all stages at once, so that the workers of one pipeline get the same members even if a
// pipeline dies in between.
void Coordinator::release_if_all_have_come() {
  Rendezvous rendezvous;
  for (const WorkerSlot& slot : job_->slots) {
    if (job_->lost[slot.pipeline]) continue;
    if (!slot.arrived) return;
    if (slot.stage == 0) rendezvous.members.push_back(slot.pipeline);
    rendezvous.all_ok = rendezvous.all_ok && slot.arrived->ok;
    rendezvous.any_flag = rendezvous.any_flag || slot.arrived->flag;
  }
  for (WorkerSlot& slot : job_->slots) {
    if (job_->lost[slot.pipeline]) continue;
    slot.arrived.reset();
    send(slot.peer, rendezvous);
  }
}

// A worker that sends its next message has completed its last average. The other members' weights
// have therefore reached it.
void Coordinator::confirm_average(WorkerSlot& slot) {
  for (std::size_t i = 0; i < slot.group.size(); ++i) {
    std::int64_t& averaged = job_->slot(slot.group[i], slot.stage).averaged;
    averaged = std::max(averaged, slot.group_updates[i]);
  }
  slot.group.clear();
}

void Coordinator::introduce(int stage) {
  if (!job_->options.on_failure_shrink || job_->introduced[stage]) return;
  Endpoints endpoints;
  for (int p = 0; p < job_->options.policy.pipelines; ++p) {
    const WorkerSlot& slot = job_->slot(p, stage);
    if (!slot.taken && !job_->lost[p]) return;
    endpoints.by_pipeline.push_back(job_->lost[p] ? "" : slot.endpoint);
  }
  job_->introduced[stage] = true;
  for (int p = 0; p < job_->options.policy.pipelines; ++p) {
    if (!job_->lost[p]) send(job_->slot(p, stage).peer, endpoints);
  }
}

void Coordinator::take_begin(WorkerSlot& slot, const RunStart& run, std::int64_t now_us) {
  if (slot.next || slot.open) {
    fail_all(Code::Internal,
             fmt::format("{} begins a run while {}", slot.describe(),
                         slot.open ? "its request is open" : "its previous run has not begun"));
    return;
  }
  slot.next = run;
  begin_if_all_have(now_us);
}

void Coordinator::begin_if_all_have(std::int64_t now_us) {
  std::vector<WorkerSlot*> all;
  for (WorkerSlot& slot : job_->slots) {
    if (job_->lost[slot.pipeline]) continue;
    if (!slot.next) return;
    all.push_back(&slot);
  }
  if (all.empty()) return;
  const RunStart first = *all.front()->next;
  for (const WorkerSlot* slot : all) {
    const RunStart& run = *slot->next;
    // All workers must agree on updates and step. The stages of a pipeline must also agree on the
    // updates done.
    const std::int64_t done = job_->slot(slot->pipeline, 0).next->done;
    if (run == RunStart{done, first.updates, first.step}) continue;
    fail_all(
        Code::Internal,
        fmt::format("{} begins a run of {} updates at step {} after update {}; the other workers' "
                    "run has {} at step {}, and the first stage of its pipeline has applied {}",
                    slot->describe(), run.updates, run.step, run.done, first.updates, first.step,
                    done));
    return;
  }
  for (const WorkerSlot* slot : all) job_->done[slot->pipeline] = slot->next->done;
  try {
    job_->policy.begin_run(job_->done, first.updates);
    job_->log.begin_run(first.step);
    if (std::exchange(job_->stops_soon, false)) job_->policy.stop_soon();
    if (job_->first_begin_us < 0) job_->first_begin_us = now_us;
    job_->running = true;
    for (WorkerSlot* slot : all) {
      slot->asked = slot->averaged = slot->next->done;
      slot->group.clear();
      slot->next.reset();
    }
    for (WorkerSlot* slot : all) {
      if (!slot->early) continue;
      slot->asked = *std::exchange(slot->early, {});
      job_->policy.arrive({slot->stage, slot->pipeline, slot->asked}, now_us);
    }
  } catch (const Error& error) {
    fail_all(error.code(), error.what());
    return;
  }
  hand_out();
}

void Coordinator::take_ask(WorkerSlot& slot, std::int64_t update, std::int64_t now_us) {
  if (slot.open || (!slot.next && !job_->running)) {
    fail_all(Code::Internal,
             fmt::format("{} asks for a group for update {} {}", slot.describe(), update,
                         slot.open ? "while its request is open" : "before any run has begun"));
    return;
  }
  slot.open = true;
  if (slot.next) {
    slot.early = update;
    return;
  }
  confirm_average(slot);
  slot.asked = update;
  try {
    job_->policy.arrive({slot.stage, slot.pipeline, update}, now_us);
  } catch (const Error& error) {
    fail_all(error.code(), fmt::format("{}: {}", slot.describe(), error.what()));
    return;
  }
  hand_out();
}

void Coordinator::hand_out() {
  for (const groups::Decision& decision : job_->policy.take()) {
    job_->log.write(decision, job_->first_begin_us);
    for (std::size_t i = 0; i < decision.members.size(); ++i) {
      WorkerSlot& slot = job_->slot(decision.members[i], decision.stage);
      if (job_->lost[slot.pipeline]) continue;
      // With AD-PSGD only the initiator has asked. The passive pipeline's own request stays open.
      if (decision.initiator < 0 || decision.initiator == slot.pipeline) {
        slot.open = false;
        if (decision.members.size() > 1) {
          slot.group = decision.members;
          slot.group_updates = decision.updates;
        }
      }
      send(slot.peer, Answer{decision.members, decision.updates, decision.serial,
                             decision.stop_after[i], decision.initiator, decision.weights});
    }
  }
  job_->log.flush();  // before a worker learns of the groups and saves its state
}

}  // namespace hetu::ps
