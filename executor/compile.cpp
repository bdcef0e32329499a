#include <algorithm>
#include <map>
#include <set>

#include "executor/lifetime.h"
#include "executor/plan.h"
#include "executor/stage_nodes.h"
#include "graph/base/error.h"
#include "ops/registry.h"

namespace hetu {
namespace {

class StageCompiler {
 public:
  StageCompiler(const Graph& graph, const CompileOptions& options)
      : graph_(graph),
        options_(options),
        nodes_(graph, options.first_block, options.stage, options.training),
        place_(graph.values.size()),
        placed_(graph.values.size(), 0) {}

  StagePlan compile() {
    plan_.stage = options_.stage;
    plan_.first_block = options_.first_block[options_.stage];
    plan_.end_block =
        options_.stage + 1 < stages() ? options_.first_block[options_.stage + 1] : graph_.blocks;
    plan_.micro_batch = options_.micro_batch;
    place_parameters();
    place_feeds();
    place_scalars();
    place_borders();
    place_saved();
    if (options_.training && options_.split_backward) place_held();
    plan_.count = function(nodes_.count, {});
    plan_.forward = function(nodes_.forward, {});
    if (options_.training) compile_backward();
    add_scratch();
    plan_.arena_bytes = end_;
    return std::move(plan_);
  }

 private:
  int stages() const { return static_cast<int>(options_.first_block.size()); }

  std::int64_t bytes(ValueId v) const {
    return align_up(tensor_bytes(graph_.values[v].type, options_.micro_batch));
  }

  std::int64_t take(std::int64_t size) {
    const std::int64_t at = end_;
    end_ += align_up(size);
    return at;
  }

  void put(ValueId v, const Loc& loc) {
    place_[v] = loc;
    placed_[v] = 1;
  }

  std::vector<ValueId> read_sources(const char* op) const {
    std::set<ValueId> read;
    for (const auto* list : {&nodes_.count, &nodes_.forward, &nodes_.backward}) {
      for (const NodeId n : *list) {
        for (const ValueId v : graph_.nodes[n].inputs) {
          if (nodes_.is(v, op)) read.insert(v);
        }
      }
    }
    for (const ValueId v : nodes_.step_sums) {
      const ValueId input = graph_.producer(v).inputs[0];
      if (nodes_.is(input, op)) read.insert(input);
    }
    return {read.begin(), read.end()};
  }

  void place_parameters() {
    const std::vector<ValueId> held = read_sources("parameter");
    for (int p = 0; p < static_cast<int>(graph_.parameters.size()); ++p) {
      const ValueId v = graph_.parameters[p].value;
      if (!std::binary_search(held.begin(), held.end(), v)) continue;
      StageParameter out;
      out.parameter = p;
      out.elements = element_count(graph_.values[v].type.shape);
      out.weight = {Region::Weights, kNoRing, take(bytes(v)), 0};
      plan_.memory.weights += bytes(v);
      put(v, out.weight);
      plan_.parameters.push_back(std::move(out));
    }
    if (!options_.training) return;
    place_state();
    place_accumulators();
  }

  void place_state() {
    for (StageParameter& p : plan_.parameters) {
      const std::int64_t size = bytes(graph_.parameters[p.parameter].value);
      for (int i = 0; i < options_.optimizer_states; ++i) {
        p.state.push_back({Region::Optimizer, kNoRing, take(size), 0});
        plan_.memory.optimizer += size;
      }
    }
  }

  // Accumulators lie one after the other in model order, so that a bucket of a gradient sum is one
  // range.
  void place_accumulators() {
    for (StageParameter& p : plan_.parameters) {
      const std::int64_t size = bytes(graph_.parameters[p.parameter].value);
      for (const GradientUse& use : graph_.gradients) {
        if (use.parameter != p.parameter) continue;
        const int stage = nodes_.stage_of_block(use.block);
        if (stage != options_.stage) {
          if (std::count(p.other_stages.begin(), p.other_stages.end(), stage) == 0)
            p.other_stages.push_back(stage);
          continue;
        }
        p.uses.push_back(static_cast<int>(plan_.uses.size()));
        plan_.uses.push_back({static_cast<int>(&p - plan_.parameters.data()),
                              use.use,
                              {Region::Accumulator, kNoRing, take(size), 0}});
        plan_.memory.gradients += size;
      }
      std::sort(p.other_stages.begin(), p.other_stages.end());
      p.owner = p.other_stages.empty() || options_.stage < p.other_stages.front();
      if (!p.other_stages.empty()) p.tied_pair = tied_pair(p);
    }
  }

  int tied_pair(const StageParameter& p) const {
    if (p.other_stages.size() > 1) {
      fail(Code::Unsupported,
           "parameter '{}' is used by {} stages; a weight can be tied between two stages at most",
           graph_.parameters[p.parameter].name, p.other_stages.size() + 1);
    }
    const int other = p.other_stages[0];
    const StagePair pair = {std::min(other, options_.stage), std::max(other, options_.stage)};
    const std::vector<StagePair> all = tied_stages(graph_, options_.first_block);
    return static_cast<int>(std::find(all.begin(), all.end(), pair) - all.begin());
  }

  void place_feeds() {
    for (const ValueId v : read_sources("placeholder")) {
      const TensorType& type = graph_.values[v].type;
      const TensorType bound = {type.dtype, bind_batch(type.shape, options_.micro_batch)};
      // A micro-batch's rows follow each other without padding: the stride is the exact size, and
      // kernels get what alignment that leaves.
      const std::int64_t stride = tensor_bytes(type, options_.micro_batch);
      const Loc loc = {Region::Feed, kFeedRing, take(stride * options_.micro_batches), stride};
      plan_.feeds.push_back({graph_.producer(v).name, bound, loc});
      plan_.memory.feeds += align_up(stride * options_.micro_batches);
      put(v, loc);
    }
  }

  void place_scalars() {
    for (const ValueId v : nodes_.step_sums) {
      put(v, {Region::StepScalar, kNoRing, take(bytes(v)), 0});
      plan_.memory.feeds += bytes(v);
    }
  }

  void place_borders() {
    int extra = 0;
    for (const StagePair& edge : stage_edges(graph_, options_.first_block)) {
      const int part = edge.second == edge.first + 1 ? 0 : ++extra;
      if (edge.first != options_.stage && edge.second != options_.stage) continue;
      add_border(edge.first, edge.second, false, part);
      if (options_.training) add_border(edge.second, edge.first, true, part);
    }
  }

  void add_border(int from, int to, bool backward, int part) {
    Border border;
    border.from = from;
    border.to = to;
    border.backward = backward;
    border.part = part;
    border.incoming = to == options_.stage;
    border.ring = kFirstBorderRing + static_cast<int>(plan_.borders.size());
    for (const ValueId v : nodes_.crossing(from, to, backward)) {
      border.values.push_back({v, border.bytes, bytes(v), {}});
      border.bytes += bytes(v);
    }
    // Forward inputs live until their backward is done; one more slot lets the next receive be
    // posted early.
    border.slots = border.incoming && !backward ? options_.saved_copies + 1
                                                : (border.incoming ? options_.held_copies + 1 : 2);
    border.offset = take(border.bytes * border.slots);
    plan_.memory.borders += border.bytes * border.slots;
    for (BorderValue& value : border.values) {
      value.loc = {Region::Border, border.ring, border.offset + value.offset, border.bytes};
      if (border.incoming) put(value.value, value.loc);
    }
    plan_.borders.push_back(std::move(border));
  }

  // What forward leaves for backward, or for a peer. An outgoing value that nobody here reads again
  // is written straight into the message.
  void place_saved() {
    std::vector<ValueId> saved;
    for (const NodeId n : nodes_.forward) {
      for (const ValueId v : graph_.nodes[n].outputs) {
        if (nodes_.in_backward(v)) saved.push_back(v);
      }
    }
    std::int64_t slot = 0;
    for (const ValueId v : saved) slot += bytes(v);
    plan_.memory.saved = slot;
    plan_.memory.saved_copies = options_.training ? options_.saved_copies : 0;
    std::int64_t at = take(slot * plan_.memory.saved_copies);
    for (const ValueId v : saved) {
      put(v, {Region::Saved, kSavedRing, at, slot});
      at += bytes(v);
    }
    for (Border& border : plan_.borders) {
      if (border.incoming) continue;
      for (BorderValue& value : border.values) {
        if (placed_[value.value]) {
          value.loc = place_[value.value];
        } else {
          put(value.value, value.loc);
        }
      }
    }
    place_fetches();
  }

  void place_fetches() {
    for (const auto& [name, v] : graph_.fetches) {
      const Node& producer = graph_.producer(v);
      const bool counted = nodes_.is(v, "step_sum") && placed_[v] &&
                           nodes_.stage_of_block(producer.block) == options_.stage;
      if (!counted && nodes_.stage_of(v) != options_.stage) continue;
      require(element_count(graph_.values[v].type.shape) == 1 &&
                  graph_.values[v].type.dtype == DType::Float32,
              "fetch '{}' must be a float32 scalar, got {}", name,
              to_string(graph_.values[v].type));
      if (!placed_[v]) {
        put(v, {Region::StepScalar, kNoRing, take(bytes(v)), 0});
        plan_.memory.feeds += bytes(v);
      }
      plan_.fetches.push_back({name, v, place_[v]});
    }
  }

  void place_held() {
    std::vector<ValueId> held;
    for (const NodeId n : nodes_.backward) {
      if (graph_.nodes[n].phase != Phase::InputGrad) continue;
      for (const ValueId v : graph_.nodes[n].outputs) {
        if (nodes_.in_weight_grad(v) && !placed_[v]) held.push_back(v);
      }
    }
    for (const ValueId v : held) plan_.memory.held += bytes(v);
    plan_.memory.held_copies = options_.held_copies;
    std::int64_t at = take(plan_.memory.held * options_.held_copies);
    for (const ValueId v : held) {
      held_[v] = {Region::Held, kHeldRing, at, plan_.memory.held};
      at += bytes(v);
    }
  }

  void compile_backward() {
    plan_.backward = function(nodes_.backward, {});
    if (!options_.split_backward) return;
    std::vector<NodeId> input_grad, weight_grad;
    for (const NodeId n : nodes_.backward) {
      (graph_.nodes[n].phase == Phase::InputGrad ? input_grad : weight_grad).push_back(n);
    }
    plan_.input_grad = function(input_grad, held_);
    plan_.weight_grad = function(weight_grad, held_);
  }

  // Lays out the values that live within one function only, and prepares its kernels.
  Function function(const std::vector<NodeId>& list, const std::map<ValueId, Loc>& held) {
    Function out;
    std::map<ValueId, Loc> local = held;
    std::vector<Lifetime> lifetimes;
    std::map<ValueId, int> index;  // value -> lifetime
    std::vector<int> kernel_index;
    const int steps = static_cast<int>(list.size());
    std::set<ValueId> last_to_end = kept_to_end();
    for (int i = 0; i < steps; ++i) {
      const Node& node = graph_.nodes[list[i]];
      for (const ValueId v : node.inputs) {
        if (const auto it = index.find(v); it != index.end()) lifetimes[it->second].last = i;
      }
      for (const ValueId v : node.outputs) {
        if (placed_[v] || local.count(v)) continue;
        index[v] = static_cast<int>(lifetimes.size());
        lifetimes.push_back({i, last_to_end.count(v) ? steps : i, bytes(v)});
      }
      kernel_index.push_back(static_cast<int>(lifetimes.size()));
      lifetimes.push_back({i, i, kernel(list[i])->scratch_bytes});
    }
    const std::vector<std::int64_t> offsets = assign_offsets(lifetimes, &out.scratch_bytes);
    for (const auto& [v, i] : index) local[v] = {Region::Scratch, kNoRing, offsets[i], 0};
    for (int i = 0; i < steps; ++i) {
      Launch launch = this->launch(list[i], local);
      launch.scratch = {Region::Scratch, kNoRing, offsets[kernel_index[i]], 0};
      out.launches.push_back(std::move(launch));
      if (options_.training) add_accumulates(out, list[i], local);
    }
    return out;
  }

  // Inputs of step_sums are read after the count function has ended.
  std::set<ValueId> kept_to_end() const {
    std::set<ValueId> out;
    for (const ValueId v : nodes_.step_sums) out.insert(graph_.producer(v).inputs[0]);
    return out;
  }

  const Loc& find(ValueId v, const std::map<ValueId, Loc>& local) const {
    const auto it = local.find(v);
    if (it != local.end()) return it->second;
    if (!placed_[v]) {
      fail(Code::Internal, "stage {}: value {} of node '{}' is read where it does not live",
           options_.stage, v, graph_.producer(v).name);
    }
    return place_[v];
  }

  Launch launch(NodeId n, const std::map<ValueId, Loc>& local) {
    Launch out;
    out.node = n;
    out.kernel = kernel(n);
    for (const ValueId v : graph_.nodes[n].inputs) out.inputs.push_back(find(v, local));
    for (const ValueId v : graph_.nodes[n].outputs) out.outputs.push_back(find(v, local));
    return out;
  }

  void add_accumulates(Function& out, NodeId n, const std::map<ValueId, Loc>& local) {
    const Node& node = graph_.nodes[n];
    for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o) {
      const ValueId v = node.outputs[o];
      int uses = 0, found = -1;
      for (const GradientUse& g : graph_.gradients) {
        if (g.gradient != v) continue;
        ++uses;
        found = use_index(g);
        out.accumulates.push_back(
            {found, static_cast<int>(out.launches.size()) - 1, find(v, local), -1});
      }
      const bool direct =
          uses == 1 && !nodes_.in_backward(v) && find(v, local).region == Region::Scratch;
      if (direct) out.accumulates.back().output = o;
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

  std::shared_ptr<const PreparedKernel> kernel(NodeId n) {
    auto& slot = kernels_[n];
    if (slot) return slot;
    const Node& node = graph_.nodes[n];
    KernelDesc desc;
    desc.op = node.op;
    desc.name = node.name;
    for (const ValueId v : node.inputs) desc.inputs.push_back(bound(v));
    for (const ValueId v : node.outputs) desc.outputs.push_back(bound(v));
    desc.attrs = &node.attrs;
    desc.batch = options_.micro_batch;
    desc.name_hash = stable_hash(node.attrs.has("key") ? node.attrs.text("key") : node.name);
    slot = std::make_shared<const PreparedKernel>(prepare_cpu(desc, options_.kernels));
    return slot;
  }

  TensorType bound(ValueId v) const {
    const TensorType& type = graph_.values[v].type;
    return {type.dtype, bind_batch(type.shape, options_.micro_batch)};
  }

  // One scratch area for all functions: a worker runs one at a time.
  void add_scratch() {
    for (const Function* f :
         {&plan_.count, &plan_.forward, &plan_.backward, &plan_.input_grad, &plan_.weight_grad}) {
      plan_.memory.scratch = std::max(plan_.memory.scratch, f->scratch_bytes);
    }
    const std::int64_t base = take(plan_.memory.scratch);
    const auto move = [base](Loc& loc) {
      if (loc.region == Region::Scratch) loc.offset += base;
    };
    for (Function* f :
         {&plan_.count, &plan_.forward, &plan_.backward, &plan_.input_grad, &plan_.weight_grad}) {
      for (Launch& launch : f->launches) {
        for (Loc& loc : launch.inputs) move(loc);
        for (Loc& loc : launch.outputs) move(loc);
        move(launch.scratch);
      }
      for (Accumulate& a : f->accumulates) move(a.gradient);
    }
    add_counts(base);
  }

  void add_counts(std::int64_t scratch_base) {
    for (const ValueId v : nodes_.step_sums) {
      const ValueId input = graph_.producer(v).inputs[0];
      StageCount count;
      count.result = place_[v];
      if (placed_[input]) {
        count.input = place_[input];
      } else {
        for (const Launch& launch : plan_.count.launches) {
          const Node& node = graph_.nodes[launch.node];
          for (std::size_t o = 0; o < node.outputs.size(); ++o) {
            if (node.outputs[o] == input) count.input = launch.outputs[o];
          }
        }
      }
      HETU_ASSERT(placed_[input] || count.input.offset >= scratch_base);
      plan_.counts.push_back(count);
    }
  }

  const Graph& graph_;
  const CompileOptions& options_;
  StageNodes nodes_;
  StagePlan plan_;
  std::vector<Loc> place_;  // of values that have one place in all functions
  std::vector<char> placed_;
  std::map<ValueId, Loc> held_;
  std::map<NodeId, std::shared_ptr<const PreparedKernel>> kernels_;
  std::int64_t end_ = 0;
};

}  // namespace

StagePlan compile_stage(const Graph& graph, const CompileOptions& options) {
  const auto& first = options.first_block;
  require(!first.empty() && first[0] == 0, "the first stage must start at block 0");
  for (std::size_t s = 0; s < first.size(); ++s) {
    require(first[s] < graph.blocks && (s == 0 || first[s] > first[s - 1]),
            "stage {} starts at block {}, but blocks are 0..{} and stages must ascend; the model's "
            "cut-points allow at "
            "most {} stages",
            s, first[s], graph.blocks - 1, graph.blocks);
  }
  require(options.stage >= 0 && options.stage < static_cast<int>(first.size()),
          "stage {} of {} does not exist", options.stage, first.size());
  return StageCompiler(graph, options).compile();
}

const Border* StagePlan::border(bool incoming, bool backwards, int part) const {
  for (const Border& b : borders) {
    if (b.incoming == incoming && b.backward == backwards && b.part == part) return &b;
  }
  return nullptr;
}

std::string to_string(const MemoryPlan& m) {
  const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return fmt::format(
      "weights {:.1f} MiB, optimizer {:.1f}, gradients {:.1f}, activations {:.1f} x {}, held "
      "{:.1f} x {}, borders {:.1f}, "
      "feeds {:.1f}, scratch {:.1f}; peak {:.1f} MiB",
      mib(m.weights), mib(m.optimizer), mib(m.gradients), mib(m.saved), m.saved_copies, mib(m.held),
      m.held_copies, mib(m.borders), mib(m.feeds), mib(m.scratch), mib(m.peak()));
}

}  // namespace hetu
