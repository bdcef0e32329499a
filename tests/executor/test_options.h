// Default trainer options of the tests.
#pragma once

#include "config/env.h"
#include "executor/job/job.h"

namespace hetu {

/// Returns options with the kernels of HETU_KERNELS and the device of HETU_DEVICE. Runs under the
/// thread sanitizer use the reference kernels, because the sanitizer knows all of their
/// instructions.
inline JobOptions test_options() {
  JobOptions options;
  options.kernels = env().kernels;
  if (env().device != "auto") options.device = env().device;
  return options;
}

/// Returns the same options for the CPU, which other devices are compared with.
inline JobOptions on_cpu(JobOptions options) {
  options.device = "cpu";
  return options;
}

}  // namespace hetu
