// Several tensors in one launch, each divided into chunks of a fixed size. The order of additions
// depends only on a tensor itself, not on the others in the launch. Used only by the kernels.
#pragma once
#include <launch.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/error.h"
#include "ops/cuda/geometry.h"
#include "ops/cuda/work.h"

namespace hetu::cuda {

/// Maximum bytes of a body passed to a kernel. Before CUDA 12.1 a kernel takes at most 4096 bytes
/// of arguments, including the launcher's own.
inline constexpr int kArgumentBytes = 4000;

/// The parts of several tensors, passed to a kernel by value. `Of` is the work on one tensor and is
/// trivially copyable.
template <class Of, std::int64_t chunk_elements>
class Chunks {
 public:
  static constexpr std::int64_t kChunk = chunk_elements;
  struct Part {
    Of of;
    std::int64_t elements, first;  ///< first: number of the part's first chunk
    /// Returns the chunks of the part.
    HETU_HD std::int64_t chunks() const { return (elements + kChunk - 1) / kChunk; }
  };
  static constexpr int kMost = (kArgumentBytes - 64) / static_cast<int>(sizeof(Part));
  static_assert(std::is_trivially_copyable_v<Part> && kMost >= 8);

  Chunks() {}  // NOLINT: what is not added is not read
  bool has_room() const { return parts_ < kMost; }
  void add(const Of& of, std::int64_t elements) {
    HETU_ASSERT(has_room());
    const Part* const made = std::construct_at(&part_[parts_++], Part{of, elements, chunks_});
    chunks_ += made->chunks();
  }

  HETU_HD int parts() const { return parts_; }
  HETU_HD std::int64_t chunks() const { return chunks_; }
  HETU_HD const Part& part(std::int64_t i) const { return part_[i]; }
  /// Returns the part that a chunk belongs to. An empty tensor has no chunks.
  HETU_HD const Part& holder(std::int64_t chunk) const {
    int low = 0;
    for (int high = parts_; high - low > 1;) {
      const int middle = (low + high) / 2;
      (part_[middle].first <= chunk ? low : high) = middle;
    }
    return part_[low];
  }

 private:
  int parts_ = 0;
  std::int64_t chunks_ = 0;
  union {
    Part part_[kMost];
  };
};

/// Returns the number of columns for for_rows() when each row adds the results of one tensor's
/// chunks. It is at least kMostThreads, so every launch has the same number of threads, and the
/// order of additions doesn't depend on the other tensors.
template <class Of, std::int64_t chunk_elements>
std::int64_t columns_of_parts(const Chunks<Of, chunk_elements>& all) {
  std::int64_t most = kMostThreads;
  for (int i = 0; i < all.parts(); ++i) most = std::max(most, all.part(i).chunks());
  return most;
}

/// Splits `calls` into as few launches as possible. add(body, call) adds a tensor to the current
/// body, launch(body) launches it when it is full or all calls are added.
template <class Body, class Calls, class Add, class Launch>
void in_chunks(const Calls& calls, const Body& empty, const Add& add, const Launch& launch) {
  for (auto call = calls.begin(); call != calls.end();) {
    Body body = empty;
    for (; call != calls.end() && body.has_room(); ++call) add(body, *call);
    launch(body);
  }
}

}  // namespace hetu::cuda
