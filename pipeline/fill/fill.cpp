// PipeFisher's greedy assignment, for one node at a time. The recorded forwards and backwards of an
// iteration stay in place, and the gaps between them are filled from a queue of work. The queue is
// ordered by class (curvature A and B, synchronization A and B, inversion A and B), then by
// recorded start. A gap takes, in queue order, each piece whose inputs are there and that fits. For
// example, with two micro-batches, one layer and no synchronization:
//
//   recorded:   F0 F1 __ __ B0 __ B1 __
//   iteration:  F0 F1 a0 a1 B0 b0 B1 b1      a, b: curvature of micro-batch j
//   iteration:  F0 F1 iA iB B0 __ B1 __      iA, iB: inversions
//
// If the remaining queue fits into gaps that are already in the cycle, it wraps: there it is work
// of the previous cycle. Otherwise the cycle gets another iteration. Work that fits no gap at all
// goes after the end of the last iteration.

#include "pipeline/fill/fill.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace hetu {
namespace {

using Item = FilledNode::Item;

constexpr const char* kStart = "-- start --";
constexpr const char* kEnd = "-- end --";
constexpr const char* kSavingOff = "turn_off_save_inputs_outgrads";
constexpr const char* kSavingOn = "turn_on_save_inputs_outgrads";
constexpr const char* kForward = "call_forward";
constexpr const char* kBackward = "call_backward";
constexpr const char* kUp = ":up_pipe";

enum class Stage { Curvature, Sync, Inversion };

/// An entry of the queue: one recorded interval, split into equal pieces.
struct Work {
  Stage stage;
  char factor;  ///< A or B
  std::string label;
  std::int64_t start_ns, piece_ns;
  int pieces, placed = 0;

  bool is_done() const { return placed == pieces; }
};
using Queue = std::vector<Work>;

/// The number of forwards and backwards of the first direction that have passed.
struct Passed {
  int forwards, backwards;
  void count(const std::string& label) {
    forwards += label == kForward ? 1 : 0;
    backwards += label == kBackward ? 1 : 0;
  }
};

struct Gap {
  std::int64_t cursor_ns, end_ns;
  Passed passed;
};

bool is_pass(const std::string& label, const char* of) {
  return label == of || label == std::string(of) + kUp;
}

/// Returns the earliest start or the latest end of a node's forwards or backwards.
template <class Better>
std::int64_t bound_of(const NodeTimeline& node, const char* of, std::int64_t worst,
                      std::int64_t Interval::*side, const Better& better) {
  for (const NodeTimeline::Recorded& r : node.labels)
    for (const Interval& i : r.intervals)
      if (is_pass(r.label, of) && better(i.*side, worst)) worst = i.*side;
  return worst;
}

std::size_t count_of(const NodeTimeline& node, const char* label) {
  for (const NodeTimeline::Recorded& r : node.labels)
    if (r.label == label) return r.intervals.size();
  return 0;
}

void check(const NodeTimeline& node) {
  for (const NodeTimeline::Recorded& r : node.labels)
    for (const Interval& i : r.intervals)
      require(i.end_ns >= i.start_ns, "{}: a '{}' ends at {}, before it starts at {}", node.origin,
              r.label, i.end_ns, i.start_ns);
  const std::size_t forwards = count_of(node, kForward), backwards = count_of(node, kBackward);
  require(forwards > 0, "{}: no '{}' in the last iteration", node.origin, kForward);
  require(forwards == backwards,
          "{}: {} of '{}' but {} of '{}'; each micro-batch needs one of each", node.origin,
          forwards, kForward, backwards, kBackward);
}

/// Returns the items that stay where they were recorded: forwards and backwards of an iteration.
std::vector<Item> fixed_items(const NodeTimeline& node, std::int64_t zero_ns,
                              std::int64_t length_ns) {
  std::vector<Item> items = {{kStart, {0, 0}}};
  for (const NodeTimeline::Recorded& r : node.labels)
    for (const Interval& i : r.intervals)
      if (is_pass(r.label, kForward) || is_pass(r.label, kBackward))
        items.push_back({r.label, {i.start_ns - zero_ns, i.end_ns - zero_ns}});
  items.push_back({kEnd, {length_ns, length_ns}});
  std::stable_sort(items.begin() + 1, items.end() - 1,
                   [](const Item& a, const Item& b) { return a.at.start_ns < b.at.start_ns; });
  return items;
}

/// Returns the queue: classes in order, and by start within a class.
Queue queue_of(const NodeTimeline& node, int micro_batches) {
  const std::pair<const char*, Stage> stages[] = {{"cov_kron_", Stage::Curvature},
                                                  {"sync_kron_", Stage::Sync},
                                                  {"inv_kron_", Stage::Inversion}};
  Queue queue;
  for (const auto& [prefix, stage] : stages)
    for (const char factor : {'A', 'B'}) {
      const std::string begins = std::string(prefix) + factor + ":";
      const auto first = static_cast<std::ptrdiff_t>(queue.size());
      const int pieces = stage == Stage::Curvature ? micro_batches : 1;
      for (const NodeTimeline::Recorded& r : node.labels)
        for (const Interval& i : r.intervals)
          if ((r.label + ":").compare(0, begins.size(), begins) == 0)
            queue.push_back({stage, factor, r.label, i.start_ns, i.duration_ns() / pieces, pieces});
      std::stable_sort(queue.begin() + first, queue.end(),
                       [](const Work& a, const Work& b) { return a.start_ns < b.start_ns; });
    }
  return queue;
}

/// Returns true if the inputs of the work's next piece are available.
bool is_ready(const Work& work, const Queue& queue, const Passed& passed) {
  if (work.stage == Stage::Curvature)
    return (work.factor == 'A' ? passed.forwards : passed.backwards) > work.placed;
  return std::none_of(queue.begin(), queue.end(), [&](const Work& other) {
    return other.factor == work.factor && other.stage < work.stage;
  });
}

/// Makes one pass over the queue. Returns true if it placed a piece.
bool fill_gap(Gap& gap, Queue& queue, const FillOptions& options, std::vector<Item>& out) {
  bool any = false;
  for (std::size_t k = 0; k < queue.size(); ++k) {
    Work& work = queue[k];
    const double room = options.slack * static_cast<double>(work.piece_ns);
    while (!work.is_done() && is_ready(work, queue, gap.passed) &&
           static_cast<double>(gap.cursor_ns) + room < static_cast<double>(gap.end_ns)) {
      out.push_back({work.label, {gap.cursor_ns, gap.cursor_ns + work.piece_ns}});
      gap.cursor_ns += work.piece_ns;
      ++work.placed;
      any = true;
    }
    if (!work.is_done()) continue;
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(k));
    if (!options.skips) --k;  // the next entry has moved to this index
  }
  return any;
}

/// Returns the items, with as much of the queue between them as fits.
std::vector<Item> fill(const std::vector<Item>& items, Queue& queue, Passed passed,
                       const FillOptions& options) {
  std::vector<Item> out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    out.push_back(items[i]);
    passed.count(items[i].label);
    if (i + 1 == items.size()) break;
    Gap gap{items[i].at.end_ns, items[i + 1].at.start_ns, passed};
    while (fill_gap(gap, queue, options, out)) {
    }
  }
  return out;
}

int pieces_left(const Queue& queue) {
  int left = 0;
  for (const Work& work : queue) left += work.pieces - work.placed;
  return left;
}

/// Appends the work that fits no bubble after the end.
void append_rest(const Queue& queue, std::int64_t cursor_ns, std::vector<Item>& items) {
  for (const Work& work : queue)
    for (int p = work.placed; p < work.pieces; ++p, cursor_ns += work.piece_ns)
      items.push_back({work.label, {cursor_ns, cursor_ns + work.piece_ns}});
}

FilledNode fill_node(const std::vector<Item>& fixed, Queue queue, int micro_batches,
                     const FillOptions& options) {
  FilledNode node;
  node.length_ns = fixed.back().at.end_ns;
  node.items = fill(fixed, queue, {0, 0}, options);
  node.items.push_back({kSavingOff, {node.length_ns, node.length_ns}});
  const Passed all{micro_batches, micro_batches};
  while (!queue.empty()) {
    Queue wrapped = queue;
    std::vector<Item> whole = fill(node.items, wrapped, all, options);
    if (wrapped.empty()) {
      node.items = std::move(whole);
      break;
    }
    std::vector<Item> next = fixed;
    for (Item& item : next) {
      item.at.start_ns += node.iterations * node.length_ns;
      item.at.end_ns += node.iterations * node.length_ns;
    }
    ++node.iterations;
    const int before = pieces_left(queue);
    next = fill(next, queue, all, options);
    node.items.insert(node.items.end(), next.begin(), next.end());
    if (pieces_left(queue) < before) continue;
    append_rest(queue, node.iterations * node.length_ns, node.items);
    queue.clear();
  }
  const std::int64_t end_ns = node.items.back().at.end_ns;
  node.items.push_back({kSavingOn, {end_ns, end_ns}});
  return node;
}

}  // namespace

double FilledNode::usage() const {
  std::int64_t busy_ns = 0;
  for (const Item& item : items) busy_ns += item.at.duration_ns();
  return static_cast<double>(busy_ns) / static_cast<double>(iterations * length_ns);
}

std::vector<std::vector<std::string>> FilledNode::orders() const {
  std::vector<std::vector<std::string>> out;
  for (const Item& item : items) {
    if (item.label == kStart) out.emplace_back();
    out.back().push_back(item.label);
  }
  return out;
}

std::vector<FilledNode> fill_bubbles(const std::vector<NodeTimeline>& nodes,
                                     const FillOptions& options) {
  require(!nodes.empty(), "no timeline given; give one per node");
  require(options.slack >= 1, "slack must be at least 1, got {}", options.slack);
  for (const NodeTimeline& node : nodes) check(node);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::int64_t zero_ns =
      bound_of(nodes[0], kForward, kMost, &Interval::start_ns, std::less<>());
  const std::int64_t end_ns =
      bound_of(nodes[0], kBackward, -kMost, &Interval::end_ns, std::greater<>());
  require(end_ns > zero_ns, "{}: the last backward ends at {}, but the first forward starts at {}",
          nodes[0].origin, end_ns, zero_ns);
  std::vector<FilledNode> filled;
  for (const NodeTimeline& node : nodes) {
    const int micro_batches = static_cast<int>(count_of(node, kForward));
    filled.push_back(fill_node(fixed_items(node, zero_ns, end_ns - zero_ns),
                               queue_of(node, micro_batches), micro_batches, options));
  }
  return filled;
}

}  // namespace hetu
