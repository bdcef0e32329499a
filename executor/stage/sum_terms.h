// The partial sums of which the sum of a gradient consists, if gradients are added in the order of
// a tree (sum_tree.h). Used by train_stages.h and shared_gradients.h.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "executor/compile/sum_layout.h"
#include "executor/stage/stage.h"
#include "executor/stage/stages.h"

namespace hetu {

/// The terms of all gradient sums that a worker's stages take part in.
class SumTerms {
 public:
  /// `stages` is indexed by placement id; entries of other workers are null. All arguments must
  /// outlive the object.
  SumTerms(const SumLayout& layout, const std::vector<std::unique_ptr<Stage>>& stages, int worker)
      : layout_(layout), stages_(stages), worker_(worker) {}

  /// Adds the terms to a bucket of the placement, in the same order on every worker.
  void add_to(Bucket& to, int placement, int bucket, Device& device);
  /// Returns true if all terms of the parameter are on this worker.
  bool are_here(const StageParameter& parameter);
  /// Enqueues the sum of the terms, all of which are here, and returns where it will be: in place
  /// of one of them.
  float* add_up(const StageParameter& parameter, Device& device);

 private:
  struct Term {
    SumTerm what;
    int worker = 0, placement = 0;
  };
  struct Terms {
    std::vector<Term> terms;
    std::vector<int> order;
  };

  const Terms& of(const StageParameter& parameter);
  const void* data_of(const Term& term, int parameter, std::int64_t elements);

  const SumLayout& layout_;
  const std::vector<std::unique_ptr<Stage>>& stages_;
  const int worker_;
  std::map<int, Terms> by_parameter_;  // by parameter of the graph
};

}  // namespace hetu
