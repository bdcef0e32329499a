#include "executor/stage/sum_terms.h"

#include <algorithm>

#include "base/error.h"
#include "executor/device/add_in_order.h"

namespace hetu {
namespace {

// Returns the index in the plan of a parameter of the graph.
int index_of(const StagePlan& plan, int parameter) {
  const auto found =
      std::find_if(plan.parameters.begin(), plan.parameters.end(),
                   [&](const StageParameter& p) { return p.parameter == parameter; });
  HETU_ASSERT(found != plan.parameters.end());
  return static_cast<int>(found - plan.parameters.begin());
}

// Returns the slot of a part of the sum of a use.
int slot_of(const GradientBuckets& gradients, int use, const SumPart& part) {
  for (const SumTree::Held& held : gradients.held(use))
    if (held.part == part) return held.slot;
  fail(Code::Internal, "the gradient sum of micro-batches {} to {} is missing", part.first,
       part.end - 1);
}

}  // namespace

const SumTerms::Terms& SumTerms::of(const StageParameter& parameter) {
  const auto [at, fresh] = by_parameter_.emplace(parameter.parameter, Terms{});
  Terms& of = at->second;
  if (!fresh) return of;
  std::vector<SumTerm> parts;
  for (const auto& [use, stage] : parameter.all_uses) {
    for (const SumCopy& copy : layout_.copies) {
      if (copy.model_stage != stage) continue;
      for (const SumPart& part : copy.parts) {
        of.terms.push_back({{use, part}, copy.worker, copy.placement});
        parts.push_back(of.terms.back().what);
      }
    }
  }
  of.order = order_of_additions(parts, layout_.total);
  return of;
}

const void* SumTerms::data_of(const Term& term, int parameter, std::int64_t elements) {
  Stage& stage = *stages_[term.placement];
  const int p = index_of(stage.plan(), parameter);
  for (const int use : stage.plan().parameters[p].uses) {
    if (stage.plan().uses[use].use != term.what.use) continue;
    const int bucket = stage.gradients().bucket_of(p);
    const int slot = slot_of(stage.gradients(), use, term.what.part);
    for (const int other : stage.gradients().parameters_of(bucket))
      HETU_ASSERT(other == p || slot_of(stage.gradients(), stage.plan().parameters[other].uses[0],
                                        term.what.part) == slot);
    return stage.gradients().term(bucket, use, slot, elements);
  }
  fail(Code::Internal, "stage {} lacks use {} of a parameter", stage.plan().stage, term.what.use);
}

// The bucket's parameters have the same terms, at the same distance from each other in every slot.
// The first of them therefore stands for the bucket.
void SumTerms::add_to(Bucket& to, int placement, int bucket, Device& device) {
  const Stage& stage = *stages_[placement];
  const int first = stage.gradients().parameters_of(bucket).front();
  const StageParameter& parameter = stage.plan().parameters[first];
  const Terms& all = of(parameter);
  for (const Term& term : all.terms) {
    const bool here = term.worker == worker_;
    to.terms.push_back(
        {term.worker, here ? data_of(term, parameter.parameter, to.count) : nullptr});
  }
  to.order = all.order;
  if (!device.in_host_memory()) to.ready = device.queue().record();
}

bool SumTerms::are_here(const StageParameter& parameter) {
  const std::vector<Term>& terms = of(parameter).terms;
  return std::all_of(terms.begin(), terms.end(),
                     [&](const Term& term) { return term.worker == worker_; });
}

float* SumTerms::add_up(const StageParameter& parameter, Device& device) {
  const Terms& all = of(parameter);
  std::vector<float*> terms;
  for (const Term& term : all.terms) {
    Stage& stage = *stages_[term.placement];
    const int p = index_of(stage.plan(), parameter.parameter);
    for (const int use : stage.plan().parameters[p].uses)
      if (stage.plan().uses[use].use == term.what.use)
        terms.push_back(
            stage.gradients().in_slot(use, slot_of(stage.gradients(), use, term.what.part)));
  }
  return add_in_order(device.queue(), device.kernels(), terms, all.order, parameter.elements);
}

}  // namespace hetu
