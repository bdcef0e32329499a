// Where a trainer's batches come from, and what it does with those to come.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "executor/job/train_tables.h"
#include "executor/stage/train_stages.h"

namespace hetu {

/// A source of fed bytes: where the samples of a field lie, dense, in `bytes` bytes.
using FieldLookup = std::function<const void*(const std::string& field, std::int64_t bytes)>;

/// Reads the next batch of this pipeline, once per step; the lookup holds until the next call.
using BatchSource = std::function<FieldLookup()>;

/// What is known beside the batch that is read. Numbers tell batches apart; without functions
/// nothing is known.
struct BatchesAhead {
  /// Called once all of a step is given to the device, before `field` is asked: while that
  /// computes, the next batch may be read.
  std::function<void()> read = nullptr;
  /// Of the batch after the one that was read last: as FieldLookup, or nullptr. It holds until the
  /// step that runs is over.
  FieldLookup field = nullptr;
  std::function<std::uint64_t()> number = nullptr;       ///< of that batch, from 1
  std::function<std::uint64_t()> last_number = nullptr;  ///< of the one that was read last

  const void* find(const std::string& name, std::int64_t bytes) const {
    return field ? field(name, bytes) : nullptr;
  }
  /// 0: not known.
  std::uint64_t last() const { return last_number ? last_number() : 0; }
};

/// While it lives, fields of the next batch that are known go to the device ahead, but for those
/// that tables on servers read; once it ends, in whatever way, that batch may change.
class NextBatch {
 public:
  NextBatch(TrainStages& stages, const BatchesAhead& known, const ServerTables* tables);
  ~NextBatch();
  NextBatch(const NextBatch&) = delete;
  NextBatch& operator=(const NextBatch&) = delete;

 private:
  FeedsAhead& ahead_;
};

}  // namespace hetu
