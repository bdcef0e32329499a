// The memory that clients may make a store take, and how much of it they have taken. Read by the
// store's own sources alone.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace hetu::ps::server {

/// Counts bytes of tables, of what optimizers keep beside them and of updates that wait for their
/// rounds. Whoever is about to take some asks before anything has changed; what the rules then need
/// in passing (a copy of values that are still being sent) is counted, and never refused. Shares
/// are given back by any thread.
class Room {
 public:
  /// `most`: bytes; 0: no limit.
  Room(int server, std::int64_t most) : server_(server), most_(most) {}

  /// Taken bytes, given back at its end.
  class Share {
   public:
    Share() = default;
    Share(std::shared_ptr<Room> room, std::int64_t bytes) : room_(std::move(room)) { grow(bytes); }
    Share(Share&& other) noexcept
        : room_(std::move(other.room_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(room_, other.room_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() { grow(-bytes_); }
    /// By fewer than none: gives back.
    void grow(std::int64_t bytes) {
      bytes_ += bytes;
      if (room_ != nullptr) room_->taken_ += bytes;
    }

   private:
    std::shared_ptr<Room> room_;
    std::int64_t bytes_ = 0;
  };

  bool has(std::int64_t more) const {
    return most_ == 0 || is_unlimited_ || taken_ + more <= most_;
  }
  /// Why a worker may not make the server take so many bytes more for a table; "" if it may.
  std::string refusal(int worker, std::int64_t more, const std::string& table) const;
  std::int64_t taken() const { return taken_; }
  /// While a log is replayed: what was taken once is taken again.
  void set_unlimited(bool is_unlimited) { is_unlimited_ = is_unlimited; }

 private:
  const int server_;
  const std::int64_t most_;
  std::atomic<std::int64_t> taken_{0};
  bool is_unlimited_ = false;
};

}  // namespace hetu::ps::server
