// Memory of batches whose columns were given away (as NumPy arrays, for example), handed back when
// their user releases them. Used by the Python bindings of loaders.
#pragma once
#include <cstddef>
#include <mutex>
#include <vector>

#include "datasets/batch.h"

namespace hetu {

/// A pool of column buffers. Fresh memory costs a page fault per page, which takes a fifth of the
/// time for reading images. The pool may outlive the loader. Any thread may call it.
class SpareColumns {
 public:
  explicit SpareColumns(std::size_t fields);

  /// Returns a column's buffer to the pool, for field number `field`. The pool keeps up to kMost
  /// buffers per field and frees the others.
  void put(std::size_t field, std::vector<std::byte> bytes) noexcept;

  /// Returns a batch to fill. Its fields hold buffers from the pool, where there are some.
  Batch take();

 private:
  static constexpr std::size_t kMost = 2;  // one batch in use and one being filled
  std::mutex mutex_;
  std::vector<std::vector<std::vector<std::byte>>> of_field_;
};

}  // namespace hetu
