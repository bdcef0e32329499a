// Squares of gradients, added up on the device. Read by train_stages.h.
#pragma once
#include <vector>

#include "executor/device/device.h"
#include "executor/stage/stage.h"

namespace hetu {

class GradientNorms {
 public:
  /// `parameters`: the most of any stage. Graph and device must outlive it. Throws InvalidArgument
  /// if the device has no memory for so many results.
  GradientNorms(const Graph& graph, Device& device, std::size_t parameters);

  /// Of each parameter's gradient but for tables on servers and K-FAC's factors, which have none.
  /// Comes back from the device at once for all of them.
  std::vector<double> squares_of(const Stage& stage) const;
  /// The same number. Throws InvalidArgument, naming parameter and step, if it is not finite.
  double checked(double square, int parameter, int step) const;

 private:
  const Graph& graph_;
  Device& device_;
  Device::Memory results_;  // a float64 per parameter
};

}  // namespace hetu
