// What runs that do not train report besides float32 scalars: tensors without the batch axis,
// summed, and those that have it, of every sample, wherever their stage stands. Part of
// train_stages.h.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "executor/stage/stage.h"
#include "executor/stage/stages_options.h"
#include "net/transport/transport.h"

namespace hetu {

class FetchTensors {
 public:
  /// Of the stages of this worker, by placement id. All must outlive it.
  FetchTensors(const Graph& graph, const StagesOptions& options, const StepContext& context,
               const std::vector<std::unique_ptr<Stage>>& stages)
      : graph_(graph), options_(options), context_(context), stages_(stages) {}

  /// Of each tensor that is summed, in the order of the graph, this worker's part of a step.
  std::vector<double> own_sums() const;
  /// Of a step, by fetch of the graph, as StepReport::tensors; `sums` are own_sums() added over all
  /// workers. Every worker calls it, and every worker gets all. Blocks.
  std::vector<std::vector<std::byte>> gather(const std::vector<double>& sums,
                                             comm::Transport& transport, int step) const;

 private:
  bool is_tensor(std::size_t fetch) const;
  template <class Visit>
  void each(bool per_sample, const Visit& visit) const;
  std::vector<std::byte> own_pieces() const;

  const Graph& graph_;
  const StagesOptions& options_;
  const StepContext& context_;
  const std::vector<std::unique_ptr<Stage>>& stages_;
};

}  // namespace hetu
