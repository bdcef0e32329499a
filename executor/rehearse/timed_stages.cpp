// A rehearsal keeps a virtual device clock, `free_ns_`: the time at which the device would be free
// if every instruction took exactly its cost. Each instruction advances the clock, then sleeps
// until the real clock reaches it. If the thread wakes up 60 us late, the next instruction still
// ends at its computed time.
//
// A message carries the time at which it left. The receiver advances `free_ns_` to that time plus
// the link's cost, or to the real arrival if that is later.
#include "executor/rehearse/timed_stages.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/error.h"

namespace hetu {
namespace {

constexpr std::size_t kSlots = 4;  // output buffers per edge

// The send time at the beginning of every payload. From it the receiver computes the remaining time
// of the link.
struct Stamp {
  std::int64_t sent_ns;
};

}  // namespace

void sleep_until(std::int64_t when_ns) {
  // steady_clock is CLOCK_MONOTONIC
  const timespec when{when_ns / 1'000'000'000, when_ns % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) == EINTR) {
  }
}

TimedStages::TimedStages(const Schedule& lowered, const Costs& costs, const Pace& pace,
                         comm::Transport& transport)
    : plan_(lowered),
      pace_(pace),
      timing_(lowered, costs, pace_.stragglers),
      transport_(transport),
      graph_(lowered, /*lowered=*/true),
      worker_(transport.worker()),
      pipeline_(transport.worker() / static_cast<int>(lowered.workers.size())),
      elements_(std::max<std::size_t>(1, pace.payload_bytes / sizeof(float))) {}

void TimedStages::start_at(std::int64_t start_ns) {
  origin_ns_ = free_ns_ = network_free_ns_ = start_ns;
  computed_ = 0;
  sleep_until(start_ns);
}

void TimedStages::take(double units) {
  free_ns_ += static_cast<std::int64_t>(units * pace_.unit_ns);
  sleep_until(free_ns_);
}

Event TimedStages::run(const Instr& instr, int step) {
  if (instr.kind == Kind::ReduceScalars) {
    reduce_scalars(step);
  } else if (instr.kind == Kind::Update) {
    count_update(step);
  } else if (is_second_order(instr.kind)) {
    take(timing_.second_order(instr, worker_));
  } else {
    const double at = static_cast<double>(free_ns_ - origin_ns_) / pace_.unit_ns;
    take(timing_.compute(instr, worker_, computed_++, at));
  }
  return Event(comm::now_ns());
}

// The time of an update passes before the update itself, because a partner may read the weights
// meanwhile.
void TimedStages::begin_update(int stage, int /*step*/) {
  take(timing_.update({Kind::Update, false, 0, stage, -1}, worker_));
}

void TimedStages::count_update(int step) {
  if (weights_.empty()) return;
  for (float& w : weights_) w += 1;
  if (plan_.lowering.has_servers() && ++updates_ % updates_per_wave(plan_) == 0) pushed_ = weights_;
  reports_.push_back({step, {}, 0});
}

void TimedStages::fill_weights(float value) { weights_.assign(elements_, value); }

DeviceSpan TimedStages::newest_weights(int /*stage*/) {
  return host_span(weights_.data(), static_cast<std::int64_t>(weights_.size()));
}

// The newest version has local updates in addition to the pushed ones. A pull replaces the pushed
// version.
std::vector<DeviceSpan> TimedStages::weights_from(int stage, int /*version*/) {
  if (updates_at_servers(plan_)) return {newest_weights(stage)};
  return {host_span(pushed_.data(), static_cast<std::int64_t>(pushed_.size())),
          newest_weights(stage)};
}

std::vector<DeviceSpan> TimedStages::persistent(int stage, bool /*with_buffers*/) {
  return {newest_weights(stage)};
}

void TimedStages::reduce_scalars(int step) {
  double value = 1;
  const auto what = [&] { return describe({Kind::ReduceScalars, false, 0, -1, -1}, step); };
  comm::sum_f64(transport_, comm::everyone(transport_), &value, 1,
                {comm::make_tag(static_cast<int>(Kind::ReduceScalars), 0, 0, 0, step), what});
  free_ns_ = std::max(free_ns_, comm::now_ns());
  take(timing_.collective({Kind::ReduceScalars, false, 0, -1, -1}));
}

TimedStages::Ring& TimedStages::ring(Kind kind, int stage, int part) {
  Ring& found = rings_[{kind, stage, part}];
  if (found.slots.empty()) {
    found.slots.assign(kSlots, std::vector<std::byte>(pace_.payload_bytes));
  }
  return found;
}

Buffer TimedStages::out_buffer(const Instr& send) {
  Ring& edge = ring(send.kind, send.stage, send.part);
  std::vector<std::byte>& slot = edge.slots[edge.next];
  edge.next = (edge.next + 1) % kSlots;
  const Stamp stamp{comm::now_ns()};
  if (slot.size() >= sizeof stamp) std::memcpy(slot.data(), &stamp, sizeof stamp);
  return {slot.data(), slot.size()};
}

// The result of the instruction goes into the next buffer of each edge that leaves its stage.
void TimedStages::overwrites(const Instr& compute, std::vector<const void*>& addresses) {
  const bool forward = compute.kind == Kind::Forward;
  if (!forward && compute.kind != Kind::Backward && compute.kind != Kind::InputGrad) return;
  const auto& edges = forward ? graph_.outputs(compute.stage, compute.micro)
                              : graph_.inputs(compute.stage, compute.micro);
  for (const StageEdge& edge : edges) {
    if (!edge.crosses) continue;
    const Ring& r =
        ring(forward ? Kind::SendForward : Kind::SendBackward, compute.stage, edge.part);
    addresses.push_back(r.slots[r.next].data());
  }
}

std::optional<Buffer> TimedStages::in_buffer(const Instr& recv) {
  std::vector<std::byte> buffer;
  if (!spare_.empty()) {
    buffer = std::move(spare_.back());
    spare_.pop_back();
  }
  buffer.resize(pace_.payload_bytes);
  incoming_.emplace_back(recv, std::move(buffer));
  return Buffer{incoming_.back().second.data(), pace_.payload_bytes};
}

void TimedStages::received(const Instr& recv, std::int64_t arrival_ns) {
  const auto found = std::find_if(incoming_.begin(), incoming_.end(),
                                  [&](const auto& entry) { return entry.first == recv; });
  HETU_ASSERT(found != incoming_.end());
  const int peer = graph_.peer(recv);
  const int from = pipeline_ * static_cast<int>(plan_.workers.size()) + graph_.worker(peer);
  // If both ends share a clock, the real transit time counts as part of the link's time. Otherwise
  // the link's time is added to it.
  std::int64_t left_ns = arrival_ns;
  if (found->second.size() >= sizeof(Stamp) && transport_.same_clock(from)) {
    std::memcpy(&left_ns, found->second.data(), sizeof left_ns);
  }
  Instr made = recv;
  made.kind = recv.kind == Kind::RecvForward ? Kind::SendForward : Kind::SendBackward;
  made.stage = peer;
  const double link = timing_.message(made, recv.stage, from, worker_);
  const std::int64_t there_ns = left_ns + static_cast<std::int64_t>(link * pace_.unit_ns);
  free_ns_ = std::max({free_ns_, arrival_ns, there_ns});
  // Sleeps so that the trace shows the message in transit.
  if (there_ns > arrival_ns) sleep_until(free_ns_);
  spare_.push_back(std::move(found->second));
  incoming_.erase(found);
}

Bucket TimedStages::bucket(int stage, int bucket) {
  std::vector<float>& data = gradients_[{stage, bucket}];
  data.assign(std::max<std::size_t>(1, pace_.payload_bytes / sizeof(float)), 1.0F);
  return {DType::Float32, data.data(), static_cast<std::int64_t>(data.size())};
}

std::int64_t TimedStages::synchronised(const Instr& instr, std::int64_t done_ns) {
  if (instr.kind == Kind::PartialReduce) {
    free_ns_ = std::max(free_ns_, done_ns);
    return done_ns;
  }
  if (instr.kind == Kind::Pull) {
    // The time from the last awaited push to the answer of its pull.
    const double time = timing_.answered(instr.stage, pace_.servers, pipeline_);
    free_ns_ = std::max(free_ns_, done_ns + static_cast<std::int64_t>(time * pace_.unit_ns));
    sleep_until(free_ns_);
    return free_ns_;
  }
  const double time = timing_.collective(instr);
  network_free_ns_ =
      std::max(done_ns, network_free_ns_) + static_cast<std::int64_t>(time * pace_.unit_ns);
  free_ns_ = std::max(free_ns_, network_free_ns_);
  sleep_until(free_ns_);
  return network_free_ns_;
}

}  // namespace hetu
