// What stands for cuDNN in tests without a GPU can be told to have no plan.
#pragma once

namespace hetu::cuda {

inline thread_local bool host_has_plan = true;

}  // namespace hetu::cuda
