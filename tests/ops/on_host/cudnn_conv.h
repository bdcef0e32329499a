// Controls of the stand-in for cuDNN in tests without a GPU: a test can make it have no plan, and
// can read the convolution that it ran.
#pragma once
#include <cstdint>

namespace hetu::cuda {

inline constexpr std::int64_t kAnyInputs = INT64_MAX;
/// Largest number of inputs per group for which there is a plan.
inline thread_local std::int64_t host_most_inputs = kAnyInputs;
/// Inputs per group of the last convolution.
inline thread_local std::int64_t host_inputs = 0;

}  // namespace hetu::cuda
