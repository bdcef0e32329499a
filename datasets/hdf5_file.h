// Reading rows of integer datasets from an HDF5 file. The one place that knows the HDF5 library,
// which allows one thread at a time: all calls here share one lock.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/shape.h"

namespace hetu {

/// An HDF5 file, open for reading (without a file lock, so that read-only and network folders
/// work).
class Hdf5File {
 public:
  /// Throws Io with the library's reason for a missing, truncated or foreign file; Unsupported in a
  /// build without HDF5.
  explicit Hdf5File(std::string path);
  ~Hdf5File();
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  const std::string& path() const;

  /// Shape of a dataset. Throws Io if there is none of that name or its elements are not integers.
  Shape shape(const std::string& dataset);

  /// Rows [first, first + count) of a dataset, along its first axis, as int32. Chunks that a later
  /// call may need stay decompressed, so that reading front to back decompresses each once. Throws
  /// Io.
  void read_rows(const std::string& dataset, std::int64_t first, std::int64_t count,
                 std::int32_t* out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
