// Sums of squares per parameter, in float64 on the device.
#include "executor/stage/gradient_norms.h"

#include <cmath>

#include "base/error.h"
#include "executor/stage/curvature.h"

namespace hetu {

GradientNorms::GradientNorms(const Graph& graph, Device& device, const std::vector<Stage*>& stages)
    : graph_(graph), device_(device) {
  for (const Stage* stage : stages) {
    Results& of = results_[stage];
    of.here.resize(stage->plan().parameters.size());
    of.there = device.alloc_for(static_cast<std::int64_t>(of.here.size() * sizeof(double)),
                                "the norms of gradients");
  }
}

// Entries of parameters without a gradient stay zero.
void GradientNorms::begin(const Stage& stage) {
  const auto& parameters = stage.plan().parameters;
  Results& of = results_.at(&stage);
  auto* const results = reinterpret_cast<double*>(of.there.get());
  const auto has_none = [&](const StageParameter& p) {
    return p.uses.empty() || p.served || is_factor(graph_, p);
  };
  std::vector<SquaresCall> whole;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (has_none(parameters[p])) continue;
    const float* const x = stage.gradients().sum_of(static_cast<int>(p));
    const TouchedRows rows = stage.gradients().rows_of(static_cast<int>(p));
    if (rows.bits == nullptr) {
      whole.push_back({x, parameters[p].elements, results + p});
      continue;
    }
    device_.queue().run([x, rows, to = results + p, sum = device_.kernels().sum_of_squares_rows](
                            AddressMap at) { sum(at(x), to_kernel_addresses(rows, at), at(to)); });
  }
  device_.queue().run([whole, sums = device_.kernels().sums_of_squares](AddressMap at) {
    std::vector<SquaresCall> calls = whole;
    for (SquaresCall& call : calls) call = {at(call.x), call.elements, at(call.result)};
    sums(calls);
  });
  device_.queue().download(of.here.data(), results,
                           static_cast<std::int64_t>(of.here.size() * sizeof(double)));
}

const std::vector<double>& GradientNorms::squares_of(const Stage& stage) const {
  return results_.at(&stage).here;
}

double GradientNorms::checked(double square, int parameter, int step) const {
  if (!std::isfinite(square)) {
    fail(Code::InvalidArgument,
         "the norm of the gradient of '{}' is {} at step {}; lower the learning rate or clip "
         "gradients",
         graph_.parameters[parameter].name, std::sqrt(square), step);
  }
  return square;
}

}  // namespace hetu
