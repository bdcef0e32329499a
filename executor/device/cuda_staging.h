// Pinned host memory for copies between host and GPU. Used by cuda.cpp.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

namespace hetu::cuda {

/// Ignores a status. Destructors can't report errors, and the driver may be gone when a process
/// ends.
inline void let_go(cudaError_t status) { static_cast<void>(status); }

struct FreeEvent {
  void operator()(cudaEvent_t event) const { let_go(cudaEventDestroy(event)); }
};
/// An event that is destroyed with its owner.
using OwnedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, FreeEvent>;

/// Creates an event without a time stamp, whose waiting threads sleep.
OwnedEvent make_event();

/// A ring of pinned buffers that uploads pass through.
class Staging {
 public:
  Staging();
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Enqueues an upload. `from` may be changed once the call returns.
  void upload(std::byte* to, const std::byte* from, std::int64_t bytes, cudaStream_t stream);

 private:
  static constexpr std::int64_t kBytes = std::int64_t{8} << 20;
  struct Piece {
    std::byte* memory = nullptr;
    OwnedEvent free;
  };
  std::array<Piece, 4> pieces_;
  std::size_t next_ = 0;
};

/// Small downloads through pinned memory, so that the caller needn't wait for them. land() copies
/// the bytes to their destinations after an event recorded behind them.
class Downloads {
 public:
  struct Piece {
    std::byte* to;
    const std::byte* from;  ///< pinned
    std::size_t bytes;
  };

  Downloads();
  ~Downloads();
  Downloads(const Downloads&) = delete;
  Downloads& operator=(const Downloads&) = delete;

  /// Enqueues a download and returns true. Returns false if it has more than kMost bytes or the
  /// pinned memory is full.
  bool take(std::byte* to, const void* from, std::size_t bytes, cudaStream_t stream);
  /// Returns the downloads taken since the last call.
  std::vector<Piece> taken();
  /// Completes downloads after an event behind them. With `there` false, it only frees their
  /// memory.
  void land(const std::vector<Piece>& pieces, bool there);

 private:
  static constexpr std::size_t kRoom = std::size_t{1} << 20, kMost = kRoom / 16, kAligned = 16;
  std::byte* memory_ = nullptr;
  std::mutex mutex_;
  std::vector<Piece> taken_;
  std::size_t used_ = 0, in_flight_ = 0;  // bytes in use from the start on, and downloads in them
};

}  // namespace hetu::cuda
