// Explains why a run of Progress stopped: finds the smallest set of workers that wait for each
// other. Each stopped worker has an edge to every worker that must act first. A breadth-first
// search from each worker finds the shortest cycle of these edges.
//
// Example with 0 send slots: worker 0 is at 0SEND_F1 and waits until worker 1 is at 1RECV_F1.
// Worker 1 is at 1SEND_B0 and waits until worker 0 is at 0RECV_B0. The cycle is 0, 1.
#include <algorithm>

#include "base/error.h"
#include "base/quantity.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

// An edge: worker `to` must first run the instruction at position `named`.
struct WaitsFor {
  int to = -1;
  int named = -1;
};

// Adds the edges of the collective at the front of a worker's queue. It waits for the members that
// have not posted it, or that have another collective at the front of their queues.
void collective_edges(const Progress& progress, int worker, std::vector<WaitsFor>& out) {
  const int ahead = progress.collective_ahead(worker);
  if (ahead < 0) return;
  for (const int post : progress.collectives()[ahead].posts) {
    const int other = progress.index().worker_of(post);
    const bool posted = post < progress.stopped_at(0, other);
    if (!posted || progress.collective_ahead(other) != ahead) out.push_back({other, post});
  }
}

std::vector<WaitsFor> edges_of(const Progress& progress, int worker) {
  const PlanIndex& index = progress.index();
  std::vector<WaitsFor> out;
  const int at = progress.stopped_at(0, worker);
  if (at >= index.row_end(worker)) {
    collective_edges(progress, worker, out);
    return out;
  }
  const int count = index.at(at).with_next ? 2 : 1;
  for (int p = at; p < at + count; ++p) {
    progress.waits(p, [&](const Progress::Wait& w) {
      if ((w.done >= at && w.done < p) || progress.is_done(0, w.done)) return;
      if (w.done >= index.size())
        collective_edges(progress, worker, out);
      else
        out.push_back({index.worker_of(w.named), w.named});
    });
  }
  return out;
}

using Edges = std::vector<std::vector<WaitsFor>>;

// Returns the shortest cycle through `from`, found breadth first. Returns an empty list if no such
// cycle has fewer than `most` workers.
std::vector<int> cycle_through(const Edges& edges, int from, std::size_t most) {
  std::vector<int> before(edges.size(), -1), reached = {from};
  std::vector<std::size_t> depth(edges.size(), 0);
  for (std::size_t k = 0; k < reached.size(); ++k) {
    const int w = reached[k];
    if (depth[w] + 1 >= most) break;
    for (const WaitsFor& e : edges[w]) {
      if (e.to == from) {
        std::vector<int> cycle;
        for (int at = w; at != from; at = before[at]) cycle.push_back(at);
        cycle.push_back(from);
        std::reverse(cycle.begin(), cycle.end());
        return cycle;
      }
      if (before[e.to] >= 0) continue;
      before[e.to] = w;
      depth[e.to] = depth[w] + 1;
      reached.push_back(e.to);
    }
  }
  return {};
}

// Names the compute instruction before one that lowering has added. Readers find it in their plan,
// whose cells are numbered without messages.
std::string after_compute(const PlanIndex& index, int worker, int at) {
  if (at >= index.row_end(worker) || is_compute(index.at(at).kind)) return "";
  for (int p = at - 1; p >= index.row_begin(worker); --p)
    if (is_compute(index.at(p).kind)) return fmt::format(", after its {}", to_string(index.at(p)));
  return ", before its first computation";
}

std::string place_of(const PlanIndex& index, int worker, int at) {
  return at < index.row_end(worker) ? index.cell_text(at) + after_compute(index, worker, at)
                                    : std::string("the end of its row");
}

std::string line_of(const Progress& progress, const Edges& edges, int worker, int next) {
  const PlanIndex& index = progress.index();
  const int at = progress.stopped_at(0, worker);
  const auto edge = std::find_if(edges[worker].begin(), edges[worker].end(),
                                 [&](const WaitsFor& e) { return e.to == next; });
  const std::string what =
      at < index.row_end(worker) ? to_string(index.at(at)) : std::string("the end of the row");
  return fmt::format("\n  worker {} is at {}: {} waits for {}{}", worker,
                     place_of(index, worker, at), what, to_string(index.at(edge->named)),
                     next == worker && edge->named > at
                         ? fmt::format(", which is {}", index.cell_text(edge->named))
                         : "");
}

// Names the cause if a worker waits for an instruction that stands later in its own row.
std::string own_order(const Progress& progress, const Edges& edges, int worker) {
  const PlanIndex& index = progress.index();
  const int at = progress.stopped_at(0, worker);
  const auto edge = std::find_if(edges[worker].begin(), edges[worker].end(),
                                 [&](const WaitsFor& e) { return e.to == worker; });
  if (at >= index.row_end(worker) || edge->named <= at) return "";
  return fmt::format(" {} stands before {} in the row of worker {}:", to_string(index.at(at)),
                     to_string(index.at(edge->named)), worker);
}

}  // namespace

void fail_deadlock(const Progress& progress, int send_slots) {
  const int workers = progress.index().workers();
  Edges edges(workers);
  for (int w = 0; w < workers; ++w) edges[w] = edges_of(progress, w);
  std::vector<int> smallest;
  for (int w = 0; w < workers; ++w) {
    const std::size_t most = smallest.empty() ? workers + 1 : smallest.size();
    const std::vector<int> cycle = cycle_through(edges, w, most);
    if (!cycle.empty()) smallest = cycle;
  }
  HETU_ASSERT(!smallest.empty());
  std::string message =
      send_slots == kUnboundedSlots
          ? std::string("schedule deadlocks:")
          : fmt::format("schedule deadlocks with {} (messages that may wait between two workers):",
                        quantity(send_slots, "send slot"));
  if (smallest.size() == 1) message += own_order(progress, edges, smallest[0]);
  for (std::size_t k = 0; k < smallest.size(); ++k)
    message += line_of(progress, edges, smallest[k], smallest[(k + 1) % smallest.size()]);
  throw Error(Code::Plan, message);
}

}  // namespace hetu
