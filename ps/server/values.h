// The values of one part: added to, and lent to whoever sends them while they go on changing. Read
// by store.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ps/server/messages.h"
#include "ps/server/room.h"

namespace hetu::ps::server {

/// Memory of parts that nobody reads any more, to be used again. Blocks may outlive the store and
/// are given back by any thread.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  /// `room`: of which blocks take their share.
  explicit BlockPool(std::shared_ptr<Room> room) : room_(std::move(room)) {}

  const std::shared_ptr<Room>& room() const { return room_; }
  /// Unset values, at least so many; they return to the pool with the last who holds them.
  std::shared_ptr<float> take(std::int64_t elements);

 private:
  struct Free {
    std::unique_ptr<float[]> block;
    std::int64_t elements = 0;
  };
  void give_back(float* block, std::int64_t elements);

  const std::shared_ptr<Room> room_;
  std::mutex mutex_;
  std::vector<Free> free_;
};

/// Float32 values. Lending costs nothing; the first addition after it writes its sums elsewhere.
class PartValues {
 public:
  /// Copies 4 x elements bytes, of any alignment.
  PartValues(const std::byte* values, std::int64_t elements, std::shared_ptr<BlockPool> pool);
  /// Zeros.
  PartValues(std::int64_t elements, std::shared_ptr<BlockPool> pool);

  /// values[i] += delta[i]; 4 bytes per element, of any alignment.
  void add(const std::byte* delta);
  /// The values, to be changed in place until the next call of lend().
  float* writable();
  /// The values as they are now.
  Payload lend();
  std::int64_t elements() const { return elements_; }

 private:
  std::int64_t elements_;
  std::shared_ptr<BlockPool> pool_;
  std::shared_ptr<float> block_;
  bool lent_ = false;
};

}  // namespace hetu::ps::server
