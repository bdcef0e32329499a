// A persistent tensor of a worker, which optimizers change and checkpoints keep.
#pragma once
#include <memory>
#include <string>

#include "base/shape.h"
#include "executor/device/device.h"

namespace hetu {

/// Float32 values that are stored on parameter servers and may exceed a worker's memory. They are
/// read and written in ranges of whole rows.
class StateBlocks {
 public:
  virtual ~StateBlocks() = default;
  /// Reads the elements begin <= i < begin + elements, which are whole rows. write() writes them.
  virtual void read(std::int64_t begin, std::int64_t elements, float* to) = 0;
  virtual void write(std::int64_t begin, std::int64_t elements, const float* from) = 0;
};

/// A parameter, optimizer state or buffer of a worker, and the location of its values.
struct StateTensor {
  std::string name;   ///< parameter name
  std::string state;  ///< "" for the weight, else e.g. "exp_avg"
  Shape shape;
  DeviceSpan values;  ///< empty if the tensor is in blocks
  bool owner = true;  ///< false if another stage of this pipeline writes it to checkpoints
  std::shared_ptr<StateBlocks> blocks = nullptr;
};

}  // namespace hetu
