// Reads rows of integer datasets from an HDF5 file. Only this file's source uses the HDF5 library.
// The library allows one thread at a time, so all calls share one lock.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/shape.h"

namespace hetu {

/// An HDF5 file that is open for reading. It takes no file lock, so that read-only and network
/// folders work.
class Hdf5File {
 public:
  /// Opens a file. Throws Io with the library's reason for a missing, truncated or foreign file,
  /// and Unsupported in a build without HDF5.
  explicit Hdf5File(std::string path);
  ~Hdf5File();
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  const std::string& path() const;

  /// Returns the shape of a dataset. Throws Io if it doesn't exist or its elements are not
  /// integers.
  Shape shape(const std::string& dataset);

  /// Reads rows [first, first + count) of a dataset, along its first axis, as int32. Decompressed
  /// chunks stay in a cache, so reading from front to back decompresses each chunk once. Throws Io.
  void read_rows(const std::string& dataset, std::int64_t first, std::int64_t count,
                 std::int32_t* out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
