// The comparison relies on one property: a synchronous step computes the same kernels on the same
// micro-batches under every layout. Each worker logs a checksum and a small sketch of every tensor
// that it computes (TensorLog). Worker 0 repeats the step with one stage and gathers the logs. It
// looks up each record by kind, tensor and micro-batch, and reports the first difference in the
// order of the single process.
//
// Unless sums are in a tree, the order of additions in gradient sums may differ, with several
// pipelines or copies for example. Then the sums are compared within a tolerance and replaced in
// the single process by those of the run, so that the comparison of later steps stays bitwise.
#include "executor/job/compare_single.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "executor/device/threads.h"
#include "net/transport/gather.h"
#include "net/transport/inproc.h"
#include "net/transport/tag_kinds.h"

namespace hetu {
namespace {

using Content = TensorRecord::Content;

// Returns options for the same training without a pipeline. The number of threads differs from the
// run's, which must change no bit: equal numbers would hide a kernel whose bits depend on it.
JobOptions alone(const JobOptions& run) {
  JobOptions one;
  one.micro_batches = micros_before(run, run.pipelines);
  one.batch_size = run.batch_size / run.micro_batches * one.micro_batches;
  one.seed = run.seed;
  one.threads = thread_count() == 1 ? 2 : 1;
  one.kernels = run.kernels;
  one.dtype = run.dtype;
  one.state_dtype = run.state_dtype;
  one.loss_scale = run.loss_scale;
  one.fuse = run.fuse;
  one.sums = run.sums;
  return one;
}

const char* phase_text(Phase phase) {
  switch (phase) {
    case Phase::Count:
      return "count";
    case Phase::Forward:
      return "forward";
    case Phase::InputGrad:
      return "input gradient";
    case Phase::WeightGrad:
      return "weight gradient";
  }
  return "";
}

}  // namespace

bool adds_in_order(const Schedule& plan, int pipelines) {
  if (pipelines > 1 || plan.half_micros ||
      static_cast<int>(plan.placements.size()) != model_stages(plan))
    return false;
  std::vector<int> last(plan.placements.size(), kNone);
  for (const Program& program : plan.workers) {
    for (const Instr& i : unroll(program)) {
      if (i.kind != Kind::Backward && i.kind != Kind::WeightGrad) continue;
      if (i.micro < last[i.stage]) return false;
      last[i.stage] = i.micro;
    }
  }
  return true;
}

// A tensor of a worker that differs from that of the single process.
struct CompareSingle::Found {
  std::size_t order = 0;  // its position in the log of the single process
  int worker = 0;
  TensorRecord mine, wanted;
};

CompareSingle::CompareSingle(const Graph& graph, Job& run)
    : run_(run),
      transport_(run.transport()),
      log_(run.plan().graph),
      bitwise_(!run.plan().sums.copies.empty() ||
               adds_in_order(run.plan().lowered, run.plan().options.pipelines)) {
  require(!run.plan().asynchronous,
          "compare-single: '{}' is asynchronous, and a single process cannot compute the same "
          "weights; use a synchronous method",
          run.plan().lowered.method);
  require(run.plan().options.wire == "float32",
          "compare-single: --wire {} rounds gradients that are sent between workers, and a single "
          "process sends none; remove --wire",
          run.plan().options.wire);
  require(!has_served_tables(graph),
          "compare-single: the model has tables on parameter servers, and a single process has no "
          "servers; keep the tables on the workers");
  if (transport_.worker() == 0) {
    links_ = comm::make_inproc(1);
    const JobOptions one = alone(run.plan().options);
    const ScopedThreadCount other(one.threads);
    single_ = std::make_unique<Job>(graph, run.optimizer(), one, *links_[0]);
    single_log_ = std::make_unique<TensorLog>(single_->plan().graph);
    single_->log_tensors(single_log_.get());
    single_->on_gradients([this] { replace_sums(); });
  }
  // Last, because nothing resets the run if a later statement throws.
  run_.set_twin(single_.get());
  run_.log_tensors(&log_);
}

CompareSingle::~CompareSingle() {
  run_.log_tensors(nullptr);
  run_.set_twin(nullptr);
}

std::vector<FeedSpec> CompareSingle::fields() const {
  return single_ ? single_->plan().fields : std::vector<FeedSpec>();
}

void CompareSingle::begin() {
  if (std::exchange(begun_, true)) return;
  log_.clear();
  run_.log_state(log_, Content::Weight);
  if (single_) single_->log_state(*single_log_, Content::Weight);
  compare(gather(run_.step()), " before the step", run_.step());
}

// Takes the step that follows in the single process.
StepResult CompareSingle::repeat(const std::vector<BatchStream*>& pipelines) {
  const ScopedThreadCount other(single_->plan().options.threads);
  parts_.resize(pipelines.size());
  for (std::size_t d = 0; d < parts_.size(); ++d) pipelines[d]->next(parts_[d]);
  StepResult result = single_->train(join_batches(parts_));
  single_->log_state(*single_log_, Content::Weight);
  return result;
}

void CompareSingle::check(const StepResult& step, const std::vector<BatchStream*>& pipelines) {
  run_.log_state(log_, Content::GradientSum);
  run_.log_state(log_, Content::Weight);
  const Records all = gather(step.step);
  if (!bitwise_) bring_sums(all, step.step);
  StepResult wanted;
  if (single_) wanted = repeat(pipelines);
  compare(all, "", step.step);
  if (single_) check_scalars(step, wanted);
  ++steps_;
}

CompareSingle::Records CompareSingle::gather(std::int64_t step) {
  const auto what = [&] { return fmt::format("the tensors of step {}", step); };
  const comm::Exchange exchange = {comm::make_tag(kCompareTag, 0, 0, 0, static_cast<int>(step)),
                                   what};
  Records all;
  for (const std::string& bytes : gather_texts(bytes_of(log_.records()), transport_, exchange))
    all.push_back(records_from(bytes));
  log_.clear();
  return all;
}

// Sends the gradient sums of the run to worker 0, each from the first worker that has it.
void CompareSingle::bring_sums(const Records& all, std::int64_t step) {
  const std::vector<Parameter>& parameters = run_.plan().graph.parameters;
  const auto what = [&] { return fmt::format("the gradient sums of step {}", step); };
  std::vector<char> brought(parameters.size(), 0);
  for (int worker = 0; worker < static_cast<int>(all.size()); ++worker) {
    for (const TensorRecord& record : all[worker]) {
      if (record.what != Content::GradientSum || std::exchange(brought[record.id], 1) != 0)
        continue;
      const std::string& name = parameters[record.id].name;
      const comm::Tag tag = comm::make_tag(kCompareTag, record.id, 0, 1, static_cast<int>(step));
      if (transport_.worker() == worker) {
        for (const StateTensor& t : run_.gradients()) {
          if (t.name != name) continue;
          if (worker == 0) {
            sums_[name] = t.values.values();
          } else {
            const std::vector<float> sum = t.values.values();
            transport_.wait(*transport_.send(0, tag, sum.data(), sum.size() * sizeof(float)), what);
          }
          break;
        }
      } else if (transport_.worker() == 0) {
        std::vector<float>& to = sums_[name];
        to.resize(static_cast<std::size_t>(
            element_count(run_.plan().graph.values[parameters[record.id].value].type.shape)));
        transport_.wait(*transport_.recv(worker, tag, to.data(), to.size() * sizeof(float)), what);
      }
    }
  }
}

// Called within a step of the single process, before its update.
void CompareSingle::replace_sums() {
  single_->log_state(*single_log_, Content::GradientSum);
  if (bitwise_) return;
  for (const StateTensor& t : single_->gradients()) t.values.write(sums_.at(t.name).data());
}

// Returns true if the tensor must agree.
bool CompareSingle::counts(const TensorRecord& record) const {
  if (bitwise_ || record.what != Content::Result) return true;
  const std::vector<StateBuffer>& buffers = run_.plan().graph.buffers;
  return std::none_of(buffers.begin(), buffers.end(),
                      [&](const StateBuffer& b) { return b.next == record.id; });
}

bool CompareSingle::differs(const TensorRecord& mine, const TensorRecord& wanted) {
  if (mine.sketch.checksum == wanted.sketch.checksum) return false;
  if (bitwise_ || mine.what != Content::GradientSum) return true;
  const double apart = distance(mine.sketch, wanted.sketch) / std::max(1.0, wanted.sketch.norm);
  farthest_ = std::max(farthest_, apart);
  return !(apart <= kTolerance);
}

void CompareSingle::compare(const Records& all, const std::string& when, std::int64_t step) {
  if (!single_) return;
  const std::vector<TensorRecord>& wanted = single_log_->records();
  std::map<std::tuple<Content, int, int>, std::size_t> places;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    places.emplace(std::tuple(wanted[i].what, wanted[i].id, wanted[i].micro), i);
  std::optional<Found> first;
  std::vector<bool> seen(wanted.size(), false);
  for (int worker = 0; worker < static_cast<int>(all.size()); ++worker) {
    for (const TensorRecord& mine : all[worker]) {
      const auto at = places.find(std::tuple(mine.what, mine.id, mine.micro));
      HETU_ASSERT(at != places.end());
      const std::size_t order = at->second;
      seen[order] = true;
      if (!counts(mine)) continue;
      ++tensors_;
      if (differs(mine, wanted[order]) && (!first || order < first->order))
        first = Found{order, worker, mine, wanted[order]};
    }
  }
  if (first)
    fail(Code::Internal, "compare-single: step {} differs from a single process{}: {}", step, when,
         describe(*first));
  for (const auto& [key, order] : places)
    HETU_ASSERT(seen[order] || run_.plan().lowered.half_micros);
  single_log_->clear();
}

std::string CompareSingle::describe(const Found& found) const {
  const Graph& graph = run_.plan().graph;
  const TensorRecord& mine = found.mine;
  std::string text;
  if (mine.what == Content::Result) {
    const Value& value = graph.values[mine.id];
    const Node& node = graph.nodes[value.producer];
    const int micros = run_.plan().options.micro_batches;
    text = fmt::format("{} of '{}'", phase_text(node.phase), node.name);
    if (node.outputs.size() > 1) text += fmt::format(", output {}", value.output);
    text += fmt::format(", stage {}, micro-batch {}", mine.stage, mine.micro % micros);
    if (run_.plan().options.pipelines > 1)
      text += fmt::format(" of pipeline {}", mine.micro / micros);
  } else {
    text = fmt::format("{} '{}', stage {}",
                       mine.what == Content::Weight ? "weight" : "gradient sum of",
                       graph.parameters[mine.id].name, mine.stage);
  }
  return fmt::format(
      "{}, worker {}: the difference is about {:.2g}, the norm {:.4g}; everything that the single "
      "process computes before it is equal",
      text, found.worker, distance(mine.sketch, found.wanted.sketch), found.wanted.sketch.norm);
}

void CompareSingle::check_scalars(const StepResult& mine, const StepResult& wanted) const {
  const auto compare = [&](const std::string& name, double a, double b) {
    const double apart = std::abs(a - b) / std::max(1.0, std::abs(b));
    if (a == b || (!bitwise_ && apart <= kTolerance)) return;
    fail(Code::Internal,
         "compare-single: step {} differs from a single process: {} is {:.17g}, but {:.17g} in the "
         "single process",
         mine.step, name, a, b);
  };
  for (const NamedScalar& s : wanted.scalars) compare(s.name, mine.at(s.name), s.value);
  compare("the norm of the gradient", mine.gradient_norm, wanted.gradient_norm);
}

std::string CompareSingle::summary() const {
  std::string how = "bit for bit";
  if (!bitwise_)
    how += fmt::format(" except gradient sums, which differ by at most {:.1g} of their norm",
                       farthest_);
  return fmt::format("equal in {} step{}, {} ({} tensors)", steps_, steps_ == 1 ? "" : "s", how,
                     tensors_);
}

}  // namespace hetu
