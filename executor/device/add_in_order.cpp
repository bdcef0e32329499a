#include "executor/device/add_in_order.h"

#include "base/error.h"

namespace hetu {

float* add_in_order(Queue& queue, const TensorKernels& kernels, const std::vector<float*>& terms,
                    const std::vector<int>& order, std::int64_t elements) {
  std::vector<float*> sums;
  for (const int step : order) {
    if (step >= 0) {
      sums.push_back(terms.at(static_cast<std::size_t>(step)));
      continue;
    }
    HETU_ASSERT(sums.size() >= 2);
    const float* const more = sums.back();
    sums.pop_back();
    queue.run([sum = sums.back(), more, elements, add = kernels.add](AddressMap at) {
      add(at(sum), at(more), elements);
    });
  }
  HETU_ASSERT(sums.size() == 1);
  return sums.back();
}

}  // namespace hetu
