// Options of trainers as tests begin with them.
#pragma once

#include "config/env.h"
#include "executor/job/trainer.h"

namespace hetu {

/// With the kernels of HETU_KERNELS: the thread sanitizer is to see reference kernels, whose every
/// instruction it knows.
inline TrainerOptions test_options() {
  TrainerOptions options;
  options.kernels = env().kernels;
  return options;
}

}  // namespace hetu
