// Times of blocks, and costs of blocks from times, graph and sizes.
#include "executor/stage/block_times.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/text_file.h"
#include "executor/compile/stage_nodes.h"
#include "net/transport/transport.h"
#include "ops/registry.h"
#include "pipeline/cost/averages.h"

namespace hetu {
namespace {

using nlohmann::json;

constexpr std::size_t kMostSamples = 4096;  // per block and phase; enough for a typical value

const char* phase_name(Phase phase) {
  constexpr const char* kNames[] = {"count", "forward", "input_grad", "weight_grad"};
  return kNames[static_cast<int>(phase)];
}

// Returns the operations of a node for one sample. Nodes without a formula count one per output
// element.
double flops(const Graph& graph, const Node& node) {
  if (op_set().has(node.op)) {
    const OpDef& def = op_set().find(node.op);
    std::vector<TensorType> inputs;
    for (const ValueId v : node.inputs) inputs.push_back(graph.values[v].type);
    if (def.flops) return static_cast<double>(def.flops({def, node.name, inputs, node.attrs}));
  }
  double elements = 0;
  for (const ValueId v : node.outputs) {
    elements += static_cast<double>(element_count(bind_batch(graph.values[v].type.shape, 1)));
  }
  return elements;
}

double bytes_of(const Graph& graph, ValueId v, std::int64_t micro_batch) {
  const TensorType& type = graph.values[v].type;
  return static_cast<double>(element_count(bind_batch(type.shape, micro_batch)) *
                             dtype_bytes(type.dtype));
}

using Samples = std::map<std::pair<int, std::string>, std::vector<double>>;

Samples read_samples(const std::vector<std::string>& measured) {
  Samples samples;
  try {
    for (const std::string& text : measured) {
      for (const json& one : json::parse(bounded_json(text, "block times"))) {
        std::vector<double>& all = samples[{one.at("block"), one.at("phase")}];
        for (const json& us : one.at("us")) all.push_back(us);
      }
    }
  } catch (const json::exception& e) {
    fail(Code::Io, "a worker's block times cannot be read: {}", e.what());
  }
  return samples;
}

// Returns the typical time in ms; 0 if the block has none.
double typical_ms(Samples& samples, int block, Phase phase) {
  return typical(samples[{block, phase_name(phase)}]) * 1e-3;
}

}  // namespace

void BlockTimes::begin() { last_ns_ = comm::now_ns(); }

void BlockTimes::ran(NodeId node) {
  const std::int64_t now_ns = comm::now_ns();
  const Node& n = graph_.nodes[node];
  running_ns_[{n.block, n.phase}] += now_ns - last_ns_;
  last_ns_ = now_ns;
}

void BlockTimes::end() {
  for (const auto& [part, ns] : running_ns_) {
    std::vector<float>& samples = samples_us_[part];
    if (samples.size() < kMostSamples) samples.push_back(static_cast<float>(ns) * 1e-3F);
  }
  running_ns_.clear();
}

std::string BlockTimes::json() const {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [part, samples] : samples_us_) {
    out.push_back({{"block", part.first}, {"phase", phase_name(part.second)}, {"us", samples}});
  }
  return out.dump();
}

std::vector<double> block_flops(const Graph& graph) {
  std::vector<double> costs(graph.blocks, 0);
  for (const Node& node : graph.nodes) {
    if (!is_leaf(node)) costs[node.block] += flops(graph, node);
  }
  return costs;
}

Costs flop_costs(const Graph& graph, int stages) {
  Costs costs;
  costs.per_worker = false;
  costs.blocks.assign(graph.blocks,
                      BlockCost{{.forward = 0, .input_grad = 0, .weight_grad = 0}, 0});
  const std::vector<char> is_factor = makes_factor(graph);
  for (const Node& node : graph.nodes) {
    if (is_leaf(node)) continue;
    BlockCost& block = costs.blocks[node.block];
    const double operations = flops(graph, node);
    block.weight += operations;
    if (is_factor[static_cast<std::size_t>(&node - graph.nodes.data())]) {
      block.cost.curvature.factors += operations;
      continue;
    }
    if (node.phase == Phase::InputGrad) block.cost.input_grad += operations;
    if (node.phase == Phase::WeightGrad) block.cost.weight_grad += operations;
    if (node.phase == Phase::Forward) block.cost.forward += operations;
  }
  for (BlockCost& block : costs.blocks) block.cost.recompute = block.cost.forward;
  costs.stages.clear();
  return recut(costs, stages);
}

std::vector<BlockCost> block_costs(const Graph& graph, const std::vector<std::string>& measured,
                                   const BlockSizes& sizes) {
  Samples samples = read_samples(measured);
  const std::vector<double> weights = block_flops(graph);
  std::vector<BlockCost> blocks(graph.blocks);
  std::vector<int> each(graph.blocks);
  std::iota(each.begin(), each.end(), 0);
  for (int b = 0; b < graph.blocks; ++b) {
    StageCost& c = blocks[b].cost;
    c.forward = c.recompute = typical_ms(samples, b, Phase::Forward);
    if (c.forward == 0) return {};
    c.input_grad = typical_ms(samples, b, Phase::InputGrad);
    c.weight_grad = typical_ms(samples, b, Phase::WeightGrad);
    blocks[b].weight = weights[b];
    // A stage of only this block has the forward results that its gradients read.
    const StageNodes alone(graph, each, b, /*training=*/true);
    for (const NodeId n : alone.forward) {
      for (const ValueId v : graph.nodes[n].outputs)
        if (alone.in_backward(v)) c.activation_bytes += bytes_of(graph, v, sizes.micro_batch);
    }
    for (const ValueId v : alone.read_sources("placeholder"))
      c.feed_bytes += bytes_of(graph, v, sizes.micro_batch);
    if (b + 1 == graph.blocks) continue;
    // A cut behind the block has the values that cross it.
    const std::vector<int> halves = {0, b + 1};
    const StageNodes cut(graph, halves, 0, /*training=*/true);
    for (const ValueId v : cut.crossing(0, 1, /*backward=*/false))
      c.bytes_out += bytes_of(graph, v, sizes.micro_batch);
  }
  for (const Parameter& p : graph.parameters) {
    const double one = bytes_of(graph, p.value, 1);  // weights have no batch axis
    StageCost& c = blocks[graph.producer(p.value).block].cost;
    // Two tensors: a weight and its gradient, or a factor's sum and its inverse.
    c.weight_bytes += 2 * one;
    if (p.role == Parameter::Role::Weight)
      c.weight_bytes += one / 4 * static_cast<double>(sizes.state_bytes);
    c.gradient_bytes += p.role == Parameter::Role::Weight ? one : 0;
    c.reduce_grad += one * sizes.sum_ms_per_byte;
  }
  return blocks;
}

}  // namespace hetu
