#include "pipeline/cost/timing.h"

#include <algorithm>

#include "pipeline/cost/stragglers.h"

namespace hetu {

Timing::Timing(const Schedule& schedule, const Costs& costs, const Stragglers& stragglers)
    : schedule_(schedule),
      costs_(costs),
      stragglers_(stragglers),
      reductions_(schedule),
      rows_(static_cast<std::int64_t>(schedule.workers.size()) * schedule.lowering.pipelines) {
  for (std::int64_t row = 0; row < rows_; ++row) {
    const std::vector<double>& s = costs.speed;
    slowness_.push_back(s.empty() ? 1 : 1 / s[static_cast<std::size_t>(row) % s.size()]);
  }
  for (const LinkCost& l : costs.pairs) pairs_[l.from * rows_ + l.to] = l;
}

double Timing::compute(const Instr& instr, int row, std::int64_t index, double at) const {
  const int pipeline = pipeline_of(row);
  double time = instr_time(costs_, schedule_, instr, pipeline) * slowness_[row] *
                jitter_factor(stragglers_.seed, row, index, stragglers_.jitter);
  time = slowed_time(stragglers_.slow, pipeline, row, at, time);
  if (stragglers_.hetero > 0 && pauses(stragglers_.seed, row, index)) time += stragglers_.hetero;
  return time;
}

double Timing::update(const Instr& instr, int row) const {
  if (updates_at_servers(schedule_)) return 0;
  return instr_time(costs_, schedule_, instr, pipeline_of(row)) * slowness_[row];
}

double Timing::second_order(const Instr& instr, int row) const {
  const int pipeline = pipeline_of(row);
  if (is_inversion(instr.kind) && reductions_.inverted_layer(instr, pipeline) < 0) return 0;
  return instr_time(costs_, schedule_, instr, pipeline) * slowness_[row];
}

double Timing::applied(int placement, int servers, int pipeline) const {
  if (!updates_at_servers(schedule_)) return 0;
  const Instr update = {.kind = Kind::Update, .stage = placement};
  return instr_time(costs_, schedule_, update, pipeline) / servers;
}

double Timing::over_copies(int placement, int pipeline) const {
  const int stage = schedule_.placements[placement].model_stage;
  const double own = stage_cost(costs_, stage, pipeline).reduce_grad;
  return own > 0 ? own : costs_.allreduce;
}

double Timing::served(int placement, int servers, int pipeline) const {
  const int stage = schedule_.placements[placement].model_stage;
  const double bytes = stage_cost(costs_, stage, pipeline).weight_bytes;
  const bool known = bytes > 0 && costs_.link.bandwidth > 0;
  return (known ? bytes / costs_.link.bandwidth : over_copies(placement, pipeline) / 2) / servers;
}

double Timing::answered(int placement, int servers, int pipeline) const {
  return 2 * (costs_.link.latency + served(placement, servers, pipeline)) +
         applied(placement, servers, pipeline);
}

double Timing::collective(const Instr& instr) const {
  if (instr.kind == Kind::ReduceScalars) return costs_.reduce_scalars;
  if (is_factor_sync(instr.kind)) return factor_sum(instr.stage);
  // both inverses of each layer, of the same sizes as its factors
  if (instr.kind == Kind::Gather) {
    const auto [first, end] = reductions_.layers_of(instr.stage, instr.part);
    return 2 * factor_sum(instr.stage) * std::max(0, end - first);
  }
  return over_copies(instr.stage) / std::max<std::size_t>(1, reductions_.parts(instr.stage).size());
}

// An all-reduce moves each byte twice. If the costs have no bytes or no bandwidth, all factors
// together take the time of all gradients.
double Timing::factor_sum(int placement) const {
  const int stage = schedule_.placements[placement].model_stage;
  const double bytes = stage_cost(costs_, stage).curvature.factor_bytes;
  const bool known = bytes > 0 && costs_.link.bandwidth > 0;
  const double all = known ? 2 * bytes / costs_.link.bandwidth : over_copies(placement);
  return all / (2.0 * std::max(1, reductions_.factor_layers(placement)));
}

double Timing::message(const Instr& made, int user_stage, int from_row, int to_row) const {
  const LinkCost* link = &costs_.link;
  if (!pairs_.empty()) {
    const auto own = pairs_.find(from_row * rows_ + to_row);
    if (own != pairs_.end()) link = &own->second;
  }
  const bool forward = made.kind == Kind::Forward || made.kind == Kind::SendForward;
  // Both directions of an edge carry the same number of bytes: the output of its earlier stage.
  const int earlier = schedule_.placements[forward ? made.stage : user_stage].model_stage;
  const double bytes = stage_cost(costs_, earlier, pipeline_of(from_row)).bytes_out *
                       (!forward && schedule_.half_micros ? 0.5 : 1.0);
  return link->latency + (link->bandwidth > 0 ? bytes / link->bandwidth : 0);
}

}  // namespace hetu
