#include "executor/interpreter.h"

#include <algorithm>
#include <atomic>
#include <deque>

#include "graph/base/error.h"

namespace hetu {

struct Interpreter::Impl {
  struct Sending {
    std::unique_ptr<comm::Request> request;
    const void* address;
    Instr instr;
    int step;
  };
  // The sums of one REDUCE_GRAD of the row, time after time.
  struct Reduction {
    const Action* action;
    std::vector<int> buckets;
    int times = 0;  // reached in this run
    // Of the next time: per bucket, null before its start, which may come before the loop does.
    std::vector<std::shared_ptr<comm::Sum>> sums;
    std::int64_t start_ns = 0;
  };
  struct Started {  // reached and not awaited
    Instr instr;
    int step;
    std::vector<std::shared_ptr<comm::Sum>> sums;
    std::int64_t start_ns;
  };
  struct Averaging {  // begun and not awaited
    Instr instr;
    int step;
    std::int64_t start_ns;
  };
  // A place in the run: prologue, body or drain; the repetition matters in the body.
  struct Cursor {
    int part = 0;
    int repetition = 0;
    std::size_t index = 0;
  };

  Impl(Row bound, StageRunner& stage_runner, const Links& with)
      : row(std::move(bound)), runner(stage_runner), links(with) {
    const std::vector<Action>* parts[] = {&row.prologue, &row.body, &row.drain};
    for (int part = 0; part < 3; ++part) {
      for (const Action& action : *parts[part]) {
        if (is_recv(action.instr.kind)) receives[part].push_back(&action);
        if (action.instr.kind == Kind::ReduceGrad && !find_reduction(action.instr))
          reductions.push_back({&action, {}, 0, {}, 0});
      }
    }
  }
  ~Impl() {
    links.transport.set_reporter({});
    runner.bucket_ready = [](int, int) {};
  }

  void run(const Action& action, int raised);
  void run_all(const std::vector<Action>& actions, int raised) {
    for (const Action& action : actions) run(action, raised);
  }
  void begin(int of_step, TraceRecorder* recorder);
  int drain_raised() const { return (expected - row.repeat) * row.shift; }
  int step_of(const Instr& instr) const {
    return row.micros_per_step > 0 && instr.micro >= 0
               ? step.load() + instr.micro / row.micros_per_step
               : step.load();
  }
  const Action* next_receive(int& raised);
  void post_ahead();
  void await_receive(const Instr& instr);
  void start_send(const Action& action, const Instr& instr);
  void await_sends_of(const void* address);
  void reap_sends();
  void await_send(Sending& sending);
  void before_compute(const Instr& instr);
  Reduction* find_reduction(const Instr& instr);
  void start_bucket(int stage, int bucket);
  void start_sum(Reduction& reduction, std::size_t k);
  void reach_reduction(const Instr& instr);
  void await_reductions();
  void await_average(int stage);
  int count_update(int stage);

  Row row;
  StageRunner& runner;
  Links links;
  TraceRecorder* trace = nullptr;
  std::atomic<const Action*> position{nullptr};
  std::atomic<int> raised_at{0};  // what is added to the micro-batch id there
  std::atomic<int> step{0};       // the run's first
  int expected = 0;               // repetitions of the body known so far
  bool all_expected = false;
  int done = 0;  // repetitions

  std::vector<const Action*> receives[3];             // of each part
  Cursor next;                                        // of `receives`: the first not posted
  std::deque<std::unique_ptr<comm::Request>> posted;  // not yet awaited, in row order
  std::vector<Sending> sends;                         // in order of their start
  std::vector<Reduction> reductions;                  // in row order
  std::vector<Started> started;
  std::vector<Averaging> averaging;
  std::vector<int> updates;  // of each stage in this run
  std::vector<const void*> addresses;
};

void Interpreter::Impl::begin(int of_step, TraceRecorder* recorder) {
  // Anew at each step: another loop (validation) may run on the same runner and transport in
  // between.
  runner.bucket_ready = [this](int stage, int bucket) { start_bucket(stage, bucket); };
  links.transport.set_reporter([this] {
    const Action* at = position.load();
    if (at == nullptr) return std::string("nothing");
    Instr instr = at->instr;
    if (instr.micro >= 0) instr.micro += raised_at.load();
    return hetu::describe(instr, step_of(instr));
  });
  trace = recorder;
  position.store(nullptr);
  step.store(of_step);
  next = {};
  expected = done = 0;
  all_expected = false;
  updates.assign(updates.size(), 0);
  for (Reduction& r : reductions) {
    r.buckets = runner.buckets(r.action->instr);
    r.sums.assign(r.buckets.size(), nullptr);
    r.start_ns = 0;
    r.times = 0;
  }
  runner.begin_step(of_step);
}

// The first receive of the run that is not posted, as far as the run is known; null if there is
// none.
const Action* Interpreter::Impl::next_receive(int& raised) {
  while (next.part < 3) {
    const std::vector<const Action*>& list = receives[next.part];
    if (next.part == 1 && (next.repetition >= expected || list.empty())) {
      if (!all_expected) return nullptr;
    } else if (next.index < list.size()) {
      raised = next.part == 0 ? 0 : next.part == 1 ? next.repetition * row.shift : drain_raised();
      return list[next.index];
    } else if (next.part == 1) {
      ++next.repetition;
      next.index = 0;
      continue;
    }
    ++next.part;
    next.index = 0;
  }
  return nullptr;
}

// Posts receives in row order, up to the window, as far as the runner has room for them.
void Interpreter::Impl::post_ahead() {
  const auto window = static_cast<std::size_t>(std::max(1, links.receive_window));
  int raised = 0;
  while (posted.size() < window) {
    const Action* action = next_receive(raised);
    if (action == nullptr) return;
    Instr instr = action->instr;
    instr.micro += raised;
    const std::optional<Buffer> buffer = runner.in_buffer(instr);
    if (!buffer) return;
    // Both ends name a message by the kind of its SEND.
    const Kind kind = instr.kind == Kind::RecvForward ? Kind::SendForward : Kind::SendBackward;
    const comm::Tag tag = comm::make_tag(static_cast<int>(kind), action->tag_stage, instr.micro,
                                         action->tag_part, step.load());
    posted.push_back(links.transport.recv(action->peer, tag, buffer->data, buffer->bytes));
    ++next.index;
  }
}

void Interpreter::Impl::await_receive(const Instr& instr) {
  if (posted.empty())
    fail(Code::Internal, "{} is reached, and the runner has no buffer for it",
         hetu::describe(instr, step_of(instr)));
  const std::unique_ptr<comm::Request> request = std::move(posted.front());
  posted.pop_front();
  links.transport.wait(*request, [&] { return hetu::describe(instr, step_of(instr)); });
  runner.received(instr, request->completed_ns());
}

void Interpreter::Impl::start_send(const Action& action, const Instr& instr) {
  const Buffer buffer = runner.out_buffer(instr);
  const comm::Tag tag = comm::make_tag(static_cast<int>(instr.kind), action.tag_stage, instr.micro,
                                       action.tag_part, step.load());
  reap_sends();
  sends.push_back({links.transport.send(action.peer, tag, buffer.data, buffer.bytes), buffer.data,
                   instr, step_of(instr)});
}

void Interpreter::Impl::await_send(Sending& sending) {
  links.transport.wait(*sending.request,
                       [&] { return hetu::describe(sending.instr, sending.step); });
}

void Interpreter::Impl::reap_sends() {
  std::erase_if(sends, [&](Sending& s) {
    if (!s.request->done()) return false;
    await_send(s);  // throws if it has failed
    return true;
  });
}

void Interpreter::Impl::await_sends_of(const void* address) {
  std::erase_if(sends, [&](Sending& s) {
    if (s.address != address) return false;
    await_send(s);
    return true;
  });
}

void Interpreter::Impl::before_compute(const Instr& instr) {
  if (sends.empty()) return;
  addresses.clear();
  runner.overwrites(instr, addresses);
  for (const void* address : addresses) await_sends_of(address);
}

Interpreter::Impl::Reduction* Interpreter::Impl::find_reduction(const Instr& instr) {
  for (Reduction& r : reductions) {
    if (r.action->instr.stage == instr.stage && r.action->instr.part == instr.part) return &r;
  }
  return nullptr;
}

void Interpreter::Impl::start_sum(Reduction& reduction, std::size_t k) {
  if (reduction.sums[k]) return;
  if (reduction.start_ns == 0) reduction.start_ns = comm::now_ns();
  const Action& action = *reduction.action;
  const Bucket bucket = runner.bucket(action.instr.stage, reduction.buckets[k]);
  const comm::Tag tag =
      comm::make_tag(static_cast<int>(Kind::ReduceGrad), action.tag_stage, static_cast<int>(k),
                     action.tag_part, step.load() + reduction.times);
  reduction.sums[k] =
      links.reducer.start_sum(action.group, bucket.dtype, bucket.data, bucket.count, tag);
}

// From inside a backward: the bucket belongs to the next REDUCE_GRAD of its stage that has it.
void Interpreter::Impl::start_bucket(int stage, int bucket) {
  const Action* at = position.load();
  if (at == nullptr || !at->sums_follow) return;
  for (Reduction& r : reductions) {
    if (r.action->instr.stage != stage) continue;
    const auto found = std::find(r.buckets.begin(), r.buckets.end(), bucket);
    if (found == r.buckets.end()) continue;
    start_sum(r, static_cast<std::size_t>(found - r.buckets.begin()));
    return;
  }
}

void Interpreter::Impl::reach_reduction(const Instr& instr) {
  Reduction& r = *find_reduction(instr);
  if (r.start_ns == 0) r.start_ns = comm::now_ns();
  for (std::size_t k = 0; k < r.buckets.size(); ++k) start_sum(r, k);
  started.push_back({instr, step.load() + r.times, std::move(r.sums), r.start_ns});
  r.sums.assign(r.buckets.size(), nullptr);
  r.start_ns = 0;
  ++r.times;
}

// All that have been reached: an update waits for every sum that its worker has started (progress.h
// says the same).
void Interpreter::Impl::await_reductions() {
  for (const Started& s : started) {
    std::int64_t done_ns = s.start_ns;
    for (const auto& sum : s.sums) {
      done_ns = std::max(done_ns,
                         links.reducer.wait(*sum, [&] { return hetu::describe(s.instr, s.step); }));
    }
    const std::int64_t end_ns = runner.reduced(s.instr, done_ns);
    if (trace) trace->add(s.instr, s.step, s.start_ns, end_ns);
  }
  started.clear();
}

// The averages of a stage, or of all (-1), that have begun.
void Interpreter::Impl::await_average(int stage) {
  std::erase_if(averaging, [&](const Averaging& a) {
    if (stage >= 0 && a.instr.stage != stage) return false;
    const std::int64_t end_ns = runner.end_average(a.instr.stage);
    if (trace) trace->add(a.instr, a.step, a.start_ns, end_ns);
    return true;
  });
}

// The step of a stage's next update.
int Interpreter::Impl::count_update(int stage) {
  if (static_cast<int>(updates.size()) <= stage) updates.resize(stage + 1, 0);
  return step.load() + updates[stage]++;
}

void Interpreter::Impl::run(const Action& action, int raised) {
  Instr instr = action.instr;
  if (instr.micro >= 0) instr.micro += raised;
  raised_at.store(raised);
  position.store(&action);
  post_ahead();
  int of_step = step_of(instr);
  // What an instruction waits for before it begins is no time of its own; a disturbance is.
  if (is_compute(instr.kind)) before_compute(instr);
  if (instr.kind == Kind::ReduceScalars || instr.kind == Kind::Update) await_reductions();
  if (instr.kind == Kind::Update) await_average(instr.stage);
  const std::int64_t start = comm::now_ns();
  if (is_compute(instr.kind) && links.disturbance) links.disturbance->before();
  const std::int64_t computes = comm::now_ns();
  switch (instr.kind) {
    case Kind::Forward:
      runner.forward(instr.stage, instr.micro);
      break;
    case Kind::Backward:
      runner.backward(instr.stage, instr.micro);
      break;
    case Kind::InputGrad:
      runner.input_grad(instr.stage, instr.micro);
      break;
    case Kind::WeightGrad:
      runner.weight_grad(instr.stage, instr.micro);
      break;
    case Kind::Recompute:
      runner.recompute(instr.stage, instr.micro);
      break;
    case Kind::SendForward:
    case Kind::SendBackward:
      start_send(action, instr);
      break;
    case Kind::RecvForward:
    case Kind::RecvBackward:
      await_receive(instr);
      break;
    case Kind::ReduceGrad:
      reach_reduction(instr);
      return;  // recorded when it is complete
    case Kind::ReduceScalars:
      runner.reduce_scalars(links.transport, of_step);
      break;
    case Kind::Update:
      of_step = count_update(instr.stage);
      runner.update(instr.stage, of_step);
      break;
    case Kind::PartialReduce:
      of_step = step.load() + updates[instr.stage] - 1;
      averaging.push_back({instr, of_step, start});
      runner.begin_average(instr.stage, of_step);
      return;  // recorded when it is complete
  }
  if (links.disturbance && is_compute(instr.kind)) links.disturbance->after(computes);
  if (trace) trace->add(instr, of_step, start, comm::now_ns());
}

Interpreter::Interpreter(Row row, StageRunner& runner, const Links& links)
    : impl_(std::make_unique<Impl>(std::move(row), runner, links)) {}

Interpreter::~Interpreter() = default;

void Interpreter::run_step(int step, TraceRecorder* trace) {
  start(step, {impl_->row.repeat, true}, trace);
  for (int r = 0; r < impl_->row.repeat; ++r) repeat();
  drain();
}

void Interpreter::start(int step, Repetitions known, TraceRecorder* trace) {
  impl_->begin(step, trace);
  expect(known);
  impl_->run_all(impl_->row.prologue, 0);
}

void Interpreter::expect(Repetitions known) {
  HETU_ASSERT(known.count >= impl_->expected && !impl_->all_expected);
  impl_->expected = known.count;
  impl_->all_expected = known.all;
}

void Interpreter::repeat() {
  HETU_ASSERT(impl_->done < impl_->expected);
  impl_->run_all(impl_->row.body, impl_->done * impl_->row.shift);
  ++impl_->done;
}

void Interpreter::drain() {
  HETU_ASSERT(impl_->all_expected && impl_->done == impl_->expected);
  impl_->run_all(impl_->row.drain, impl_->drain_raised());
  impl_->await_reductions();
  impl_->await_average(-1);
}

void Interpreter::finish() {
  for (auto& sending : impl_->sends) impl_->await_send(sending);
  impl_->sends.clear();
}

}  // namespace hetu
