#include "executor/state/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "graph/base/error.h"

namespace hetu {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostHeader = 100 << 20;  // the format's own bound

struct NameRow {
  DType dtype;
  const char* name;
};

constexpr NameRow kNames[] = {{DType::Float32, "F32"},   {DType::Float64, "F64"},
                              {DType::BFloat16, "BF16"}, {DType::Float16, "F16"},
                              {DType::Int32, "I32"},     {DType::Int64, "I64"},
                              {DType::Int8, "I8"},       {DType::Bool, "BOOL"}};

const char* file_name_of(DType dtype) {
  for (const NameRow& row : kNames) {
    if (row.dtype == dtype) return row.name;
  }
  fail(Code::Internal, "dtype {} has no safetensors name", dtype_name(dtype));
}

// Dtypes of the format that Hetu doesn't have: a file may hold them, but they can't be read.
struct ForeignRow {
  const char* name;
  int bits;
};

constexpr ForeignRow kForeign[] = {
    {"U8", 8},   {"I16", 16},    {"U16", 16},    {"U32", 32},        {"U64", 64},
    {"C64", 64}, {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},     {"F8_E4M3FNUZ", 8},
    {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E5M2FNUZ", 8},
};

// Sets the dtype of an entry by its name in files and returns the bits of an element.
int set_dtype(TensorEntry& entry, const std::string& name, const std::string& path) {
  for (const NameRow& row : kNames) {
    if (name != row.name) continue;
    entry.dtype = row.dtype;
    return static_cast<int>(8 * dtype_bytes(row.dtype));
  }
  for (const ForeignRow& row : kForeign) {
    if (name != row.name) continue;
    entry.foreign = name;
    return row.bits;
  }
  fail(Code::Io, "{}: tensor '{}' has the dtype '{}', which is not one of safetensors files", path,
       entry.name, name);
}

// A file being written, closed in any case.
class Writer {
 public:
  explicit Writer(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644)) {
    if (fd_ < 0) fail(Code::Io, "{}: cannot be written: {}", path, std::strerror(errno));
  }
  ~Writer() {
    if (fd_ >= 0) ::close(fd_);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void write(const void* data, std::int64_t bytes) {
    const char* p = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t done = ::write(fd_, p, static_cast<std::size_t>(bytes));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail(Code::Io, "{}: writing failed: {}", path_, std::strerror(errno));
      p += done;
      bytes -= done;
    }
  }

  void finish() {
    if (::fsync(fd_) != 0) fail(Code::Io, "{}: syncing failed: {}", path_, std::strerror(errno));
    const int fd = fd_;
    fd_ = -1;
    if (::close(fd) != 0) fail(Code::Io, "{}: closing failed: {}", path_, std::strerror(errno));
  }

 private:
  std::string path_;
  int fd_;
};

void read_exactly(int fd, const std::string& path, std::int64_t at, void* to, std::int64_t bytes) {
  char* p = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, p, static_cast<std::size_t>(bytes), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(Code::Io, "{}: reading failed: {}", path, std::strerror(errno));
    if (got == 0)
      fail(Code::Io, "{}: ends at byte {}, {} more were expected; the file is truncated", path, at,
           bytes);
    p += got;
    at += got;
    bytes -= got;
  }
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                       const std::vector<std::pair<std::string, std::string>>& metadata) {
  ordered_json header = ordered_json::object();
  for (const auto& [key, value] : metadata) header["__metadata__"][key] = value;
  std::int64_t at = 0;
  for (const TensorSource& t : tensors) {
    const std::int64_t bytes = element_count(t.shape) * dtype_bytes(t.dtype);
    HETU_ASSERT(!header.contains(t.name));
    header[t.name] = {
        {"dtype", file_name_of(t.dtype)}, {"shape", t.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // tensors start aligned
  const std::uint64_t length = text.size();
  Writer file(path);
  file.write(&length, sizeof length);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  for (const TensorSource& t : tensors) {
    std::int64_t left = element_count(t.shape) * dtype_bytes(t.dtype);
    const auto write = [&](const void* data, std::int64_t bytes) {
      left -= bytes;
      file.write(data, bytes);
    };
    if (t.pieces)
      t.pieces(write);
    else
      write(t.data, left);
    HETU_ASSERT(left == 0);
  }
  file.finish();
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail(Code::Io, "{}: cannot be read: {}", path, std::strerror(errno));
  try {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) fail(Code::Io, "{}: {}", path, std::strerror(errno));
    std::uint64_t length = 0;
    if (info.st_size < 8)
      fail(Code::Io, "{}: has {} bytes, too few for a safetensors file", path, info.st_size);
    read_exactly(fd_, path_, 0, &length, 8);
    if (length > kMostHeader || static_cast<std::int64_t>(length) > info.st_size - 8) {
      fail(Code::Io,
           "{}: its header would be {} bytes long in a file of {}; not a safetensors file, or "
           "damaged",
           path, length, info.st_size);
    }
    std::string header(length, '\0');
    read_exactly(fd_, path_, 8, header.data(), static_cast<std::int64_t>(length));
    data_at_ = 8 + static_cast<std::int64_t>(length);
    parse_header(header, info.st_size - data_at_);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { ::close(fd_); }

void SafetensorsFile::parse_header(const std::string& header, std::int64_t data_bytes) {
  try {
    const ordered_json in = ordered_json::parse(header);
    for (const auto& [name, row] : in.items()) {
      if (name == "__metadata__") continue;
      TensorEntry t;
      t.name = name;
      const int bits = set_dtype(t, row.at("dtype"), path_);
      t.shape = row.at("shape").get<Shape>();
      t.begin = row.at("data_offsets").at(0);
      t.end = row.at("data_offsets").at(1);
      for (const std::int64_t dim : t.shape) {
        if (dim < 0) fail(Code::Io, "{}: tensor '{}' has a negative dimension", path_, name);
      }
      const std::int64_t bytes = (element_count(t.shape) * bits + 7) / 8;
      if (t.begin < 0 || t.end < t.begin || t.end - t.begin != bytes || t.end > data_bytes) {
        fail(Code::Io,
             "{}: tensor '{}' {} should have {} bytes, its offsets are {} to {} of {}; the file is "
             "truncated or "
             "damaged",
             path_, name, to_string(t.shape), bytes, t.begin, t.end, data_bytes);
      }
      tensors_.push_back(std::move(t));
    }
  } catch (const ordered_json::exception& e) {
    fail(Code::Io, "{}: its header is not that of a safetensors file: {}", path_, e.what());
  }
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  for (const TensorEntry& t : tensors_) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

void SafetensorsFile::read(const TensorEntry& tensor, void* to) const {
  read(tensor, 0, tensor.end - tensor.begin, to);
}

void SafetensorsFile::read(const TensorEntry& tensor, std::int64_t begin, std::int64_t bytes,
                           void* to) const {
  if (!tensor.foreign.empty())
    fail(Code::Io, "{}: tensor '{}' is {}, which Hetu does not read", path_, tensor.name,
         tensor.foreign);
  HETU_ASSERT(begin >= 0 && bytes >= 0 && begin + bytes <= tensor.end - tensor.begin);
  read_exactly(fd_, path_, data_at_ + tensor.begin + begin, to, bytes);
}

void write_synced(const std::string& path, const std::string& text) {
  Writer file(path);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  file.finish();
}

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY);
  if (fd < 0) fail(Code::Io, "{}: {}", path, std::strerror(errno));
  const int failed = ::fsync(fd);
  ::close(fd);
  if (failed != 0) fail(Code::Io, "{}: syncing failed: {}", path, std::strerror(errno));
}

}  // namespace hetu
