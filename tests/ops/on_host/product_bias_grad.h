// What stands for cuBLASLt in tests without a GPU can be told not to sum gradients of biases.
#pragma once

namespace hetu::cuda {

inline thread_local bool host_sums_bias_grads = true;

}  // namespace hetu::cuda
