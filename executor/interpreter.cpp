#include "executor/interpreter.h"

#include <algorithm>
#include <atomic>

#include "graph/base/error.h"

namespace hetu {

std::string describe(const Instr& instr, int step) {
  std::string place;
  if (instr.stage >= 0) place = fmt::format("stage {}, ", instr.stage);
  if (instr.micro >= 0) place += fmt::format("micro-batch {}, ", instr.micro);
  return fmt::format("{} ({}step {})", to_string(instr), place, step);
}

std::vector<TraceEvent> TraceRecorder::events(int worker, std::int64_t origin_ns) const {
  std::vector<TraceEvent> events;
  events.reserve(records_.size());
  for (const Record& r : records_) {
    TraceEvent event;
    event.source = TraceSource::Measured;
    event.worker = worker;
    event.kind = kind_name(r.instr.kind);
    event.stage = r.instr.stage;
    event.micro = r.instr.micro;
    event.part = r.instr.part;
    event.step = r.step;
    event.start_us = static_cast<double>(r.start_ns - origin_ns) * 1e-3;
    event.duration_us = static_cast<double>(r.end_ns - r.start_ns) * 1e-3;
    events.push_back(std::move(event));
  }
  return events;
}

struct Interpreter::Impl {
  struct Sending {
    std::unique_ptr<comm::Request> request;
    const void* address;
    Instr instr;
    int step;
  };
  // A REDUCE_GRAD of the row. Its buckets may start before the loop reaches it.
  struct Reduction {
    int index;  // in the row
    std::vector<int> buckets;
    std::vector<std::shared_ptr<comm::Sum>> sums;  // per bucket; null before its start
    std::int64_t start_ns = 0;
    bool reached = false;
    bool awaited = false;
  };

  Impl(std::vector<Action> actions, StageRunner& stage_runner, const Links& with)
      : row(std::move(actions)), runner(stage_runner), links(with) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (is_recv(row[i].instr.kind)) receives.push_back(static_cast<int>(i));
      if (row[i].instr.kind == Kind::ReduceGrad) {
        Reduction reduction;
        reduction.index = static_cast<int>(i);
        reductions.push_back(std::move(reduction));
      }
    }
    posted.resize(row.size());
  }
  ~Impl() {
    links.transport.set_reporter({});
    runner.bucket_ready = [](int, int) {};
  }

  void run(int index);
  void begin(int of_step, TraceRecorder* recorder);
  void post_ahead(int index);
  void await_receive(int index);
  void start_send(const Action& action);
  void await_sends_of(const void* address);
  void reap_sends();
  void await_send(Sending& sending);
  void before_compute(const Instr& instr);
  void start_bucket(int stage, int bucket);
  void start_sum(Reduction& reduction, std::size_t k);
  void reach_reduction(int index);
  void await_reductions();

  std::vector<Action> row;
  StageRunner& runner;
  Links links;
  TraceRecorder* trace = nullptr;
  std::atomic<int> position{0};
  std::atomic<int> step{0};

  std::vector<int> receives;                           // indices into the row
  std::size_t next_receive = 0;                        // of `receives`: the first not posted
  std::size_t received = 0;                            // of `receives`: how many are complete
  std::vector<std::unique_ptr<comm::Request>> posted;  // by index in the row
  std::vector<Sending> sends;                          // in order of their start
  std::vector<Reduction> reductions;                   // in row order
  std::vector<const void*> addresses;
};

void Interpreter::Impl::begin(int of_step, TraceRecorder* recorder) {
  // Anew at each step: another loop (validation) may run on the same runner and transport in
  // between.
  runner.bucket_ready = [this](int stage, int bucket) { start_bucket(stage, bucket); };
  links.transport.set_reporter([this] {
    const int at = position.load();
    return row.empty() ? std::string("nothing")
                       : hetu::describe(row[static_cast<std::size_t>(at)].instr, step.load());
  });
  trace = recorder;
  position.store(0);
  step.store(of_step);
  next_receive = received = 0;
  for (Reduction& r : reductions) {
    r.buckets = runner.buckets(row[r.index].instr);
    r.sums.assign(r.buckets.size(), nullptr);
    r.reached = r.awaited = false;
    r.start_ns = 0;
  }
  runner.begin_step(of_step);
}

// Posts receives in row order, up to the window, as far as the runner has room for them.
void Interpreter::Impl::post_ahead(int index) {
  const auto window = static_cast<std::size_t>(std::max(1, links.receive_window));
  while (next_receive < receives.size() && next_receive - received < window) {
    const int at = receives[next_receive];
    const Action& action = row[static_cast<std::size_t>(at)];
    const std::optional<Buffer> buffer = runner.in_buffer(action.instr);
    if (!buffer) {
      if (at == index)
        fail(Code::Internal, "{} is reached, and the runner has no buffer for it",
             hetu::describe(action.instr, step.load()));
      return;
    }
    // Both ends name a message by the kind of its SEND.
    const Kind kind =
        action.instr.kind == Kind::RecvForward ? Kind::SendForward : Kind::SendBackward;
    const comm::Tag tag = comm::make_tag(static_cast<int>(kind), action.tag_stage,
                                         action.instr.micro, action.tag_part, step.load());
    posted[static_cast<std::size_t>(at)] =
        links.transport.recv(action.peer, tag, buffer->data, buffer->bytes);
    ++next_receive;
  }
}

void Interpreter::Impl::await_receive(int index) {
  const Instr& instr = row[static_cast<std::size_t>(index)].instr;
  std::unique_ptr<comm::Request> request = std::move(posted[static_cast<std::size_t>(index)]);
  links.transport.wait(*request, [&] { return hetu::describe(instr, step.load()); });
  ++received;
  runner.received(instr, request->completed_ns());
}

void Interpreter::Impl::start_send(const Action& action) {
  const Buffer buffer = runner.out_buffer(action.instr);
  const comm::Tag tag = comm::make_tag(static_cast<int>(action.instr.kind), action.tag_stage,
                                       action.instr.micro, action.tag_part, step.load());
  reap_sends();
  sends.push_back({links.transport.send(action.peer, tag, buffer.data, buffer.bytes), buffer.data,
                   action.instr, step.load()});
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

void Interpreter::Impl::start_sum(Reduction& reduction, std::size_t k) {
  if (reduction.sums[k]) return;
  if (reduction.start_ns == 0) reduction.start_ns = comm::now_ns();
  const Action& action = row[static_cast<std::size_t>(reduction.index)];
  const Bucket bucket = runner.bucket(action.instr.stage, reduction.buckets[k]);
  const comm::Tag tag = comm::make_tag(static_cast<int>(Kind::ReduceGrad), action.tag_stage,
                                       static_cast<int>(k), action.tag_part, step.load());
  reduction.sums[k] =
      links.reducer.start_sum(action.group, bucket.dtype, bucket.data, bucket.count, tag);
}

// From inside a backward: the bucket belongs to the next REDUCE_GRAD of its stage that has it.
void Interpreter::Impl::start_bucket(int stage, int bucket) {
  for (Reduction& r : reductions) {
    if (r.reached || row[static_cast<std::size_t>(r.index)].instr.stage != stage) continue;
    const auto found = std::find(r.buckets.begin(), r.buckets.end(), bucket);
    if (found == r.buckets.end()) continue;
    start_sum(r, static_cast<std::size_t>(found - r.buckets.begin()));
    return;
  }
}

void Interpreter::Impl::reach_reduction(int index) {
  for (Reduction& r : reductions) {
    if (r.index != index) continue;
    r.reached = true;
    if (r.start_ns == 0) r.start_ns = comm::now_ns();
    for (std::size_t k = 0; k < r.buckets.size(); ++k) start_sum(r, k);
  }
}

// All that have been reached: an update waits for every sum that its worker has started (progress.h
// says the same).
void Interpreter::Impl::await_reductions() {
  for (Reduction& r : reductions) {
    const Action& action = row[static_cast<std::size_t>(r.index)];
    if (!r.reached || r.awaited) continue;
    std::int64_t done_ns = r.start_ns;
    for (auto& sum : r.sums) {
      done_ns = std::max(done_ns, links.reducer.wait(*sum, [&] {
        return hetu::describe(action.instr, step.load());
      }));
    }
    r.awaited = true;
    const std::int64_t end_ns = runner.reduced(action.instr, done_ns);
    if (trace) trace->add(action.instr, step.load(), r.start_ns, end_ns);
  }
}

void Interpreter::Impl::run(int index) {
  const Action& action = row[static_cast<std::size_t>(index)];
  const Instr& instr = action.instr;
  position.store(index);
  post_ahead(index);
  const std::int64_t start = comm::now_ns();
  switch (instr.kind) {
    case Kind::Forward:
      before_compute(instr);
      runner.forward(instr.stage, instr.micro);
      break;
    case Kind::Backward:
      before_compute(instr);
      runner.backward(instr.stage, instr.micro);
      break;
    case Kind::InputGrad:
      before_compute(instr);
      runner.input_grad(instr.stage, instr.micro);
      break;
    case Kind::WeightGrad:
      before_compute(instr);
      runner.weight_grad(instr.stage, instr.micro);
      break;
    case Kind::Recompute:
      before_compute(instr);
      runner.recompute(instr.stage, instr.micro);
      break;
    case Kind::SendForward:
    case Kind::SendBackward:
      start_send(action);
      break;
    case Kind::RecvForward:
    case Kind::RecvBackward:
      await_receive(index);
      break;
    case Kind::ReduceGrad:
      reach_reduction(index);
      return;  // recorded when it is complete
    case Kind::ReduceScalars:
      await_reductions();
      runner.reduce_scalars(links.transport, step.load());
      break;
    case Kind::Update:
      await_reductions();
      runner.update(instr.stage, step.load());
      break;
  }
  if (trace) trace->add(instr, step.load(), start, comm::now_ns());
}

Interpreter::Interpreter(std::vector<Action> row, StageRunner& runner, const Links& links)
    : impl_(std::make_unique<Impl>(std::move(row), runner, links)) {}

Interpreter::~Interpreter() = default;

void Interpreter::run_step(int step, TraceRecorder* trace) {
  impl_->begin(step, trace);
  const int size = static_cast<int>(impl_->row.size());
  for (int i = 0; i < size; ++i) impl_->run(i);
  impl_->await_reductions();
}

void Interpreter::finish() {
  for (auto& sending : impl_->sends) impl_->await_send(sending);
  impl_->sends.clear();
}

}  // namespace hetu
