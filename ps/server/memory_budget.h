// The limit on memory that clients may make a store use, and the memory in use. Read by the store's
// own sources only.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace hetu::ps::server {

/// Counts the bytes of tables, of optimizer states and of updates that wait for their rounds. A
/// caller checks the limit before it changes anything. Temporary memory (such as a copy of values
/// that are still being sent) is counted but never refused. Shares may be released by any thread.
class MemoryBudget {
 public:
  /// Creates the counter. `most` is the limit in bytes; 0 means no limit.
  MemoryBudget(int server, std::int64_t most) : server_(server), most_(most) {}

  /// Bytes in use, released on destruction.
  class Share {
   public:
    Share() = default;
    Share(std::shared_ptr<MemoryBudget> budget, std::int64_t bytes) : budget_(std::move(budget)) {
      grow(bytes);
    }
    Share(Share&& other) noexcept
        : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() { grow(-bytes_); }
    /// Takes `bytes` more. A negative number releases bytes.
    void grow(std::int64_t bytes) {
      bytes_ += bytes;
      if (budget_ != nullptr) budget_->taken_ += bytes;
    }

   private:
    std::shared_ptr<MemoryBudget> budget_;
    std::int64_t bytes_ = 0;
  };

  bool has(std::int64_t more) const {
    return most_ == 0 || is_unlimited_ || taken_ + more <= most_;
  }
  /// Returns why a worker may not take `more` bytes for a table, or "" if it may.
  std::string refusal(int worker, std::int64_t more, const std::string& table) const;
  std::int64_t taken() const { return taken_; }
  /// Disables the limit during the replay of a log: memory that was granted once is granted again.
  void set_unlimited(bool is_unlimited) { is_unlimited_ = is_unlimited; }

 private:
  const int server_;
  const std::int64_t most_;
  std::atomic<std::int64_t> taken_{0};
  bool is_unlimited_ = false;
};

}  // namespace hetu::ps::server
