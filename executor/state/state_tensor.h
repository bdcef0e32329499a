// A persistent tensor of a worker: what optimizers change and checkpoints keep.
#pragma once
#include <string>

#include "executor/device/device.h"
#include "graph/base/shape.h"

namespace hetu {

struct StateTensor {
  std::string name;   ///< parameter name
  std::string state;  ///< "" for the weight, else e.g. "exp_avg"
  Shape shape;
  DeviceSpan values;
  bool owner = true;  ///< false: another stage of this pipeline writes it
};

}  // namespace hetu
