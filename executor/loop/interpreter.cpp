// The loop follows a row in three parts: the prologue once, the body as often as the run needs it,
// the drain once. Micro-batch ids of a repetition are those of the first one raised by `shift` per
// repetition. For example, a body "F1 B0" with shift 1 runs F1 B0, F2 B1, F3 B2.
//
// Before each instruction the loop starts sends whose data is ready and posts further receives.
// It blocks only for a receive that has not arrived, for a buffer that a send still reads, for
// weight synchronisation (before an update, an inversion or a PRECONDITION, and in PUSH and PULL),
// and in REDUCE_SCALARS. Before the loop blocks, it starts all of its own due sends, because
// another worker may need them to proceed.
#include "executor/loop/interpreter.h"

#include <algorithm>

#include "base/error.h"
#include "executor/loop/interpreter_impl.h"
#include "executor/loop/work_time.h"

namespace hetu {

Interpreter::Impl::Impl(Row bound, Stages& of_worker, const Links& with)
    : row(std::move(bound)),
      stages(of_worker),
      links(with),
      messages(row, stages, links.transport, links.direct, links.receive_window) {
  for (WeightSync* sync : links.syncs) sync->follow(row);
}

void Interpreter::Impl::begin(int of_step, bool asks_to_stop, TraceRecorder* recorder) {
  // Set again for each run, because another loop (validation) may use the same stages and transport
  // in between.
  stages.bucket_ready = [this](int stage, int bucket) {
    const Action* at = position.load();
    if (at == nullptr) return;
    for (WeightSync* sync : links.syncs) sync->after_backward(*at, stage, bucket);
  };
  // The answer to a peer whose wait timed out and that asks for this worker's position.
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
  messages.begin(of_step);
  done = 0;
  updates.assign(updates.size(), 0);
  for (WeightSync* sync : links.syncs) {
    sync->begin(row, of_step, [this](const Instr& i, int at, std::int64_t from, std::int64_t to) {
      if (trace) trace->add(i, at, from, to);
    });
  }
  stages.begin_run(of_step, asks_to_stop);
}

// Returns the step of a stage's next update. last_update_step() returns that of its last one.
int Interpreter::Impl::count_update(int stage) {
  if (static_cast<int>(updates.size()) <= stage) updates.resize(stage + 1, 0);
  return step.load() + updates[stage]++ / row.updates_per_step;
}

int Interpreter::Impl::last_update_step(int stage) const {
  const int count = stage < static_cast<int>(updates.size()) ? updates[stage] : 0;
  return step.load() + (count - 1) / row.updates_per_step;
}

WeightSync& Interpreter::Impl::sync_of(const Instr& instr) {
  for (WeightSync* sync : links.syncs)
    if (sync->carries_out(instr.kind)) return *sync;
  fail(Code::Plan, "{}: this job has no weight synchronisation that runs this instruction",
       to_string(instr));
}

void Interpreter::Impl::wait_for_syncs(int stage) {
  if (links.syncs.empty()) return;
  messages.start_due_sends(true);
  for (WeightSync* sync : links.syncs) sync->wait(stage);
}

void Interpreter::Impl::run(const Action& action, int raised) {
  Instr instr = action.instr;
  if (instr.micro >= 0) instr.micro += raised;
  raised_at.store(raised);
  position.store(&action);
  messages.start_due_sends(false);
  messages.post_ahead();
  const std::optional<Done> result = carry_out(action, instr);
  if (result && is_compute(instr.kind) && result->end.at_once())
    WorkTime::add(result->end.wait() - result->start_ns);
  if (!result || trace == nullptr) return;
  const bool ended = result->end.at_once();
  trace->add(instr, result->step, result->start_ns, ended ? result->end.wait() : result->start_ns);
  if (!ended) running.push_back({trace->records().size() - 1, result->end});
}

// Each case waits for what the kind needs, and then begins. The time of an instruction excludes
// these waits.
std::optional<Interpreter::Impl::Done> Interpreter::Impl::carry_out(const Action& action,
                                                                    const Instr& instr) {
  switch (instr.kind) {
    case Kind::Forward:
    case Kind::Backward:
    case Kind::InputGrad:
    case Kind::WeightGrad:
    case Kind::Recompute:
      messages.await_room(instr);
      return compute(instr);
    case Kind::SendForward:
    case Kind::SendBackward:
      return timed(instr, [&] { messages.send(action, instr); });
    case Kind::RecvForward:
    case Kind::RecvBackward:
      return timed(instr, [&] { messages.await_receive(instr); });
    case Kind::ReduceScalars:
      wait_for_syncs(WeightSync::kAllStages);
      return reduce_scalars(instr);
    case Kind::Update:
      wait_for_syncs(instr.stage);
      return update(instr);
    case Kind::CurvatureA:
    case Kind::CurvatureB:
      return compute(instr);
    case Kind::InvertA:
    case Kind::InvertB:
      messages.start_due_sends(true);
      for (WeightSync* sync : links.syncs) sync->wait_for_factors();
      return compute(instr);
    case Kind::Precondition:
      wait_for_syncs(instr.stage);
      return compute(instr);
    case Kind::ReduceGrad:
    case Kind::PartialReduce:
    case Kind::Push:
    case Kind::Pull:
    case Kind::SyncA:
    case Kind::SyncB:
    case Kind::Gather:
      synchronise(action, instr);
      return std::nullopt;  // recorded when it is complete
  }
  fail(Code::Internal, "{}: the loop does not know this instruction", to_string(instr));
}

// The time includes an injected delay.
Interpreter::Impl::Done Interpreter::Impl::compute(const Instr& instr) {
  Done result{step_of(instr), comm::now_ns(), {}};
  const bool injected = is_compute(instr.kind) && links.injector != nullptr;
  if (injected) links.injector->before();
  const std::int64_t computes = comm::now_ns();
  if (instr.kind == Kind::Forward && links.feeds != nullptr)
    links.feeds->begin(result.step - step.load());
  result.end = stages.run(instr, result.step);
  if (!injected) return result;
  result.end.wait();
  links.injector->after(computes);
  result.end = Event(comm::now_ns());
  return result;
}

Interpreter::Impl::Done Interpreter::Impl::reduce_scalars(const Instr& instr) {
  Done result{step_of(instr), comm::now_ns(), {}};
  messages.start_due_sends(true);
  stages.queue_scalars();
  if (links.feeds != nullptr) links.feeds->upload_next();
  result.end = stages.run(instr, result.step);
  return result;
}

Interpreter::Impl::Done Interpreter::Impl::update(const Instr& instr) {
  Done result{count_update(instr.stage), comm::now_ns(), {}};
  stages.begin_update(instr.stage, result.step);
  for (WeightSync* sync : links.syncs) sync->before_update(instr.stage);
  result.end = stages.run(instr, result.step);
  for (WeightSync* sync : links.syncs) sync->after_update(instr.stage);
  return result;
}

void Interpreter::Impl::synchronise(const Action& action, const Instr& instr) {
  const std::int64_t start = comm::now_ns();
  const bool sleeps = instr.kind == Kind::Push || instr.kind == Kind::Pull;
  if (sleeps) messages.start_due_sends(true);
  sync_of(instr).run_instruction(action, last_update_step(instr.stage), start);
}

// Records the times of instructions that had not ended when they were added to the trace. On the
// device an instruction begins when its predecessor has ended.
void Interpreter::Impl::note_running() {
  std::int64_t free_ns = 0;
  for (const Running& r : running) {
    const std::int64_t end_ns = r.end.wait();
    if (trace) trace->set_times(r.record, free_ns, end_ns);
    free_ns = end_ns;
  }
  running.clear();
}

Interpreter::Interpreter(Row row, Stages& stages, const Links& links)
    : impl_(std::make_unique<Impl>(std::move(row), stages, links)) {}

Interpreter::~Interpreter() = default;

void Interpreter::run_step(int step, TraceRecorder* trace) {
  start(step, {impl_->row.repeat, true}, trace);
  for (int r = 0; r < impl_->row.repeat; ++r) repeat();
  drain();
}

void Interpreter::start(int step, Repetitions known, TraceRecorder* trace, bool asks_to_stop) {
  impl_->begin(step, asks_to_stop, trace);
  expect(known);
  impl_->run_all(impl_->row.prologue, 0);
}

void Interpreter::expect(Repetitions known) { impl_->messages.expect(known.count, known.all); }

void Interpreter::repeat() {
  HETU_ASSERT(impl_->done < impl_->messages.expected());
  impl_->run_all(impl_->row.body, impl_->done * impl_->row.shift);
  ++impl_->done;
}

void Interpreter::drain() {
  HETU_ASSERT(impl_->messages.all_expected() && impl_->done == impl_->messages.expected());
  if (impl_->row.forwards_first)
    impl_->run_by_rule();
  else
    impl_->run_all(impl_->row.drain, impl_->messages.drain_raised());
  impl_->messages.start_due_sends(true);
  for (WeightSync* sync : impl_->links.syncs) sync->end_of_run();
  impl_->note_running();
}

void Interpreter::finish() { impl_->messages.finish(); }

}  // namespace hetu
