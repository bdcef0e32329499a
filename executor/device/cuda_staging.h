// Pinned memory that bytes between host and card pass through. Used by cuda.cpp.
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

/// Destructors have nobody to tell, and the process may be ending with the driver gone.
inline void let_go(cudaError_t status) { static_cast<void>(status); }

struct FreeEvent {
  void operator()(cudaEvent_t event) const { let_go(cudaEventDestroy(event)); }
};
using OwnedEvent = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, FreeEvent>;

OwnedEvent make_event();

/// Pieces that uploads pass through, one after the other.
class Staging {
 public:
  Staging();
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// `from` may be changed once it returns.
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

/// Few bytes on their way to the host, which whoever asks for them need not wait for: they are
/// where they belong once they land, after an event behind them.
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

  /// Copies by the stream, unless there are more bytes than kMost or than there is room for.
  bool take(std::byte* to, const void* from, std::size_t bytes, cudaStream_t stream);
  /// What was taken since the last such call.
  std::vector<Piece> taken();
  /// Once an event behind them has happened; without `there` their room is free again and no more.
  void land(const std::vector<Piece>& pieces, bool there);

 private:
  static constexpr std::size_t kRoom = std::size_t{1} << 20, kMost = kRoom / 16, kAligned = 16;
  std::byte* memory_ = nullptr;
  std::mutex mutex_;
  std::vector<Piece> taken_;
  std::size_t used_ = 0, on_the_way_ = 0;  // bytes from the start on, and pieces among them
};

}  // namespace hetu::cuda
