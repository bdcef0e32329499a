// Random generators of the simulated accelerator: the CPU's algorithm with a separate state.
#pragma once
#include <ATen/CPUGeneratorImpl.h>

namespace far_device {

/// Returns a new generator of a device.
at::Generator new_generator(int device);
/// Returns the generator of a device that operators use by default.
const at::Generator& default_generator(int device);

}  // namespace far_device
