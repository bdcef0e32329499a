// What stands for cuDNN in tests without a GPU can be told to have no plan, and tells what it ran.
#pragma once
#include <cstdint>

namespace hetu::cuda {

inline constexpr std::int64_t kAnyInputs = INT64_MAX;
/// Of a group: of more it has no plan.
inline thread_local std::int64_t host_most_inputs = kAnyInputs;
/// Of a group of the convolution that ran last.
inline thread_local std::int64_t host_inputs = 0;

}  // namespace hetu::cuda
