#include "executor/compile/sum_layout.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace hetu {
namespace {

// Returns the micro-batches of a placement in the order of the gradients of this kind.
std::vector<int> order_of(const std::vector<Instr>& row, int placement, Kind kind) {
  std::vector<int> micros;
  for (const Instr& i : row)
    if (i.stage == placement && (i.kind == kind || i.kind == Kind::Backward))
      micros.push_back(i.micro);
  return micros;
}

}  // namespace

int SumLayout::copies_of(int model_stage) const {
  return static_cast<int>(std::count_if(copies.begin(), copies.end(), [&](const SumCopy& copy) {
    return copy.model_stage == model_stage;
  }));
}

const SumCopy& SumLayout::at(int worker, int placement) const {
  const auto found = std::find_if(copies.begin(), copies.end(), [&](const SumCopy& copy) {
    return copy.worker == worker && copy.placement == placement;
  });
  HETU_ASSERT(found != copies.end());
  return *found;
}

SumLayout sum_layout(const Schedule& plan, int pipelines) {
  return sum_layout(std::vector<const Schedule*>(static_cast<std::size_t>(pipelines), &plan));
}

SumLayout sum_layout(const std::vector<const Schedule*>& plans) {
  const Schedule& plan = *plans.front();
  require(!plan.half_micros,
          "--sums tree adds the gradients of whole micro-batches, but '{}' computes those of half "
          "ones; use --sums running, or leave --concat out",
          plan.method);
  SumLayout layout;
  layout.total = 0;
  for (const Schedule* one : plans) layout.total += one->micro_batches;
  const int width = static_cast<int>(plan.workers.size());
  for (std::size_t p = 0; p < plan.placements.size(); ++p) {
    const Placement& placement = plan.placements[p];
    const int id = static_cast<int>(p), worker = placement.workers[0];
    int first = 0, first_worker = 0;
    const Schedule* known = nullptr;  // the plan of `micros`
    std::vector<int> micros;
    for (const Schedule* one : plans) {
      if (one != std::exchange(known, one)) {
        const std::vector<Instr> row = unroll(one->workers[static_cast<std::size_t>(worker)]);
        micros = order_of(row, id, Kind::WeightGrad);
        require(order_of(row, id, Kind::InputGrad) == micros,
                "'{}' computes I and W of stage {} in different orders of micro-batches, and "
                "--sums tree needs the same order; use --sums running",
                plan.method, placement.model_stage);
      }
      SumCopy copy = {first_worker + worker, id, placement.model_stage, micros, {}};
      for (int& micro : copy.micros) micro += first;
      copy.parts = largest_parts(copy.micros, layout.total);
      layout.copies.push_back(std::move(copy));
      first += one->micro_batches;
      first_worker += width;
    }
  }
  for (int stage = 0; stage < model_stages(plan); ++stage) {
    std::vector<SumTerm> terms;
    for (const SumCopy& copy : layout.copies)
      for (const SumPart& part : copy.parts)
        if (copy.model_stage == stage) terms.push_back({0, part});
    order_of_additions(terms, layout.total);
  }
  return layout;
}

}  // namespace hetu
