#include <algorithm>

#include "executor/loop/interpreter_impl.h"

namespace hetu {

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

}  // namespace hetu
