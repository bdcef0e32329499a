// The source of a trainer's batches, and the upload of the next batch while the current one
// computes.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "executor/job/train_tables.h"
#include "executor/stage/train_stages.h"

namespace hetu {

/// Returns the address of a field's samples, stored densely in `bytes` bytes.
using FieldLookup = std::function<const void*(const std::string& field, std::int64_t bytes)>;

/// Reads this pipeline's next batch. Called once per step. The lookup stays valid until the next
/// call.
using BatchSource = std::function<FieldLookup()>;

/// Access to the batch after the current one. Batches are identified by numbers. A null function
/// means that the information is not available.
struct BatchesAhead {
  /// Called when all work of a step has been queued on the device, before `field` is called. The
  /// next batch may be read while the device computes.
  std::function<void()> read = nullptr;
  /// Looks up a field of the batch after the one that was read last, as FieldLookup, or returns
  /// nullptr. The data stays valid until the running step ends.
  FieldLookup field = nullptr;
  std::function<std::uint64_t()> number = nullptr;  ///< number of the batch after the last, from 1
  std::function<std::uint64_t()> last_number = nullptr;  ///< number of the batch that was read last

  const void* find(const std::string& name, std::int64_t bytes) const {
    return field ? field(name, bytes) : nullptr;
  }
  /// Returns the number of the batch that was read last; 0 if unknown.
  std::uint64_t last() const { return last_number ? last_number() : 0; }
};

/// Scope guard. While it exists, known fields of the next batch are uploaded to the device ahead of
/// their step, except fields that tables on servers read. After its destruction, also by an
/// exception, the memory of that batch may change.
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
