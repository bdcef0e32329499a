#include "pipeline/cost/averages.h"

#include <algorithm>
#include <cstddef>

namespace hetu {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double typical(const std::vector<double>& values) {
  const double most = 2 * median(values);
  double sum = 0, count = 0;
  for (const double value : values) {
    if (value > most) continue;
    sum += value;
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

}  // namespace hetu
