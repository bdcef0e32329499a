// Runs all rows with a work list, in time linear in the number of instructions and waits. A row
// advances until it meets an instruction that waits for something that is not done. The row then
// joins the list of waiters of that thing: state_ holds the first waiting row and next_waiter_
// links the others. When the thing is done, finish() puts its waiters on the list of ready rows.
// The run ends when no row is ready. If rows are left then, the plan deadlocks (deadlock.cpp). No
// other order helps: the set of instructions that can run does not depend on the order in which
// rows are tried.
//
// Example with unbounded slots:
//   worker 0: 0F0 0SEND_F0 0RECV_B0 0B0     worker 1: 1RECV_F0 1F0 1B0 1SEND_B0
// Worker 0 runs 0F0 and 0SEND_F0, and then waits for 1SEND_B0. Worker 1 runs its whole row. Its
// last instruction makes worker 0 ready, which then finishes.
#include "pipeline/verify/progress.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "pipeline/ir/reduction.h"

namespace hetu {

Progress::Progress(const PlanIndex& index, int send_slots, int pipelines)
    : index_(index), pipelines_(pipelines), rendezvous_(send_slots == 0) {
  require(send_slots >= 0 || send_slots == kUnboundedSlots, "send slots must be at least 0, got {}",
          send_slots);
  require(pipelines >= 1, "pipelines must be at least 1, got {}", pipelines);
  find_collectives();
  if (send_slots != kUnboundedSlots) find_slots(send_slots);
  find_needs();
}

void Progress::find_collectives() {
  const Reductions reductions(index_.schedule());
  constexpr std::int64_t kScalars = INT64_MIN;
  std::map<std::pair<std::int64_t, int>, int> posted;       // (group, worker) -> occurrences so far
  std::map<std::pair<std::int64_t, int>, int> collectives;  // (group, occurrence) -> collective
  std::vector<int> factor_sum(index_.workers(), -1);  // the last factor sum posted by each worker
  queues_.resize(index_.workers());
  for (const int position : index_.step_level()) {
    const Instr& i = index_.at(position);
    const int worker = index_.worker_of(position);
    std::vector<int>& queue = queues_[worker];
    if (is_inversion(i.kind)) {
      collective_of_.push_back(factor_sum[worker]);
      continue;
    }
    if (awaits_sums(i.kind)) {
      collective_of_.push_back(queue.empty() ? -1 : queue.back());
      continue;
    }
    const std::int64_t group = i.kind == Kind::ReduceScalars ? kScalars : reductions.group(i);
    const int time = posted[{group, worker}]++;
    const auto [at, fresh] =
        collectives.try_emplace({group, time}, static_cast<int>(collectives_.size()));
    if (fresh) collectives_.emplace_back();
    collectives_[at->second].posts.push_back(position);
    collective_of_.push_back(at->second);
    queue.push_back(at->second);
    if (is_factor_sync(i.kind)) factor_sum[worker] = at->second;
  }
}

void Progress::find_slots(int send_slots) {
  const StageGraph& graph = index_.graph();
  slot_wait_.assign(index_.size(), -1);
  const auto channel = [&](int from, int to) {
    return static_cast<std::int64_t>(from) * index_.workers() + to;
  };
  std::unordered_map<std::int64_t, std::vector<int>> receives;
  for (int p = 0; p < index_.size() && send_slots > 0; ++p) {
    const Instr& i = index_.at(p);
    if (is_recv(i.kind))
      receives[channel(graph.worker(graph.peer(i)), graph.worker(i.stage))].push_back(p);
  }
  std::unordered_map<std::int64_t, int> sent;
  for (int p = 0; p < index_.size(); ++p) {
    const Instr& i = index_.at(p);
    if (!is_send(i.kind)) continue;
    const int peer = graph.peer(i);
    if (send_slots == 0) {
      const Kind kind = i.kind == Kind::SendForward ? Kind::RecvForward : Kind::RecvBackward;
      slot_wait_[p] = index_.find({kind, false, i.part, peer, i.micro});
      continue;
    }
    const std::int64_t c = channel(graph.worker(i.stage), graph.worker(peer));
    const int frees = sent[c]++ - send_slots;
    const std::vector<int>& list = receives[c];
    if (frees >= 0 && frees < static_cast<int>(list.size())) slot_wait_[p] = list[frees];
  }
}

void Progress::find_needs() {
  needs_begin_.reserve(index_.size() + 1);
  needs_.reserve(index_.size() + index_.size() / 2);  // an F waits for one thing, a B for two
  for (int p = 0; p < index_.size(); ++p) {
    needs_begin_.push_back(static_cast<std::int32_t>(needs_.size()));
    waits(p, [&](const Wait& w) {
      needs_.push_back({w.done, w.done < index_.size() ? index_.worker_of(w.done) : -1});
    });
  }
  needs_begin_.push_back(static_cast<std::int32_t>(needs_.size()));
}

int Progress::collective_at(int position) const {
  const std::vector<int>& level = index_.step_level();
  return collective_of_[std::lower_bound(level.begin(), level.end(), position) - level.begin()];
}

// Returns the reduction of scalars directly before a position in its row, or -1.
int Progress::scalars_before(int position) const {
  if (position == 0 || index_.at(position - 1).kind != Kind::ReduceScalars) return -1;
  if (index_.worker_of(position - 1) != index_.worker_of(position)) return -1;
  return collective_at(position - 1);
}

int Progress::collective_ahead(int worker) const {
  const std::vector<int>& queue = queues_[worker];
  return head_[worker] < queue.size() ? queue[head_[worker]] : -1;
}

void Progress::start() {
  const int workers = index_.workers(), rows = workers * pipelines_;
  next_.resize(rows);
  next_waiter_.assign(rows, kOpen);
  ready_.clear();
  for (int row = rows - 1; row >= 0; --row) {
    next_[row] = index_.row_begin(row % workers);
    ready_.push_back(row);
  }
  state_.assign(cell(pipelines_, 0), kOpen);
  head_.assign(workers, 0);
  collective_left_.clear();
  for (const Collective& c : collectives_)
    collective_left_.push_back(static_cast<int>(c.posts.size()) * pipelines_);
  for (const std::vector<int>& queue : queues_)
    for (std::size_t k = 1; k < queue.size(); ++k) ++collective_left_[queue[k]];
}

// Returns a thing that must be done before the instructions can run as one, or -1 if they can run.
int Progress::blocker(int pipeline, int position, int count) const {
  for (int p = position; p < position + count; ++p) {
    for (const Need& need : needs(p)) {
      const bool inside = need.done >= position && need.done < p;
      if (!inside && !is_done(pipeline, need.done)) return need.done;
    }
  }
  return -1;
}

// Marks a thing as done and makes the rows that wait for it ready.
void Progress::finish(int pipeline, int done) {
  for (int row = std::exchange(state_[cell(pipeline, done)], kDone); row >= 0;
       row = std::exchange(next_waiter_[row], kOpen))
    ready_.push_back(row);
}

void Progress::post(int position, Listener& listener) {
  // A finished collective lets the next one of each member proceed, which may be complete, too. The
  // work list handles such chains.
  std::vector<int> done;
  const auto count_down = [&](int c) {
    if (--collective_left_[c] == 0) done.push_back(c);
  };
  count_down(collective_at(position));
  while (!done.empty()) {
    const int c = done.back();
    done.pop_back();
    listener.on_collective(c);
    for (int d = 0; d < pipelines_; ++d) finish(d, index_.size() + c);
    for (const int p : collectives_[c].posts) {
      const int worker = index_.worker_of(p);
      ++head_[worker];
      const int next = collective_ahead(worker);
      if (next >= 0) count_down(next);
    }
  }
}

bool Progress::advance(int row, Listener& listener) {
  const int pipeline = row / index_.workers(), end = index_.row_end(row % index_.workers());
  while (next_[row] < end) {
    const int position = next_[row], count = index_.at(position).with_next ? 2 : 1;
    const int blocked_by = blocker(pipeline, position, count);
    if (blocked_by >= 0) {
      next_waiter_[row] = std::exchange(state_[cell(pipeline, blocked_by)], row);
      return false;
    }
    listener.on_run(pipeline, position, count);
    next_[row] += count;
    for (int p = position; p < position + count; ++p) {
      finish(pipeline, p);
      if (is_collective(index_.at(p).kind)) post(p, listener);
    }
  }
  return true;
}

bool Progress::run(Listener& listener) {
  start();
  int finished = 0;
  while (!ready_.empty()) {
    const int row = ready_.back();
    ready_.pop_back();
    finished += advance(row, listener) ? 1 : 0;
  }
  return finished == static_cast<int>(next_.size()) &&
         std::all_of(collective_left_.begin(), collective_left_.end(),
                     [](int left) { return left == 0; });
}

}  // namespace hetu
