// An instruction's delay is explained by walking back along the inputs that it waited for. At each
// step the delay is split into four parts: the instruction's own excess time, idle time with all
// inputs there, the excess transit time of a message, and the delay of the input. For example, 1F0
// ends 5 ms late:
//
//   0F0 ran 2 ms longer, its message took 4 ms longer, 1F0 ran as planned,
//   and 1 ms of idle time in the plan absorbed delay: 2 + 4 + 0 - 1 = 5.

#include "pipeline/compare/lateness.h"

#include <algorithm>
#include <map>

namespace hetu {
namespace {

// A shorter receive did not wait: its message had arrived before.
constexpr double kNoticedUs = 20;

}  // namespace

RunGraph::RunGraph(const Progress& progress, const RunTimes& times)
    : index_(progress.index()), progress_(progress), times_(times) {}

// Returns true for instructions that take a worker's time, and for collectives. Messages are edges
// between nodes. A push delays no instruction of the run. The wait of a pull is not divided
// further: the pushes of other pipelines may belong to another step.
bool RunGraph::is_node(const Node& n) const {
  const Kind kind = index_.at(n.position).kind;
  const bool counts =
      is_work(kind) || kind == Kind::Update || kind == Kind::Pull || is_collective(kind);
  return counts && at(kPlan, n).there() && at(kRun, n).there();
}

double RunGraph::late_us(const Node& n) const { return at(kRun, n).end_us - at(kPlan, n).end_us; }

std::vector<RunGraph::Node> RunGraph::nodes() const {
  std::vector<Node> all;
  for (int d = 0; d < progress_.pipelines(); ++d) {
    for (int p = 0; p < index_.size(); ++p)
      if (is_node({d, p})) all.push_back({d, p});
  }
  return all;
}

// Returns the previous node that blocks the worker, with position -1 if there is none. A gradient
// sum runs concurrently with the worker; a scalar sum doesn't.
RunGraph::Node RunGraph::before(const Node& n) const {
  const int first = index_.row_begin(index_.worker_of(n.position));
  for (int p = n.position - 1; p >= first; --p) {
    if (index_.at(p).kind != Kind::ReduceGrad && is_node({n.pipeline, p})) return {n.pipeline, p};
  }
  return {n.pipeline, -1};
}

// Returns the gradient sum before the node in its row.
RunGraph::Node RunGraph::sum_before(const Node& n) const {
  const int first = index_.row_begin(index_.worker_of(n.position));
  for (int p = n.position - 1; p >= first; --p) {
    if (index_.at(p).kind == Kind::ReduceGrad && is_node({n.pipeline, p})) return {n.pipeline, p};
  }
  return {n.pipeline, -1};
}

double RunGraph::begun_us(TraceSource source, int pipeline, int position) const {
  const double end = at(source, {pipeline, position}).end_us;
  double begun = 0;
  for (int d = 0; d < progress_.pipelines(); ++d) {
    for (const int post : progress_.collectives()[progress_.collective_at(position)].posts) {
      const Span& member = at(source, {d, post});
      if (member.there()) begun = std::max(begun, member.start_us);
      if (index_.at(post).kind != Kind::ReduceGrad) continue;
      const Node earlier = sum_before({d, post});
      if (earlier.position >= 0 && at(source, earlier).end_us <= end)
        begun = std::max(begun, at(source, earlier).end_us);
    }
  }
  return std::min(begun, end);
}

void RunGraph::consider_node(const Node& candidate, Bound& bound) const {
  if (candidate.position < 0 || !is_node(candidate)) return;
  const double end = at(kRun, candidate).end_us;
  if (bound.node.position < 0 || end > bound.ready_us) bound = {candidate, end, 0, 0, -1};
}

// The latest arrival wins. The producer of the message is the node that the delay comes from.
void RunGraph::consider_message(const Node& receive, Bound& bound) const {
  const Span& taken = at(kRun, receive);
  if (!taken.there() || taken.duration_us() < kNoticedUs) return;
  if (bound.node.position >= 0 && taken.end_us <= bound.ready_us) return;
  for (const Progress::Need& sent : progress_.needs(receive.position)) {
    if (sent.worker < 0 || !is_send(index_.at(sent.done).kind)) continue;
    for (const Progress::Need& made : progress_.needs(sent.done)) {
      const Node producer{receive.pipeline, made.done};
      if (made.worker < 0 || !is_node(producer)) continue;
      const Span& planned = at(kPlan, {receive.pipeline, sent.done});
      bound = {producer, taken.end_us, taken.end_us - at(kRun, producer).end_us,
               planned.there() ? planned.duration_us() : 0, worker(producer)};
    }
  }
}

// A collective waits for the slowest member, and for earlier gradient sums of any member.
RunGraph::Bound RunGraph::bound_of_collective(int collective) const {
  Bound bound;
  for (int d = 0; d < progress_.pipelines(); ++d) {
    for (const int post : progress_.collectives()[collective].posts) {
      consider_node(before({d, post}), bound);
      const Node earlier = sum_before({d, post});
      if (index_.at(post).kind == Kind::ReduceGrad && earlier.position >= 0 &&
          at(kRun, earlier).end_us <= at(kRun, {d, post}).end_us)
        consider_node(earlier, bound);
    }
  }
  return bound;
}

RunGraph::Bound RunGraph::bound_of(const Node& n) const {
  if (is_collective(index_.at(n.position).kind))
    return bound_of_collective(progress_.collective_at(n.position));
  Bound bound;
  const Node previous = before(n);
  consider_node(previous, bound);
  const int worker = index_.worker_of(n.position);
  const int first = previous.position < 0 ? index_.row_begin(worker) : previous.position + 1;
  for (int p = first; p < n.position; ++p)
    if (is_recv(index_.at(p).kind)) consider_message({n.pipeline, p}, bound);
  for (const Progress::Need& need : progress_.needs(n.position)) {
    if (need.worker >= 0) continue;
    for (const int post : progress_.collectives()[need.done - index_.size()].posts)
      if (index_.worker_of(post) == worker) consider_node({n.pipeline, post}, bound);
  }
  return bound;
}

// late = (own time over plan) + (idle time with inputs there) + (transit time over plan) + late of
// the input - (idle time in the plan before it). Ends at an instruction without inputs.
Late RunGraph::explain(const Node& n) const {
  Late late{worker(n), to_string(index_.at(n.position)), at(kPlan, n), at(kRun, n), late_us(n), {}};
  using LossKey = std::tuple<LossCause, int, int, int, std::string>;
  std::map<LossKey, double> lost;
  const auto lose = [&](LossCause cause, int at_worker, int from, int stage, const char* kind,
                        double us) {
    lost[{cause, at_worker, from, stage, kind}] += us;
  };
  for (Node now = n; now.position >= 0;) {
    const Instr& instr = index_.at(now.position);
    const Bound bound = bound_of(now);
    const bool first = bound.node.position < 0;
    const Span &plan = at(kPlan, now), &run = at(kRun, now);
    const bool collective = is_collective(instr.kind);
    // A collective begins when its last member arrives.
    const double begun = collective && !first ? bound.ready_us : run.start_us;
    const LossCause own = collective                 ? LossCause::Collective
                          : instr.kind == Kind::Pull ? LossCause::Wait
                                                     : LossCause::Kernel;
    lose(own, collective ? -1 : worker(now), -1, own == LossCause::Kernel ? -1 : instr.stage,
         kind_name(instr.kind), (run.end_us - begun) - plan.duration_us());
    lose(LossCause::Idle, worker(now), -1, -1, "", begun - bound.ready_us);
    if (bound.from >= 0)
      lose(LossCause::Message, worker(now), bound.from, -1, "",
           bound.transit_us - bound.planned_us);
    const double there = first ? 0 : at(kPlan, bound.node).end_us + bound.planned_us;
    lose(LossCause::Slack, -1, -1, -1, "", there - plan.start_us);
    now = bound.node;
  }
  for (const auto& [key, us] : lost) {
    const auto& [cause, at_worker, from, stage, kind] = key;
    if (us != 0) late.losses.push_back({cause, at_worker, from, stage, kind, us});
  }
  std::stable_sort(late.losses.begin(), late.losses.end(),
                   [](const Loss& a, const Loss& b) { return a.us > b.us; });
  return late;
}

Late RunGraph::first_behind(double tolerance_us) const {
  Node first;
  for (const Node& n : nodes()) {
    if (late_us(n) <= tolerance_us) continue;
    if (first.position < 0 || at(kRun, n).end_us < at(kRun, first).end_us) first = n;
  }
  return first.position < 0 ? Late{} : explain(first);
}

Late RunGraph::last() const {
  Node last;
  for (const Node& n : nodes()) {
    if (last.position < 0 || at(kRun, n).end_us > at(kRun, last).end_us) last = n;
  }
  return last.position < 0 ? Late{} : explain(last);
}

}  // namespace hetu
