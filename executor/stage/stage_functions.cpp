// Runs compiled functions launch by launch. Three cases need care:
// Sums. The first gradient of a sum is written straight into the accumulator ("direct"). Later
// gradients are computed elsewhere and added, unless the kernel itself adds to the sum.
// Replays. A function that runs again with the same addresses and constants is replayed as one (a
// CUDA graph). Its key holds everything that decides what is launched; step and sample offset
// change from run to run and are read from device memory (RunCounters).
// Short batches. A validation or prediction run may end with fewer samples. Kernels are then
// prepared for that number of samples, and up to kKept such functions are kept. One more drops
// them all.
#include "executor/stage/stage_functions.h"

#include <algorithm>

#include "base/error.h"
#include "executor/stage/kernel_errors.h"

namespace hetu {

StageFunctions::StageFunctions(const Graph& graph, const StagePlan& plan,
                               const StepContext& context, Device& device, StageMemory& memory,
                               GradientBuckets& gradients)
    : graph_(graph),
      plan_(plan),
      context_(context),
      device_(device),
      memory_(memory),
      gradients_(gradients) {
  for (const Node& node : graph.nodes) {
    inputs_.resize(std::max(inputs_.size(), node.inputs.size()));
    outputs_.resize(std::max(outputs_.size(), node.outputs.size()));
  }
  if (!context.repeats) return;
  counters_ = device.alloc_for(sizeof(RunCounters), "the counters of recorded work");
}

void StageFunctions::launch(const Launch& l, int micro, const RunContext& context) {
  for (std::size_t i = 0; i < l.inputs.size(); ++i) inputs_[i] = memory_.at(l.inputs[i], micro);
  for (std::size_t i = 0; i < l.outputs.size(); ++i) outputs_[i] = memory_.at(l.outputs[i], micro);
  void* const scratch = scratch_ != nullptr ? scratch_ : memory_.at(l.scratch, micro);
  const PreparedKernel& kernel = l.of_second && micro % 2 == 1 ? *l.of_second : *l.kernel;
  const bool adds = l.sum_of_use != kNone && !gradients_.is_fresh(l.sum_of_use);  // not in a tree
  const auto& body = adds ? kernel.add : kernel.run;
  const RunningKernel running = {&graph_, l.node, plan_.micro_batch, context_.first_micro};
  const auto run_body = [&body, running](const KernelCall& call) {
    try {
      body(call);
    } catch (const Error&) {
      rethrow_with_place(running, call.run);
    }
  };
  if (device_.queue().at_once())
    return run_body({inputs_.data(), outputs_.data(), scratch, context});
  const std::vector<const void*> from(inputs_.begin(), inputs_.begin() + l.inputs.size());
  const std::vector<void*> to(outputs_.begin(), outputs_.begin() + l.outputs.size());
  device_.queue().run([run_body, from, to, scratch, context](AddressMap at) {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const void* address : from) inputs.push_back(at(address));
    for (void* address : to) outputs.push_back(at(address));
    RunContext now = context;
    // Host kernels don't read the counters themselves.
    if (context.counters != nullptr && at.is_readable()) {
      now.step = at(context.counters)->step;
      now.sample_offset = at(context.counters)->sample_offset;
    }
    run_body({inputs.data(), outputs.data(), at(scratch), now});
  });
}

// Launches a kernel. The first micro-batch's gradient is written straight into the accumulator.
void StageFunctions::compute(const Launch& l, std::span<const Accumulate> accumulates, int micro,
                             const RunContext& run) {
  if (l.rows_of_use != kNone) return add_rows(l, micro);
  const auto is_direct = [&](const Accumulate& a) { return this->is_direct(a, micro); };
  if (std::none_of(accumulates.begin(), accumulates.end(), is_direct)) return launch(l, micro, run);
  Launch redirected = l;  // a handful of locations, once per parameter and step
  for (const Accumulate& a : accumulates)
    if (is_direct(a)) redirected.outputs[a.output] = gradients_.place(a.use, leaf(micro));
  launch(redirected, micro, run);
}

bool StageFunctions::is_direct(const Accumulate& a, int micro) const {
  return a.output >= 0 && gradients_.is_first(a.use, leaf(micro));
}

// Computes a gradient that is stored by rows. The first one of a sum is added to zeros. Later ones
// are completed in the staging area first, so that the sum has the bits of the dense sum.
void StageFunctions::add_rows(const Launch& l, int micro) {
  const StageUse& use = plan_.uses[l.rows_of_use];
  const bool first = gradients_.is_fresh(l.rows_of_use);
  HETU_ASSERT(first || use.staged.region == Region::Accumulator);
  float* const to = memory_.floats(first ? use.accumulator : use.staged);
  const TouchedRows touched = memory_.rows(use, first ? use.touched : use.staged_touched);
  const RowsOf rows = {static_cast<const std::int32_t*>(memory_.at(l.inputs[0], micro)),
                       static_cast<const float*>(memory_.at(l.inputs[1], micro)),
                       micro % 2 == 1 ? l.second_row_count : l.row_count};
  outputs_[0] = to;
  device_.queue().run([to, touched, rows, scatter = device_.kernels().scatter_rows](AddressMap at) {
    scatter(at(to), to_kernel_addresses(touched, at), {at(rows.ids), at(rows.values), rows.count});
  });
}

void StageFunctions::add_staged(const StageUse& use) {
  device_.queue().run([to = memory_.floats(use.accumulator), from = memory_.floats(use.staged),
                       of_to = memory_.rows(use, use.touched),
                       of_from = memory_.rows(use, use.staged_touched),
                       merge = device_.kernels().merge_rows](AddressMap at) {
    merge(at(to), to_kernel_addresses(of_to, at), at(from), to_kernel_addresses(of_from, at));
  });
}

int StageFunctions::number_of(int micro, bool half) const {
  const int whole = half ? micro / 2 : micro;
  return context_.first_micro + whole % context_.micro_batches;
}

RunContext StageFunctions::context_of(int micro, bool half) const {
  RunContext run;
  run.seed = context_.seed;
  run.training = context_.training;
  run.loss_scale = context_.loss_scale;
  run.step = context_.step + context_.step_of(half ? micro / 2 : micro);
  run.sample_offset = number_of(micro, half) * plan_.micro_batch;
  if (half && micro % 2 == 1) run.sample_offset += (plan_.micro_batch + 1) / 2;
  return run;
}

// Returns true if the function may be replayed. It may not if the host waits between kernels or the
// launches differ each time: gradients that become final start their sums, and functions of short
// batches are temporary.
bool StageFunctions::may_repeat(const Function& function, const How& how) const {
  const bool timed = context_.training && how.timed && context_.block_times != nullptr;
  const bool taps = context_.feeds_factors && context_.training && !function.taps.empty();
  const bool logs = context_.training && context_.tensor_log != nullptr;
  return counters_ && !how.last && !timed && !taps && !logs && scratch_ == nullptr;
}

// Returns the key of a replay: everything that decides what is launched with which addresses and
// constants.
std::string StageFunctions::key_of(const Function& function, int micro, const How& how) const {
  std::string key;
  const auto add = [&key](const auto& value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  add(reinterpret_cast<std::uintptr_t>(&function));
  add(context_.training);
  add(context_.loss_scale);
  add(micro % 2);
  memory_.append_slots(micro, key);
  if (how.half) memory_.append_slots(micro / 2, key);
  for (const Accumulate& a : function.accumulates) gradients_.append_state(a.use, leaf(micro), key);
  key.append(context_.nodes.begin(), context_.nodes.end());
  return key;
}

void StageFunctions::run(const Function& function, int micro, How how) {
  RunContext run = context_of(micro, how.half);
  if (!may_repeat(function, how)) return run_launches(function, micro, how, run);
  auto* const counters = reinterpret_cast<RunCounters*>(counters_.get());
  device_.queue().run(
      [counters, now = RunCounters{run.step, run.sample_offset},
       set = device_.kernels().set_counters](AddressMap at) { set(at(counters), now); });
  run.counters = counters;
  const bool repeated = device_.queue().repeat(key_of(function, micro, how),
                                               [&] { run_launches(function, micro, how, run); });
  if (!repeated) return;
  // A replay filled the accumulators without calling accumulate().
  for (const Accumulate& a : function.accumulates) gradients_.filled(a.use, leaf(micro));
}

void StageFunctions::run_launches(const Function& function, int micro, const How& how,
                                  const RunContext& run) {
  const bool half = how.half;
  const int of_all = number_of(micro, half);
  std::size_t next = 0;
  BlockTimes* const times = context_.training && how.timed ? context_.block_times : nullptr;
  const bool logs = context_.training && !half && context_.tensor_log != nullptr;
  if (times != nullptr) times->begin();
  const auto& accumulates = function.accumulates;
  const bool taps = context_.feeds_factors && context_.training && !function.taps.empty();
  if (taps) keep_taps(function, -1, micro);
  for (int i = 0; i < static_cast<int>(function.launches.size()); ++i) {
    const Launch& l = function.launches[i];
    if (!context_.needs(l.node) || (l.packs && !is_read(l))) continue;
    const std::size_t first = next;
    while (next < accumulates.size() && accumulates[next].after_launch == i) ++next;
    compute(l, {accumulates.data() + first, next - first}, micro, run);
    if (taps) keep_taps(function, i, micro);
    if (logs) log(l, {accumulates.data() + first, next - first}, micro, of_all);
    for (std::size_t a = first; a < next; ++a) accumulate(accumulates[a], micro, how.last);
    if (times == nullptr) continue;
    device_.queue().record().wait();
    times->ran(l.node);
  }
  if (times != nullptr) times->end();
}

// Returns true if the run reads this packed weight. Validation doesn't run the backward kernels.
bool StageFunctions::is_read(const Launch& packing) const {
  return context_.training || graph_.nodes[packing.node].phase == Phase::Forward;
}

// Returns true if the results of the launch can be compared with those of a single process. Partial
// sums depend on which copy of the stage has which micro-batches, and the plan decides how often a
// weight is rounded.
bool StageFunctions::is_comparable(const Launch& l) const {
  const Node& node = graph_.nodes[l.node];
  const bool of_weight = node.op == "cast" && is_leaf(graph_.producer(node.inputs[0]));
  return l.sum_of_use == kNone && !of_weight && !l.packs;
}

void StageFunctions::keep_taps(const Function& function, int after_launch, int micro) {
  for (const Tap& tap : function.taps) {
    if (tap.after_launch == after_launch)
      device_.queue().copy(memory_.at(tap.to, micro), memory_.at(tap.from, micro), tap.bytes);
  }
}

void StageFunctions::run_samples(const Function& function, int micro) {
  const std::int64_t samples = context_.samples_of(micro, plan_.micro_batch);
  if (samples == plan_.micro_batch) return run(function, micro, {});
  if (samples == 0) return;
  const Function& fewer = of_samples(function, samples);
  scratch_ = short_scratch_.get();
  run(fewer, micro, {});
  scratch_ = nullptr;
}

// Returns the function compiled for `samples` samples; compiles it on first use.
const Function& StageFunctions::of_samples(const Function& function, std::int64_t samples) {
  const auto found = short_.find({&function, samples});
  if (found != short_.end()) return found->second;
  device_.queue().record().wait();  // functions to be deleted may still run
  if (short_.size() >= kKept) short_.clear();
  Function made = with_samples(graph_, plan_, function, samples);
  if (made.scratch_bytes > short_scratch_bytes_) {
    short_scratch_bytes_ = 0;
    short_scratch_.reset();
    short_scratch_ = device_.alloc_for(made.scratch_bytes, "the scratch memory of a short batch");
    short_scratch_bytes_ = made.scratch_bytes;
  }
  return short_.emplace(std::pair(&function, samples), std::move(made)).first->second;
}

// Logs the results of the last launch, and of nodes left out because they would only copy such a
// result.
void StageFunctions::log(const Launch& l, std::span<const Accumulate> accumulates, int micro,
                         int of_all) {
  if (is_comparable(l))
    log(l.node, {outputs_.begin(), outputs_.begin() + std::ssize(l.outputs)}, of_all);
  for (const Accumulate& a : accumulates)
    if (a.copied_by != kNone)
      log(a.copied_by,
          {memory_.at(is_direct(a, micro) ? gradients_.place(a.use, leaf(micro)) : a.gradient,
                      micro)},
          of_all);
}

void StageFunctions::log(NodeId node, std::vector<void*> results, int of_all) {
  std::vector<std::vector<std::byte>> copies;
  if (!device_.in_host_memory()) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      const TensorType& type = graph_.values[graph_.nodes[node].outputs[i]].type;
      const std::int64_t bytes =
          element_count(bind_batch(type.shape, plan_.micro_batch)) * dtype_bytes(type.dtype);
      copies.emplace_back(static_cast<std::size_t>(bytes));
      device_.queue().download(copies.back().data(), results[i], bytes);
      results[i] = copies.back().data();
    }
    device_.queue().record().wait();
  }
  context_.tensor_log->ran(node, plan_.stage, of_all, plan_.micro_batch, results.data());
}

void StageFunctions::add_gradient(const Accumulate& a, int micro) {
  const StageUse& use = plan_.uses[a.use];
  const std::int64_t elements = plan_.parameters[use.parameter].elements;
  float* const sum = memory_.floats(gradients_.place(a.use, leaf(micro)));
  if (!gradients_.is_first(a.use, leaf(micro))) {
    device_.queue().run(
        [sum, from = static_cast<const float*>(memory_.at(a.gradient, micro)), elements,
         add = device_.kernels().add](AddressMap at) { add(at(sum), at(from), elements); });
  } else if (a.output < 0) {
    device_.queue().copy(sum, memory_.at(a.gradient, micro), elements * 4);
  }
}

void StageFunctions::accumulate(const Accumulate& a, int micro, bool last) {
  const StageUse& use = plan_.uses[a.use];
  if (use.width > 0) {
    if (!gradients_.is_fresh(a.use)) add_staged(use);
  } else if (!a.in_place) {
    add_gradient(a, micro);
    gradients_.merge(a.use, leaf(micro));
  }
  gradients_.filled(a.use, leaf(micro));
  const StageParameter& parameter = plan_.parameters[use.parameter];
  if (parameter.uses.size() == 1 && last) gradients_.parameter_done(use.parameter);
}

}  // namespace hetu
