// The fields of the batch after the one that computes, brought to the device while it does. Used by
// train_stages.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "executor/device/device.h"

namespace hetu {

/// A batch's room beside the stages', from which the step that reads it copies it.
class FeedsAhead {
 public:
  /// A field of the next batch, as long as was told, and that batch's number, not 0; or nullptr. It
  /// must stay until settle().
  struct Next {
    const void* data = nullptr;
    std::uint64_t batch = 0;
  };

  /// Of fields of so many bytes. Where there are none, or the device has no room, nothing goes
  /// ahead.
  FeedsAhead(const std::vector<std::int64_t>& bytes, Device& device);

  /// Who reads the next batch, and who knows its fields; null: nobody.
  void set_next(std::function<void()> read, std::function<Next(std::size_t field)> next) {
    read_ = std::move(read);
    next_ = std::move(next);
  }
  /// Has the next batch read. All that is known of it goes to the device, behind what reads the
  /// batch before.
  void upload();
  /// Where what queue() is given from here on finds that field of that batch; null: it did not come
  /// ahead.
  const std::byte* find(std::size_t field, std::uint64_t batch);
  /// A step's fields are given; those of the next one may come.
  void end_batch();
  /// After an error in a run: nothing lies there ahead of its batch. The queues must have
  /// recovered.
  void recover();
  /// Sleeps until nobody reads host memory any more. What went wrong is told by queue().
  void settle();

  /// What a device needs for fields of so many bytes.
  static std::int64_t bytes_of(const std::vector<std::int64_t>& bytes);

 private:
  struct Place {
    std::int64_t offset = 0, bytes = 0;
    std::uint64_t batch = 0;  // that lies there; 0: none
  };

  void upload(Place& place, const Next& next);

  Device& device_;
  std::function<void()> read_;
  std::function<Next(std::size_t)> next_;
  Device::Memory memory_;
  std::vector<Place> places_;
  Queue::Mark free_;      // behind the readers of the batch before
  bool reads_ = false;    // host memory may be read
  bool follows_ = false;  // queue() begins behind what was uploaded
};

}  // namespace hetu
