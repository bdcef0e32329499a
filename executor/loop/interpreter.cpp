#include "executor/loop/interpreter.h"

#include <algorithm>

#include "executor/loop/interpreter_impl.h"
#include "graph/base/error.h"

namespace hetu {

Interpreter::Impl::Impl(Row bound, StageRunner& stage_runner, const Links& with)
    : row(std::move(bound)), runner(stage_runner), links(with) {
  const std::vector<Action>* parts[] = {&row.prologue, &row.body, &row.drain};
  for (int part = 0; part < 3; ++part) {
    for (const Action& action : *parts[part]) {
      if (is_recv(action.instr.kind)) way_of(action.instr.kind).receives[part].push_back(&action);
      if (action.instr.kind == Kind::ReduceGrad && !find_reduction(action.instr))
        reductions.push_back({&action, {}, 0, {}, 0});
    }
  }
}

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
  for (Way& way : ways) way.next = {};
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
  // What an instruction waits for before it begins is no time of its own; an injected delay is.
  if (is_compute(instr.kind)) before_compute(instr);
  if (instr.kind == Kind::ReduceScalars || instr.kind == Kind::Update) await_reductions();
  if (instr.kind == Kind::Update) await_average(instr.stage);
  const std::int64_t start = comm::now_ns();
  if (is_compute(instr.kind) && links.injector) links.injector->before();
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
  if (links.injector && is_compute(instr.kind)) links.injector->after(computes);
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
  if (impl_->row.forwards_first)
    impl_->run_by_rule();
  else
    impl_->run_all(impl_->row.drain, impl_->drain_raised());
  impl_->await_reductions();
  impl_->await_average(-1);
}

void Interpreter::finish() {
  for (auto& sending : impl_->sends) impl_->await_send(sending);
  impl_->sends.clear();
}

}  // namespace hetu
