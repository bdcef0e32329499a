// The values of one part. They can be sent while they change. Read by store.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ps/server/memory_budget.h"
#include "ps/server/messages.h"

namespace hetu::ps::server {

/// Recycles the memory of parts that have no readers. Blocks may outlive the store, and any thread
/// may return them.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  /// Creates a pool whose blocks count in `budget`.
  explicit BlockPool(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}

  const std::shared_ptr<MemoryBudget>& budget() const { return budget_; }
  /// Returns uninitialized memory for at least `elements` floats. It returns to the pool with its
  /// last owner.
  std::shared_ptr<float> take(std::int64_t elements);

 private:
  struct Free {
    std::unique_ptr<float[]> block;
    std::int64_t elements = 0;
  };
  void give_back(float* block, std::int64_t elements);

  const std::shared_ptr<MemoryBudget> budget_;
  std::mutex mutex_;
  std::vector<Free> free_;
};

/// Float32 values with copy-on-write. lend() costs nothing; the first change after it writes to
/// another block.
class PartValues {
 public:
  /// Copies 4 x elements bytes, of any alignment.
  PartValues(const std::byte* values, std::int64_t elements, std::shared_ptr<BlockPool> pool);
  /// Creates zeros.
  PartValues(std::int64_t elements, std::shared_ptr<BlockPool> pool);

  /// Adds delta to the values: values[i] += delta[i], with 4 bytes per element, of any alignment.
  void add(const std::byte* delta);
  /// Returns the values, which may be changed in place until the next call of lend().
  float* writable();
  /// Returns the current values. They stay unchanged while the payload's owner exists.
  Payload lend();
  /// Returns the number of values.
  std::int64_t elements() const { return elements_; }

 private:
  std::int64_t elements_;
  std::shared_ptr<BlockPool> pool_;
  std::shared_ptr<float> block_;
  bool lent_ = false;
};

}  // namespace hetu::ps::server
