// The safetensors file format: eight bytes of header length, a JSON header, and raw little-endian
// tensors. Source: Hugging Face, "safetensors", section Format.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/text_file.h"

namespace hetu {

/// A tensor of a file. `begin` and `end` are byte offsets from the end of the header.
struct TensorEntry {
  std::string name;
  DType dtype = DType::Float32;
  std::string foreign;  ///< the file's name of a dtype that Hetu doesn't support; replaces `dtype`
  Shape shape;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Returns the format's name of a dtype, such as "F32" or "BF16", or `foreign` if it is not empty.
std::string format_dtype(DType dtype, const std::string& foreign);

/// Sets `dtype` for a dtype name of the format, or `foreign` if Hetu doesn't support the dtype.
/// Returns the bits of an element, or 0 if the format doesn't have the name.
int parse_format_dtype(const std::string& name, DType& dtype, std::string& foreign);

/// A tensor to write. `data` is dense and row-major. If it is null, `pieces` calls its argument
/// with the bytes in order, chunk by chunk.
struct TensorSource {
  using Take = std::function<void(const void* data, std::int64_t bytes)>;
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;
  const void* data = nullptr;
  std::function<void(const Take& take)> pieces = nullptr;
  std::string foreign = {};  ///< the format's name of a dtype that Hetu doesn't support
};

/// Writes a whole file and syncs it to disk. `metadata` is stored under "__metadata__". Throws Io
/// with the reason, such as a full disk. The file may then be incomplete, so write a temporary file
/// and rename it.
void write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                       const std::vector<std::pair<std::string, std::string>>& metadata = {});

/// An opened file, whose header has been checked against the file's size. The checks are at least
/// as strict as those of the reference implementation, Hugging Face's `safetensors` crate: tensors
/// cover the data without a gap, an overlap or a remainder, and shapes and offsets are whole
/// numbers. In addition, names must be unique, and the header must begin with '{', as the format's
/// specification demands.
class SafetensorsFile {
 public:
  /// Throws Io if the file is missing, not a regular file, truncated, damaged or not a safetensors
  /// file.
  explicit SafetensorsFile(const std::string& path);

  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  /// Returns the tensor of this name, or nullptr.
  const TensorEntry* find(const std::string& name) const;
  /// Reads a tensor's bytes into `to`, which must have room for end - begin bytes. Throws Io, also
  /// for a dtype that Hetu can't read.
  void read(const TensorEntry& tensor, void* to) const;
  /// As above, for `bytes` bytes starting at byte `begin` of the tensor.
  void read(const TensorEntry& tensor, std::int64_t begin, std::int64_t bytes, void* to) const;
  /// As above, for any dtype of the format.
  void read_bytes(const TensorEntry& tensor, std::int64_t begin, std::int64_t bytes,
                  void* to) const;
  const std::string& path() const { return file_.path(); }

 private:
  void parse_header(const std::string& header, std::int64_t data_bytes);
  void check_cover(std::int64_t data_bytes) const;

  InputFile file_;
  std::int64_t data_at_ = 0;
  std::vector<TensorEntry> tensors_;
};

/// Writes a text file and syncs it. Throws Io.
void write_synced(const std::string& path, const std::string& text);

/// Syncs a directory, so that files created or renamed in it survive a power failure. Throws Io.
void sync_directory(const std::string& path);

}  // namespace hetu
