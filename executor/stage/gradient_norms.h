// Squared norms of gradients, summed on the device. Used by train_stages.h.
#pragma once
#include <map>
#include <vector>

#include "executor/device/device.h"
#include "executor/stage/stage.h"

namespace hetu {

/// The squared gradient norms of a worker's stages.
class GradientNorms {
 public:
  /// Graph and device must outlive the object. Throws InvalidArgument if the device has no memory
  /// for one float64 per parameter.
  GradientNorms(const Graph& graph, Device& device, const std::vector<Stage*>& stages);

  /// Enqueues the sums of squares of a stage and their download.
  void begin(const Stage& stage);
  /// Returns the squared norm of each parameter's gradient. Call it after an event recorded after
  /// begin(). Entries are 0 for tables on servers and for K-FAC's factors, which have no gradient
  /// here.
  const std::vector<double>& squares_of(const Stage& stage) const;
  /// Returns `square`. Throws InvalidArgument, naming parameter and step, if it isn't finite.
  double checked(double square, int parameter, int step) const;

 private:
  const Graph& graph_;
  Device& device_;
  struct Results {
    Device::Memory there;  // device memory: one float64 per parameter
    std::vector<double> here;
  };
  std::map<const Stage*, Results> results_;
};

}  // namespace hetu
