// Several tensors in one launch, each cut into chunks of a fixed size: what is added in which order
// follows from a tensor alone, not from those beside it. Read by the kernels alone.
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

/// Of a body that goes to a kernel: 4096 with the launcher's own are all that a kernel takes before
/// CUDA 12.1.
inline constexpr int kArgumentBytes = 4000;

/// Bodies of several tensors. Of: what is done to one, trivially copied.
template <class Of, std::int64_t chunk_elements>
class Chunks {
 public:
  static constexpr std::int64_t kChunk = chunk_elements;
  struct Part {
    Of of;
    std::int64_t elements, first;  ///< the number of its first chunk
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
  /// Whose chunk that is: an empty tensor has none.
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

/// Columns of rows, one per tensor, that add up what its chunks made: as many threads whatever
/// tensors there are, so that their order is a tensor's own.
template <class Of, std::int64_t chunk_elements>
std::int64_t columns_of_parts(const Chunks<Of, chunk_elements>& all) {
  std::int64_t most = kMostThreads;
  for (int i = 0; i < all.parts(); ++i) most = std::max(most, all.part(i).chunks());
  return most;
}

/// As many launches of Body, which has Chunks, as tensors of `calls` ask for: add(body, call) takes
/// one, launch(body) all that were taken.
template <class Body, class Calls, class Add, class Launch>
void in_chunks(const Calls& calls, const Body& empty, const Add& add, const Launch& launch) {
  for (auto call = calls.begin(); call != calls.end();) {
    Body body = empty;
    for (; call != calls.end() && body.has_room(); ++call) add(body, *call);
    launch(body);
  }
}

}  // namespace hetu::cuda
