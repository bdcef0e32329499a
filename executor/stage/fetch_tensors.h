// Tensors that validation and prediction runs report besides float32 scalars. Tensors without the
// batch axis are summed over micro-batches. Tensors with the batch axis are collected for every
// sample, from whichever stage computes them. Part of train_stages.h.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "executor/stage/stage.h"
#include "executor/stage/stages_options.h"
#include "net/transport/transport.h"

namespace hetu {

/// The fetched tensors of a worker's stages.
class FetchTensors {
 public:
  /// `stages` holds the stages of this worker, by placement id. All arguments must outlive the
  /// object.
  FetchTensors(const Graph& graph, const StagesOptions& options, const StepContext& context,
               const std::vector<std::unique_ptr<Stage>>& stages)
      : graph_(graph), options_(options), context_(context), stages_(stages) {}

  /// Returns this worker's share of the sums of a step, for each summed tensor in the order of the
  /// graph.
  std::vector<double> own_sums() const;
  /// Returns the fetched tensors of a step by fetch of the graph, as in StepReport::tensors. `sums`
  /// is the sum of own_sums() over all workers. Collective: every worker calls it and receives
  /// everything. Blocks.
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
