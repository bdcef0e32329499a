// Sources of rows that contain their own numbers; used by loader_test.cpp.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "datasets/loader.h"
#include "datasets/order.h"
#include "datasets/source.h"

namespace hetu {

/// Returns a source with another order of rows in each epoch. A row is {its number, epoch}.
inline std::unique_ptr<RowSource> numbered(std::int64_t rows) {
  CallbackSource source;
  source.name = "numbered";
  source.fields = {{"number", DType::Int64, {}}, {"pair", DType::Int32, {2}}};
  source.rows = rows;
  source.read = [rows](Batch& batch) {
    const auto order = drawn_order(rows, 7, static_cast<std::uint64_t>(batch.epoch), 0);
    for (std::int64_t r = 0; r < batch.rows; ++r) {
      const std::int64_t n = order[static_cast<std::size_t>(batch.first + r)];
      for (FieldData& field : batch.fields) {
        if (field.name == "number") field.as<std::int64_t>()[r] = n;
        if (field.name == "pair") {
          field.as<std::int32_t>()[2 * r] = static_cast<std::int32_t>(n);
          field.as<std::int32_t>()[2 * r + 1] = static_cast<std::int32_t>(batch.epoch);
        }
      }
    }
  };
  return callback_source(std::move(source));
}

/// Returns a source of the same numbers in whole global batches. Each epoch has `items` items, and
/// the last item has `last` rows.
inline std::unique_ptr<RowSource> streamed(std::int64_t global, std::int64_t items,
                                           std::int64_t last, std::atomic<int>* fetched = nullptr) {
  StreamSource source;
  source.name = "streamed";
  source.fields = {{"number", DType::Int64, {}}};
  source.global_batch = global;
  source.item = [=](std::int64_t epoch, std::int64_t item, Batch& whole) {
    if (fetched != nullptr) ++*fetched;
    if (item >= items) return false;
    resize_batch(whole, {{"number", DType::Int64, {}}}, item + 1 == items ? last : global);
    for (std::int64_t r = 0; r < whole.rows; ++r) {
      whole.at("number").as<std::int64_t>()[r] = epoch * 1000 + item * global + r;
    }
    return true;
  };
  return stream_source(std::move(source));
}

/// Returns the numbers of a batch.
inline std::vector<std::int64_t> numbers(const Batch& batch) {
  const FieldData& field = batch.at("number");
  return {field.as<std::int64_t>(), field.as<std::int64_t>() + batch.rows};
}

}  // namespace hetu
