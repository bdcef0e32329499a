// Parameters with several holders on one worker. Example: stages 0 and 3 of this worker share an
// embedding. join() adds stage 3's gradient to stage 0's, the lead, whose REDUCE_GRAD sums it with
// other workers. Then join_all() copies the sum to stage 3.
#include "executor/stage/shared_gradients.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace hetu {

// The lead is the holder whose gradient is summed with other workers. For a tied parameter it is
// the holder on the lowest stage (reduction.h). For replicas it is the last one that requests the
// sum.
SharedGradients::SharedGradients(const Graph& graph,
                                 const std::vector<std::unique_ptr<Stage>>& stages, Device& device,
                                 SumTerms* terms)
    : device_(device), terms_(terms) {
  std::map<int, std::vector<Holder>> holders;  // by parameter of the graph
  for (const auto& stage : stages) {
    if (!stage) continue;
    const auto& parameters = stage->plan().parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (!parameters[p].uses.empty())
        holders[parameters[p].parameter].push_back({stage.get(), static_cast<int>(p)});
    }
  }
  for (auto& [parameter, list] : holders) {
    if (list.size() < 2) continue;
    std::stable_sort(list.begin(), list.end(), [](const Holder& a, const Holder& b) {
      return a.stage->plan().stage < b.stage->plan().stage;
    });
    for (const Holder& h : list) h.stage->gradients().share(h.parameter);
    const int lowest = list[0].stage->plan().stage;
    std::size_t lead = 0;
    while (lead + 1 < list.size() && list[lead + 1].stage->plan().stage == lowest) ++lead;
    if (lead > 0 && lead + 1 < list.size())
      fail(Code::Unsupported,
           "'{}' is tied, and stage {} is on this worker more than once; put its replicas on "
           "different workers",
           graph.parameters[parameter].name, lowest);
    shared_.push_back({std::move(list), lead, false});
  }
}

void SharedGradients::begin_run() {
  for (Shared& shared : shared_) shared.joined = false;
}

// Adds the gradients in model order, and within a stage in the order of its replicas.
void SharedGradients::join(Shared& shared) {
  if (shared.joined) return;
  shared.joined = true;
  if (terms_ != nullptr) return join_terms(shared);
  for (const Holder& h : shared.holders) h.stage->gradients().clear_if_unused();
  float* const first = shared.holders[0].sum();
  for (std::size_t i = 1; i < shared.holders.size(); ++i) {
    device_.queue().run(
        [first, from = shared.holders[i].sum(), n = shared.elements(),
         add = device_.kernels().add](AddressMap at) { add(at(first), at(from), n); });
  }
  if (shared.lead > 0)
    device_.queue().copy(shared.holders[shared.lead].sum(), first, shared.elements() * 4);
  for (const std::size_t i : {std::size_t{0}, shared.lead}) shared.holders[i].changed();
}

// Adds the terms of a parameter that no sum over workers adds. Terms of other workers would be
// added by such a sum, together with those of this worker.
void SharedGradients::join_terms(const Shared& shared) {
  const Holder& lead = shared.holders[shared.lead];
  const StageParameter& parameter = lead.stage->plan().parameters[lead.parameter];
  if (!terms_->are_here(parameter)) return;
  device_.queue().copy(lead.sum(), terms_->add_up(parameter, device_), shared.elements() * 4);
}

// In a tree, the sum over workers adds all terms, also if it has no other worker. To add them here
// first would add them twice.
void SharedGradients::join_into(const Stage& stage, int bucket) {
  for (Shared& shared : shared_) {
    const Holder& lead = shared.holders[shared.lead];
    if (lead.stage != &stage || stage.gradients().bucket_of(lead.parameter) != bucket) continue;
    if (terms_ != nullptr)
      shared.joined = true;
    else
      join(shared);
  }
}

void SharedGradients::join_all() {
  for (Shared& shared : shared_) {
    join(shared);
    float* const sum = shared.holders[shared.lead].sum();
    for (const Holder& h : shared.holders) {
      device_.queue().copy(h.sum(), sum, shared.elements() * 4);
      h.changed();
    }
  }
}

}  // namespace hetu
