#include "ps/server/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace hetu::ps {

namespace {

bool ascend(const std::vector<std::int64_t>& ids) {
  return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
}

}  // namespace

std::string fault_of_rows(std::int64_t elements, int width, const UpdateRule& rule) {
  if (width < 1 || width > kMostWidth) {
    return fmt::format("its rows have a width of {}; it must be 1 to {}", width, kMostWidth);
  }
  if (elements % width != 0) {
    return fmt::format("its {} elements are not a multiple of its row width {}", elements, width);
  }
  if (rule.optimizer && !rule.optimizer->undecayed.empty()) {
    return "weight decay applies to all rows of a sparse table; "
           "give its optimizer no undecayed ranges";
  }
  return "";
}

Rows merge_rows(Rows rows, int width) {
  if (ascend(rows.ids)) return rows;
  std::vector<std::size_t> order(rows.ids.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rows.ids[a] != rows.ids[b] ? rows.ids[a] < rows.ids[b] : a < b;
  });
  const auto w = static_cast<std::size_t>(width);
  Rows merged;
  for (const std::size_t i : order) {
    const float* vector = rows.values.data() + i * w;
    if (!merged.ids.empty() && merged.ids.back() == rows.ids[i]) {
      float* sum = merged.values.data() + merged.values.size() - w;
      for (std::size_t k = 0; k < w; ++k) sum[k] += vector[k];
      if (!rows.counts.empty()) merged.counts.back() += rows.counts[i];
      continue;
    }
    merged.ids.push_back(rows.ids[i]);
    merged.values.insert(merged.values.end(), vector, vector + w);
    if (!rows.counts.empty()) merged.counts.push_back(rows.counts[i]);
  }
  return merged;
}

}  // namespace hetu::ps
