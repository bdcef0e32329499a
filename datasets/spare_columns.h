// Memory of batches whose columns went to somebody else (arrays of Python), handed back when he
// lets go of them. Read by loaders' bindings.
#pragma once
#include <cstddef>
#include <mutex>
#include <vector>

#include "datasets/batch.h"

namespace hetu {

/// Large memory that is fresh costs the system a fault for every page, a fifth of what reading
/// images costs. May outlive the loader; any thread may call.
class SpareColumns {
 public:
  explicit SpareColumns(std::size_t fields);

  /// Bytes of a column of that field, which nobody reads any more. A few are kept, others freed.
  void put(std::size_t field, std::vector<std::byte> bytes) noexcept;

  /// A batch to fill, whose fields hold what was put for them.
  Batch take();

 private:
  static constexpr std::size_t kMost = 2;  // one that is read while the next is made
  std::mutex mutex_;
  std::vector<std::vector<std::vector<std::byte>>> of_field_;
};

}  // namespace hetu
