// Compiles the functions of a stage. StagePlacement fixes the location of every value that several
// functions use. Then each function is compiled by itself:
// 1. list its nodes, leaving out copies that its sums don't need (CopiedGradients);
// 2. compute the lifetime of every other value and of each kernel's scratch, in steps of the list;
// 3. assign offsets, in spent saved values or in scratch, so that buffers in use at the same step
//    don't overlap (place_locals);
// 4. prepare the kernels, and note the gradients that each launch adds to sums.
// All functions share one scratch area as large as the largest needs, since a worker runs one
// function at a time.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "executor/compile/copied_gradients.h"
#include "executor/compile/local_places.h"
#include "executor/compile/placement.h"
#include "executor/compile/prepared.h"
#include "executor/compile/segments.h"
#include "ops/registry.h"

namespace hetu {
namespace {

class StageCompiler {
 public:
  StageCompiler(const Graph& graph, const CompileOptions& options)
      : graph_(graph),
        options_(options),
        placement_(graph, options),
        plan_(placement_.plan),
        nodes_(placement_.nodes) {}

  StagePlan compile() {
    plan_.rounded = function(nodes_.rounded, {});
    plan_.count = function(nodes_.count, {});
    tapped_ = Tapped::Forward;
    plan_.forward = function(nodes_.forward, {});
    tapped_ = Tapped::Nothing;
    if (options_.training) compile_backward();
    if (options_.training) compile_curvature();
    add_scratch();
    plan_.arena_bytes = placement_.end();
    plan_.prepare = options_.prepare;
    plan_.kernels = options_.kernels;
    return std::move(plan_);
  }

 private:
  void compile_backward() {
    in_backward_ = true;
    const bool spends = !options_.half_backward;  // the second half still needs the values
    tapped_ = Tapped::Backward;
    spent_ = spends ? Spent::All : Spent::Nothing;
    plan_.backward = function(nodes_.backward, {});
    tapped_ = Tapped::Nothing;
    spent_ = Spent::Nothing;
    if (options_.recompute) {
      recomputing_ = true;
      plan_.recompute = function(recomputed_nodes(), {});
      recomputing_ = false;
    }
    if (!options_.split_backward) return;
    std::vector<NodeId> input_grad, weight_grad;
    for (const NodeId n : nodes_.backward) {
      (graph_.nodes[n].phase == Phase::InputGrad ? input_grad : weight_grad).push_back(n);
    }
    tapped_ = Tapped::Backward;
    if (spends) spent_ = Spent::Inputs;
    plan_.input_grad = function(input_grad, placement_.held);
    tapped_ = Tapped::Nothing;
    if (spends) spent_ = Spent::All;
    plan_.weight_grad = function(weight_grad, placement_.held);
    spent_ = Spent::Nothing;
  }

  // Compiles one function per factor, which reads the taps kept for it.
  void compile_curvature() {
    if (nodes_.factors.empty()) return;
    if (options_.half_backward)
      fail(Code::Unsupported,
           "K-FAC needs whole micro-batches, but this plan runs backward passes on half "
           "micro-batches; use another method or --concat");
    for (const NodeId n : nodes_.factors) {
      const StageParameter& factor = parameter_of(n);
      const bool inputs = factor.role == Parameter::Role::InputFactor;
      std::vector<Function>& list = inputs ? plan_.curvature_a : plan_.curvature_b;
      list.resize(std::max(list.size(), static_cast<std::size_t>(factor.layer) + 1));
      list[factor.layer] = function({n}, placement_.taps);
    }
  }

  const StageParameter& parameter_of(NodeId factor) const {
    for (const GradientUse& g : graph_.gradients) {
      if (g.gradient != graph_.nodes[factor].outputs[0]) continue;
      return plan_.parameters[plan_.uses[use_index(g)].parameter];
    }
    fail(Code::Internal, "node '{}' does not compute a K-FAC factor", graph_.nodes[factor].name);
  }

  // Returns every function of the plan.
  std::vector<Function*> functions() {
    std::vector<Function*> all = {&plan_.rounded,    &plan_.count,    &plan_.forward,
                                  &plan_.recompute,  &plan_.backward, &plan_.input_grad,
                                  &plan_.weight_grad};
    for (auto* list : {&plan_.curvature_a, &plan_.curvature_b})
      for (Function& f : *list) all.push_back(&f);
    return all;
  }

  // Returns the nodes of forward that saved values depend on.
  std::vector<NodeId> recomputed_nodes() const {
    std::vector<char> needed(graph_.values.size(), 0);
    std::vector<NodeId> out;
    for (auto n = nodes_.forward.rbegin(); n != nodes_.forward.rend(); ++n) {
      const Node& node = graph_.nodes[*n];
      if (std::none_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId v) { return needed[v] != 0 || nodes_.in_backward(v); }))
        continue;
      for (const ValueId v : node.inputs) needed[v] = 1;
      out.push_back(*n);
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  // Returns true if the value is stored outside the function. A recompute writes saved values; all
  // its other results are local.
  bool has_place(ValueId v) const {
    return placement_.has(v) && (!recomputing_ || placement_.place(v).region == Region::Saved);
  }

  // Lays out the values that only this function uses, and prepares its kernels.
  Function function(const std::vector<NodeId>& nodes, const std::map<ValueId, Loc>& held) {
    Function out;
    const CopiedGradients copied(graph_, nodes);
    const std::vector<NodeId>& list = copied.list;
    std::map<ValueId, Loc> local = held;
    std::vector<Lifetime> lifetimes;
    std::vector<ValueId> values;   // value of each lifetime; kNone: a kernel's scratch
    std::map<ValueId, int> index;  // value -> lifetime
    std::vector<int> kernel_index;
    const int steps = static_cast<int>(list.size());
    std::set<ValueId> last_to_end = kept_to_end();
    for (int i = 0; i < steps; ++i) {
      const Node& node = graph_.nodes[list[i]];
      for (const ValueId v : node.inputs) {
        if (const auto it = index.find(v); it != index.end()) lifetimes[it->second].last = i;
      }
      if (const int use = summed_use(list[i]); use != kNone)
        local[node.outputs[0]] = plan_.uses[use].accumulator;
      for (const ValueId v : node.outputs) {
        if (has_place(v) || local.count(v)) continue;
        index[v] = static_cast<int>(lifetimes.size());
        values.push_back(v);
        lifetimes.push_back(
            {i, last_to_end.count(v) ? steps : i, placement_.bytes(v, in_backward_)});
      }
      kernel_index.push_back(static_cast<int>(lifetimes.size()));
      values.push_back(kNone);
      lifetimes.push_back({i, i, scratch_bytes(list[i])});
    }
    const LocalPlaces at = place_locals(graph_, placement_, list, lifetimes, values, spent_);
    out.scratch_bytes = at.scratch_bytes;
    for (const auto& [v, i] : index) local[v] = at.places[i];
    for (int i = 0; i < steps; ++i) {
      Launch launch = this->launch(list[i], local);
      launch.scratch = at.places[kernel_index[i]];
      out.launches.push_back(std::move(launch));
      if (options_.training) add_accumulates(out, list[i], local, copied);
    }
    add_taps(list, local, out);
    return out;
  }

  // Returns the use to whose sum the node's kernel adds its output 0, or kNone. Such a gradient
  // needs no location of its own, since only the sum reads it. Not for half micro-batches, whose
  // kernels have two sizes but share one sum, nor for sums in a tree, whose order would be the
  // kernel's.
  int summed_use(NodeId n) {
    const Node& node = graph_.nodes[n];
    if (!in_backward_ || options_.half_backward || options_.sum_slots > 0) return kNone;
    const ValueId v = node.outputs[0];
    const auto is_of = [v](const GradientUse& g) { return g.gradient == v; };
    const auto& all = graph_.gradients;
    if (std::count_if(all.begin(), all.end(), is_of) != 1) return kNone;
    if (placement_.has(v) || nodes_.in_backward(v) || !kernel(n, batch())->add) return kNone;
    return use_index(*std::find_if(all.begin(), all.end(), is_of));
  }

  // Notes what must be copied for K-FAC, and after which launch.
  void add_taps(const std::vector<NodeId>& list, const std::map<ValueId, Loc>& local,
                Function& out) const {
    if (tapped_ == Tapped::Nothing) return;
    for (const auto& [v, to] : placement_.taps) {
      const bool forward = graph_.producer(v).phase == Phase::Forward;
      if (forward != (tapped_ == Tapped::Forward)) continue;
      const auto makes = [&, value = v](NodeId n) { return n == graph_.values[value].producer; };
      const auto at = std::find_if(list.begin(), list.end(), makes);
      const int after = at == list.end() ? -1 : static_cast<int>(at - list.begin());
      out.taps.push_back(
          {after, find(v, local), to, tensor_bytes(graph_.values[v].type, options_.micro_batch)});
    }
    std::sort(out.taps.begin(), out.taps.end(),
              [](const Tap& a, const Tap& b) { return a.after_launch < b.after_launch; });
  }

  // Returns the inputs of step_sums, which are read after the count function has ended.
  std::set<ValueId> kept_to_end() const {
    std::set<ValueId> out;
    for (const ValueId v : nodes_.step_sums) out.insert(graph_.producer(v).inputs[0]);
    return out;
  }

  const Loc& find(ValueId v, const std::map<ValueId, Loc>& local) const {
    const auto it = local.find(v);
    if (it != local.end()) return it->second;
    if (!placement_.has(v)) {
      fail(Code::Internal, "stage {}: value {} of node '{}' is read but has no location",
           options_.stage, v, graph_.producer(v).name);
    }
    return placement_.place(v);
  }

  // Returns the location of a value as the current function uses it.
  Loc seen(ValueId v, const std::map<ValueId, Loc>& local) const {
    const Loc& loc = find(v, local);
    const bool halves = in_backward_ && options_.half_backward && local.count(v) == 0;
    return halves ? placement_.halved(v, loc) : loc;
  }

  Launch launch(NodeId n, const std::map<ValueId, Loc>& local) {
    Launch out;
    out.node = n;
    out.kernel = kernel(n, batch());
    if (second_batch() != batch()) out.of_second = kernel(n, second_batch());
    for (const ValueId v : graph_.nodes[n].inputs) out.inputs.push_back(seen(v, local));
    for (const ValueId v : graph_.nodes[n].outputs) out.outputs.push_back(seen(v, local));
    for (const GradientUse& g : graph_.gradients)
      if (g.gradient == graph_.nodes[n].outputs.at(0)) add_rows(out, g);
    out.sum_of_use = summed_use(n);
    pack_weight(out);
    return out;
  }

  // Makes the launch read a packed weight. A weight that several micro-batches read unchanged is
  // packed once for all of them.
  void pack_weight(Launch& out) {
    const PreparedKernel::Packed& packed = out.kernel->packed;
    const bool repeats = options_.weights_rest && options_.micro_batches > 1;
    if (!options_.pack_weights || !repeats || packed.input < 0 || out.of_second) return;
    if (!nodes_.is(graph_.nodes[out.node].inputs[packed.input], "parameter")) return;
    const auto [at, fresh] = packed_.emplace(out.node, Loc{});
    if (fresh) {
      at->second = {Region::Weights, kNoRing, placement_.take(packed.bytes), 0};
      plan_.memory.packed += align_up(packed.bytes);
    }
    Launch packs = read_packed(out, at->second);
    if (fresh) plan_.rounded.launches.push_back(std::move(packs));
  }

  // Marks a launch whose gradient is stored by rows.
  void add_rows(Launch& out, const GradientUse& g) const {
    const int use = use_index(g);
    if (plan_.uses[use].width == 0) return;
    const TensorType& ids = graph_.values[graph_.nodes[out.node].inputs[0]].type;
    out.rows_of_use = use;
    out.row_count = element_count(bind_batch(ids.shape, batch()));
    out.second_row_count = element_count(bind_batch(ids.shape, second_batch()));
  }

  // Notes the gradients that the last launch adds to sums. A gradient is direct if only one sum
  // reads it and it has no other location.
  void add_accumulates(Function& out, NodeId n, const std::map<ValueId, Loc>& local,
                       const CopiedGradients& copied) {
    const Node& node = graph_.nodes[n];
    const int last = static_cast<int>(out.launches.size()) - 1;
    for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o) {
      const ValueId v = node.outputs[o];
      const NodeId copied_by = copied.by(v);
      const ValueId gradient = copied_by == kNone ? v : graph_.nodes[copied_by].outputs[0];
      int uses = 0, found = -1;
      for (const GradientUse& g : graph_.gradients) {
        if (g.gradient != gradient) continue;
        ++uses;
        found = use_index(g);
        out.accumulates.push_back({found, last, find(v, local), -1, false, copied_by});
      }
      const Region region = find(v, local).region;
      const bool own = region == Region::Scratch || region == Region::Saved;
      const bool direct = uses == 1 && !nodes_.in_backward(gradient) && own;
      if (direct) out.accumulates.back().output = o;
      if (o == 0 && uses == 1 && out.launches.back().sum_of_use != kNone)
        out.accumulates.back().in_place = true;
    }
  }

  int use_index(const GradientUse& g) const {
    for (int i = 0; i < static_cast<int>(plan_.uses.size()); ++i) {
      const StageUse& use = plan_.uses[i];
      if (use.use == g.use && plan_.parameters[use.parameter].parameter == g.parameter) return i;
    }
    fail(Code::Internal, "stage {}: use {} of parameter '{}' is not on this stage", options_.stage,
         g.use, graph_.parameters[g.parameter].name);
  }

  std::int64_t scratch_bytes(NodeId n) {
    return std::max(kernel(n, batch())->scratch_bytes, kernel(n, second_batch())->scratch_bytes);
  }

  std::shared_ptr<const PreparedKernel> kernel(NodeId n, std::int64_t samples) {
    auto& slot = kernels_[{n, samples}];
    if (slot) return slot;
    slot = prepared(graph_, n, samples, {options_.prepare, options_.kernels});
    return slot;
  }

  // Return the samples of a function's run and, for half micro-batches, of the second half.
  std::int64_t batch() const {
    return in_backward_ ? placement_.backward_batch() : options_.micro_batch;
  }
  std::int64_t second_batch() const {
    return in_backward_ && options_.half_backward ? options_.micro_batch - batch() : batch();
  }

  // Places one scratch area for all functions: a worker runs one function at a time.
  void add_scratch() {
    for (const Function* f : functions()) {
      plan_.memory.scratch = std::max(plan_.memory.scratch, f->scratch_bytes);
    }
    plan_.memory.factor_scratch = factor_scratch();
    plan_.memory.scratch = std::max(plan_.memory.scratch, plan_.memory.factor_scratch);
    const std::int64_t base = placement_.take(plan_.memory.scratch);
    plan_.factor_scratch.offset = base;
    const auto move = [base](Loc& loc) {
      if (loc.region == Region::Scratch) loc.offset += base;
    };
    for (Function* f : functions()) {
      for (Launch& launch : f->launches) {
        for (Loc& loc : launch.inputs) move(loc);
        for (Loc& loc : launch.outputs) move(loc);
        move(launch.scratch);
      }
      for (Accumulate& a : f->accumulates) move(a.gradient);
      for (Tap& tap : f->taps) move(tap.from);
    }
    add_counts(base);
  }

  // Returns the scratch bytes of K-FAC, which uses the area between functions, for one layer at a
  // time.
  std::int64_t factor_scratch() const {
    std::int64_t bytes = 0;
    std::map<int, std::pair<std::int64_t, std::int64_t>> sides;  // by layer: inputs, outputs
    for (const StageParameter& p : plan_.parameters) {
      if (p.role == Parameter::Role::Weight) continue;
      const ValueId factor = graph_.parameters[p.parameter].value;
      const std::int64_t side = graph_.values[factor].type.shape[0];
      auto& [inputs, outputs] = sides[p.layer];
      (p.role == Parameter::Role::InputFactor ? inputs : outputs) = side;
    }
    for (const auto& [layer, side] : sides)
      if (options_.factor_scratch != nullptr)
        bytes = std::max(bytes, options_.factor_scratch(side.first, side.second));
    return bytes;
  }

  void add_counts(std::int64_t scratch_base) {
    for (const ValueId v : nodes_.step_sums) {
      const ValueId input = graph_.producer(v).inputs[0];
      StageCount count;
      count.value = v;
      count.result = placement_.place(v);
      if (placement_.has(input)) {
        count.input = placement_.place(input);
      } else {
        for (const Launch& launch : plan_.count.launches) {
          const Node& node = graph_.nodes[launch.node];
          for (std::size_t o = 0; o < node.outputs.size(); ++o) {
            if (node.outputs[o] == input) count.input = launch.outputs[o];
          }
        }
      }
      HETU_ASSERT(placement_.has(input) || count.input.offset >= scratch_base);
      plan_.counts.push_back(count);
    }
  }

  const Graph& graph_;
  const CompileOptions& options_;
  StagePlacement placement_;
  StagePlan& plan_;
  const StageNodes& nodes_;
  enum class Tapped : std::uint8_t { Nothing, Forward, Backward };
  Tapped tapped_ = Tapped::Nothing;  // the values that the current function keeps for K-FAC
  Spent spent_ = Spent::Nothing;
  bool recomputing_ = false;
  bool in_backward_ = false;  // the current function runs once per backward, as a recompute does
  std::map<std::pair<NodeId, std::int64_t>, std::shared_ptr<const PreparedKernel>> kernels_;
  std::map<NodeId, Loc> packed_;  // packed weights, by the node that reads them
};

}  // namespace

StagePlan compile_stage(const Graph& graph, const CompileOptions& options) {
  HETU_ASSERT(options.prepare != nullptr);
  const auto& first = options.first_block;
  check_cut(graph, first);
  require(options.stage >= 0 && options.stage < static_cast<int>(first.size()),
          "stage {} does not exist; the model has {} stages", options.stage, first.size());
  require(!options.half_backward || options.micro_batch > 1,
          "micro-batches of {} sample cannot be split into halves; choose a larger batch size",
          options.micro_batch);
  return StageCompiler(graph, options).compile();
}

}  // namespace hetu
