// Control of the stand-in for cuBLASLt in tests without a GPU: a test can make it refuse to sum
// bias gradients.
#pragma once

namespace hetu::cuda {

inline thread_local bool host_sums_bias_grads = true;

}  // namespace hetu::cuda
