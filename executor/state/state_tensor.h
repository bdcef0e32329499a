// A persistent tensor of a worker: what optimizers change and checkpoints keep.
#pragma once
#include <memory>
#include <string>

#include "base/shape.h"
#include "executor/device/device.h"

namespace hetu {

/// Float32 values that lie elsewhere, on parameter servers, and may be more than a worker's memory
/// holds: read and written a range of whole rows at a time.
class StateBlocks {
 public:
  virtual ~StateBlocks() = default;
  /// Elements begin <= i < begin + elements, which hold whole rows.
  virtual void read(std::int64_t begin, std::int64_t elements, float* to) = 0;
  virtual void write(std::int64_t begin, std::int64_t elements, const float* from) = 0;
};

struct StateTensor {
  std::string name;   ///< parameter name
  std::string state;  ///< "" for the weight, else e.g. "exp_avg"
  Shape shape;
  DeviceSpan values;  ///< nothing of a tensor in blocks
  bool owner = true;  ///< false: another stage of this pipeline writes it
  std::shared_ptr<StateBlocks> blocks = nullptr;
};

}  // namespace hetu
