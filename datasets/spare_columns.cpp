#include "datasets/spare_columns.h"

#include <utility>

namespace hetu {

SpareColumns::SpareColumns(std::size_t fields) : of_field_(fields) {
  for (auto& spare : of_field_) spare.reserve(kMost);
}

void SpareColumns::put(std::size_t field, std::vector<std::byte> bytes) noexcept {
  const std::lock_guard lock(mutex_);
  auto& spare = of_field_[field];
  if (spare.size() < kMost) spare.push_back(std::move(bytes));
}

Batch SpareColumns::take() {
  Batch batch;
  batch.fields.resize(of_field_.size());
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < of_field_.size(); ++i) {
    auto& spare = of_field_[i];
    if (spare.empty()) continue;
    batch.fields[i].bytes = std::move(spare.back());
    spare.pop_back();
  }
  return batch;
}

}  // namespace hetu
