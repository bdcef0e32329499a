// Options of trainers as tests begin with them.
#pragma once

#include "config/env.h"
#include "executor/job/trainer.h"

namespace hetu {

/// With the kernels of HETU_KERNELS: the thread sanitizer is to see reference kernels, whose every
/// instruction it knows. And on the device of HETU_DEVICE.
inline TrainerOptions test_options() {
  TrainerOptions options;
  options.kernels = env().kernels;
  if (env().device != "auto") options.device = env().device;
  return options;
}

/// The same on the CPU: what others are compared with.
inline TrainerOptions on_cpu(TrainerOptions options) {
  options.device = "cpu";
  return options;
}

}  // namespace hetu
