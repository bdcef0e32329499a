// Squares of gradients, added up on the device. Read by train_stages.h.
#pragma once
#include <map>
#include <vector>

#include "executor/device/device.h"
#include "executor/stage/stage.h"

namespace hetu {

class GradientNorms {
 public:
  /// Graph and device must outlive it. Throws InvalidArgument if the device has no memory for so
  /// many results.
  GradientNorms(const Graph& graph, Device& device, const std::vector<Stage*>& stages);

  /// Gives the device what adds up the squares of a stage, and what brings them here.
  void begin(const Stage& stage);
  /// Of each parameter's gradient, once an event behind begin() has come. 0 of tables on servers
  /// and K-FAC's factors, which have none.
  const std::vector<double>& squares_of(const Stage& stage) const;
  /// The same number. Throws InvalidArgument, naming parameter and step, if it is not finite.
  double checked(double square, int parameter, int step) const;

 private:
  const Graph& graph_;
  Device& device_;
  struct Results {
    Device::Memory there;  // a float64 per parameter
    std::vector<double> here;
  };
  std::map<const Stage*, Results> results_;
};

}  // namespace hetu
