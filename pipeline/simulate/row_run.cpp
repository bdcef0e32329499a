// A row stops for one of two reasons. If an instruction waits for something without a known end,
// the row stops without an event. advance() is called when another row does something that may
// release it. If the end is known but the message arrives later, the row is busy until a kRowIsFree
// event at the arrival. Events at equal times are processed in the order in which they were added,
// so that a run is reproducible.
#include "pipeline/simulate/row_run.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace hetu {
namespace {

constexpr int kSumIsDone = -1;

}  // namespace

RowRun::RowRun(const Progress& progress, const Costs& costs, const SimulateOptions& options)
    : progress_(progress),
      index_(progress.index()),
      workers_(index_.workers()),
      pipelines_(progress.pipelines()),
      unit_us_(unit_us(costs)),
      timing_(index_.schedule(), costs, options),
      network_free_(static_cast<std::size_t>(workers_) * pipelines_, 0),
      options_(options),
      rows_(network_free_.size()),
      end_((index_.size() + progress.collectives().size()) * pipelines_, kOpen),
      queues_(workers_) {
  require(options.send_slots == kUnboundedSlots,
          "pipelines that run at their own pace can be simulated only with unbounded send slots, "
          "got {}",
          options.send_slots);
  for (int p = 0; p < index_.size(); ++p) {
    require(!index_.at(p).with_next,
            "pipelines that run at their own pace can't be simulated with pairs that run as one; "
            "{} is in such a pair",
            index_.describe(p));
    if (is_collective(index_.at(p).kind))
      queues_[index_.worker_of(p)].push_back(progress.collective_at(p));
  }
  for (std::size_t r = 0; r < rows_.size(); ++r)
    rows_[r].next = index_.row_begin(worker(static_cast<int>(r)));
  result_.workers.resize(rows_.size());
  for (WorkerTiming& w : result_.workers) w.start = -1;
}

void RowRun::run_rows() {
  for (std::size_t r = 0; r < rows_.size(); ++r) advance(static_cast<int>(r));
  for (;;) {
    if (goes_before(events_.empty() ? std::numeric_limits<double>::infinity() : events_.top().at))
      continue;
    if (events_.empty()) return;
    const Event e = events_.top();
    events_.pop();
    now_ = e.at;
    if (e.what == kRowIsFree) {
      rows_[e.row].busy = false;
      advance(e.row);
    } else if (e.what == kSumIsDone) {
      const int pipeline = e.row / workers_, collective = static_cast<int>(e.value);
      end(pipeline, index_.size() + collective) = now_;
      for (const int p : progress_.collectives()[collective].posts)
        advance(pipeline * workers_ + index_.worker_of(p));
    } else {
      on_event(e);
    }
  }
}

void RowRun::push(double at, int row, int what, std::int64_t value) {
  events_.push({at, order_++, row, what, value});
}

void RowRun::advance(int r) {
  Row& row = rows_[r];
  while (!row.busy && !has_ended(r)) {
    const Instr& i = index_.at(row.next);
    if (is_skipped(r, i)) {
      ++row.next;
      continue;
    }
    if (is_held_up(r, i) || !may_start(r, i)) return;
    const int position = row.next++;
    if (is_compute(i.kind) || i.kind == Kind::Update)
      run(r, position);
    else
      pass(r, position);
  }
}

bool RowRun::may_start(int r, const Instr& i) {
  double ready = now_;
  const int pipeline = r / workers_, base = pipeline * workers_;
  for (const Progress::Need& need : progress_.needs(rows_[r].next)) {
    const double made = end(pipeline, need.done);
    if (made == kOpen) return false;
    const bool message =
        need.worker >= 0 && need.worker != worker(r) && (is_recv(i.kind) || is_compute(i.kind));
    ready = std::max(ready, !message ? made
                                     : made + timing_.message(index_.at(need.done), i.stage,
                                                              base + need.worker, r));
  }
  if (ready > now_) {  // a message is in transit
    rows_[r].busy = true;
    push(ready, r, kRowIsFree);
    return false;
  }
  return true;
}

void RowRun::run(int r, int position) {
  Row& row = rows_[r];
  const Instr& i = index_.at(position);
  const double time =
      i.kind == Kind::Update ? timing_.update(i, r) : timing_.compute(i, r, row.computed++, now_);
  const double until = now_ + time;
  row.busy = true;
  end(r / workers_, position) = until;
  result_.step_time = std::max(result_.step_time, until);
  add_event(r, i, now_, time, step_of(i));
  if (is_compute(i.kind)) {
    WorkerTiming& w = result_.workers[r];
    if (w.start < 0) w.start = now_;
    w.busy += time;
    w.end = until;
    computed(r, i, now_, time);
  }
  push(until, r, kRowIsFree);
}

// Runs an instruction without duration. Rows of the same pipeline may wait for it.
void RowRun::pass(int r, int position) {
  const Instr& i = index_.at(position);
  const int pipeline = r / workers_;
  end(pipeline, position) = now_;
  if (is_send(i.kind)) {
    const int peer = index_.graph().peer(i);
    const int to = pipeline * workers_ + index_.graph().worker(peer);
    if (options_.events) add_event(r, i, now_, timing_.message(i, peer, r, to), step_of(i));
    if (to != r) advance(to);
  } else if (is_collective(i.kind)) {
    post(r, position);
  } else if (!is_recv(i.kind)) {
    on_instruction(r, i);
  }
}

// Begins sums. A sum begins when all members have posted it and each has begun all sums that it
// posted before.
void RowRun::post(int r, int position) {
  std::vector<int> open = {progress_.collective_at(position)};
  const int pipeline = r / workers_;
  while (!open.empty()) {
    const int collective = open.back();
    open.pop_back();
    if (!all_post(pipeline, collective)) continue;
    begin_sum(pipeline, collective);
    for (const int p : progress_.collectives()[collective].posts) {
      const std::vector<int>& queue = queues_[index_.worker_of(p)];
      const std::size_t next = ++rows_[pipeline * workers_ + index_.worker_of(p)].begun;
      if (next < queue.size()) open.push_back(queue[next]);
    }
  }
}

bool RowRun::all_post(int pipeline, int collective) {
  for (const int p : progress_.collectives()[collective].posts) {
    const int w = index_.worker_of(p);
    const std::size_t begun = rows_[pipeline * workers_ + w].begun;
    const bool is_next = begun < queues_[w].size() && queues_[w][begun] == collective;
    if (!is_next || end(pipeline, p) == kOpen) return false;
  }
  return true;
}

void RowRun::begin_sum(int pipeline, int collective) {
  const std::vector<int>& posts = progress_.collectives()[collective].posts;
  double start = now_;
  for (const int p : posts)
    start = std::max(start, network_free_[pipeline * workers_ + index_.worker_of(p)]);
  const double time = timing_.collective(index_.at(posts[0]));
  for (const int p : posts) {
    const int member = pipeline * workers_ + index_.worker_of(p);
    network_free_[member] = start + time;
    add_event(member, index_.at(p), start, time, 0);
  }
  result_.step_time = std::max(result_.step_time, start + time);
  push(start + time, pipeline * workers_, kSumIsDone, collective);
}

int RowRun::step_of(const Instr& i) const {
  return i.micro >= 0 ? i.micro / index_.schedule().micro_batches : 0;
}

void RowRun::add_event(int r, const Instr& i, double at, double time, int step) {
  if (!options_.events) return;
  result_.events.push_back({TraceSource::Predicted, r, kind_name(i.kind), i.stage, i.micro, i.part,
                            step, at * unit_us_, time * unit_us_});
}

}  // namespace hetu
