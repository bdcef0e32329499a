// Upload of the fields of the next batch to the device while the current batch computes. Used by
// train_stages.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "executor/device/device.h"

namespace hetu {

/// Device memory for the fields of one batch, beside the stages' own. The step that reads the batch
/// copies it from there.
class FeedsAhead {
 public:
  /// A field of the next batch and that batch's number, which isn't 0; `data` is nullptr if the
  /// field isn't known yet. The memory has the size given to the constructor and must stay valid
  /// until settle().
  struct Next {
    const void* data = nullptr;
    std::uint64_t batch = 0;
  };

  /// `bytes` holds the size of each field. If it is empty, or the device has no memory for the
  /// fields, nothing is uploaded ahead.
  FeedsAhead(const std::vector<std::int64_t>& bytes, Device& device);

  /// Sets the functions that read the next batch and return its fields; null disables uploads.
  void set_next(std::function<void()> read, std::function<Next(std::size_t field)> next) {
    read_ = std::move(read);
    next_ = std::move(next);
  }
  /// Reads the next batch and uploads the fields that are known. The uploads start after the copies
  /// of the previous batch out of this memory.
  void upload();
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

  void upload(Slot& slot, const Next& next);

  Device& device_;
  std::function<void()> read_;
  std::function<Next(std::size_t)> next_;
  Device::Memory memory_;
  std::vector<Slot> slots_;
  Queue::Mark free_;      // reached once the readers of the previous batch are done
  bool reads_ = false;    // an upload may still read host memory
  bool follows_ = false;  // queue() already waits for the last upload
};

}  // namespace hetu
