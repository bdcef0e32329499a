// Upload of the fields of the next batch to the device while the current batch computes. Used by
// train_stages.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "executor/device/device.h"

namespace hetu {

/// Device memory for the fields of one batch, beside the stages' own. The step that reads the batch
/// copies it from there.
class FeedsAhead {
 public:
  /// `bytes` holds the size of each field. If it is empty, or the device has no memory for the
  /// fields, nothing is uploaded ahead.
  FeedsAhead(const std::vector<std::int64_t>& bytes, Device& device);

  bool has_memory() const { return !slots_.empty(); }
  /// Uploads a field of batch `batch`, a number that isn't 0. `data` has the size given to the
  /// constructor and must stay valid until settle(). The upload starts after the copies of the
  /// previous batch out of this memory. Call it only if has_memory().
  void upload(std::size_t field, const void* data, std::uint64_t batch);
  /// Returns the device address of a field of batch `batch`, or null if it wasn't uploaded ahead.
  /// Work given to queue() after this call finds the data there.
  const std::byte* find(std::size_t field, std::uint64_t batch);
  /// Marks that all fields of a step have been given to the stages. Fields of the next step may
  /// then be uploaded.
  void end_batch();
  /// Forgets all uploaded fields, after an error in a run. The queues must have recovered.
  void recover();
  /// Waits until no upload reads host memory. Errors are not reported here; queue() reports them.
  void settle();

  /// Returns the device memory for fields of the given sizes, in bytes.
  static std::int64_t bytes_of(const std::vector<std::int64_t>& bytes);

 private:
  struct Slot {
    std::int64_t offset = 0, bytes = 0;
    std::uint64_t batch = 0;  // batch whose field is stored here; 0: none
  };

  Device& device_;
  Device::Memory memory_;
  std::vector<Slot> slots_;
  Queue::Mark free_;      // reached once the readers of the previous batch are done
  bool reads_ = false;    // an upload may still read host memory
  bool follows_ = false;  // queue() already waits for the last upload
};

}  // namespace hetu
