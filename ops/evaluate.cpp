#include "ops/evaluate.h"

#include <cmath>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "ops/registry.h"

namespace hetu {
namespace {

constexpr std::size_t kAlign = 64;

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(kAlign)); }
};
using Memory = std::unique_ptr<std::byte, AlignedDelete>;

Memory take(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes) + kAlign;
  return Memory(static_cast<std::byte*>(::operator new[](size, std::align_val_t(kAlign))));
}

class Evaluator {
 public:
  Evaluator(const Graph& graph, std::int64_t batch, DType floats, KernelChoice choice)
      : graph_(graph),
        batch_(batch),
        floats_(floats),
        choice_(choice),
        memory_(graph.values.size()) {}

  Evaluation run(const NamedTensors& leaves) {
    std::vector<int> readers(graph_.values.size(), 0);
    for (const Node& n : graph_.nodes)
      for (const ValueId v : n.inputs) ++readers[v];
    keep(readers);
    for (const Node& n : graph_.nodes) {
      for (const ValueId v : n.outputs) memory_[v] = take(tensor_bytes(type(v), 1));
      if (is_leaf(n)) {
        fill(n, leaves);
        continue;
      }
      launch(n);
      for (const ValueId v : n.inputs)
        if (--readers[v] == 0) memory_[v].reset();
    }
    return results();
  }

 private:
  // Counts one more reader for every result, so that its memory isn't freed.
  void keep(std::vector<int>& readers) const {
    for (const auto& [name, v] : graph_.fetches) ++readers[v];
    for (const GradientUse& u : graph_.gradients) ++readers[u.gradient];
    for (const StateBuffer& b : graph_.buffers)
      if (b.next != kNone) ++readers[b.next];
  }

  TensorType type(ValueId v) const {
    TensorType t = graph_.values[v].type;
    // With Float64 nothing is rounded, so 16-bit values become float64 as well.
    if (t.dtype == DType::Float32 || (is_narrow(t.dtype) && floats_ == DType::Float64))
      t.dtype = floats_;
    t.shape = bind_batch(t.shape, batch_);
    return t;
  }

  void fill(const Node& n, const NamedTensors& leaves) {
    const auto found = leaves.find(n.name);
    require(found != leaves.end(), "evaluate: no values for the {} '{}'", n.op, n.name);
    const TensorType t = type(n.outputs[0]);
    const std::vector<double>& from = found->second;
    require(static_cast<std::int64_t>(from.size()) == element_count(t.shape),
            "evaluate: {} '{}' is {}, got {} elements", n.op, n.name, to_string(t), from.size());
    std::byte* to = memory_[n.outputs[0]].get();
    if (t.dtype == DType::Float64) {
      std::memcpy(to, from.data(), from.size() * sizeof(double));
    } else if (t.dtype == DType::Float32) {
      auto* floats = reinterpret_cast<float*>(to);
      for (std::size_t i = 0; i < from.size(); ++i) floats[i] = static_cast<float>(from[i]);
    } else if (t.dtype == DType::Bool) {
      for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::byte(from[i] != 0 ? 1 : 0);
    } else {
      require(t.dtype == DType::Int32,
              "evaluate: {} '{}' is {}; only int32, bool and floating-point types are supported",
              n.op, n.name, to_string(t));
      auto* whole = reinterpret_cast<std::int32_t*>(to);
      for (std::size_t i = 0; i < from.size(); ++i)
        whole[i] = static_cast<std::int32_t>(std::lround(from[i]));
    }
  }

  void launch(const Node& n) {
    KernelDesc desc;
    desc.op = n.op;
    desc.name = n.name;
    desc.attrs = &n.attrs;
    desc.batch = batch_;
    desc.name_hash = stable_hash(n.attrs.has("key") ? n.attrs.text("key") : n.name);
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const ValueId v : n.inputs) {
      desc.inputs.push_back(type(v));
      inputs.push_back(memory_[v].get());
    }
    for (const ValueId v : n.outputs) {
      desc.outputs.push_back(type(v));
      outputs.push_back(memory_[v].get());
    }
    const PreparedKernel kernel = prepare_cpu(desc, choice_);
    const Memory scratch = take(kernel.scratch_bytes);
    kernel.run({inputs.data(), outputs.data(), scratch.get(), {}});
  }

  std::vector<double> values(ValueId v) const {
    const TensorType t = type(v);
    const auto n = static_cast<std::size_t>(element_count(t.shape));
    const std::byte* from = memory_[v].get();
    if (t.dtype == DType::Int32) {
      const auto* whole = reinterpret_cast<const std::int32_t*>(from);
      return {whole, whole + n};
    }
    if (floats_ == DType::Float32) {
      const auto* floats = reinterpret_cast<const float*>(from);
      return {floats, floats + n};
    }
    const auto* doubles = reinterpret_cast<const double*>(from);
    return {doubles, doubles + n};
  }

  Evaluation results() const {
    Evaluation out;
    for (const auto& [name, v] : graph_.fetches) out.fetches[name] = values(v)[0];
    for (const StateBuffer& b : graph_.buffers)
      if (b.next != kNone) out.buffers[b.name] = values(b.next);
    for (const GradientUse& u : graph_.gradients) {
      std::vector<double>& sum = out.gradients[graph_.parameters[u.parameter].name];
      const std::vector<double> one = values(u.gradient);
      sum.resize(one.size(), 0);
      for (std::size_t i = 0; i < one.size(); ++i) sum[i] += one[i];
    }
    return out;
  }

  const Graph& graph_;
  std::int64_t batch_;
  DType floats_;
  KernelChoice choice_;
  std::vector<Memory> memory_;  // per value, until its last reader has run
};

}  // namespace

Evaluation evaluate(const Graph& graph, std::int64_t batch, const NamedTensors& leaves,
                    DType floats, KernelChoice choice) {
  require(floats == DType::Float32 || floats == DType::Float64,
          "evaluate: the type must be float32 or float64, got {}", dtype_name(floats));
  for (const Value& v : graph.values) {
    require(v.layout == Layout::Plain,
            "evaluate: images must be in the plain layout; pass the graph as it was before the "
            "layout pass");
  }
  return Evaluator(graph, batch, floats, choice).run(leaves);
}

}  // namespace hetu
