#include "executor/state/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text_file.h"

namespace hetu {
namespace {

using nlohmann::ordered_json;

// Bound of the reference implementation, in bytes.
constexpr std::uint64_t kMostHeader = 100'000'000;

struct NameRow {
  DType dtype;
  const char* name;
};

constexpr NameRow kNames[] = {{DType::Float32, "F32"},   {DType::Float64, "F64"},
                              {DType::BFloat16, "BF16"}, {DType::Float16, "F16"},
                              {DType::Int32, "I32"},     {DType::Int64, "I64"},
                              {DType::Int8, "I8"},       {DType::Bool, "BOOL"}};

// Dtypes of the format that Hetu doesn't use. A file may contain them along with supported ones.
struct SizeRow {
  const char* name;
  int bits;
};

constexpr SizeRow kForeign[] = {
    {"U8", 8},          {"I16", 16},    {"U16", 16},    {"U32", 32},    {"U64", 64},
    {"C64", 64},        {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};

// Returns the bytes of a tensor; nullopt if they exceed 64 bits or are not a whole number.
std::optional<std::int64_t> bytes_of(const Shape& shape, int bits) {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) {
    if (__builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  if (__builtin_mul_overflow(count, std::int64_t{bits}, &count) || count % 8 != 0)
    return std::nullopt;
  return count / 8;
}

// Returns a number that must be whole and without a sign, a point or an exponent.
std::int64_t whole_number(const ordered_json& number, const std::string& name,
                          const std::string& path) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!number.is_number_unsigned() || number.get<std::uint64_t>() > kMost)
    fail(Code::Io, "{}: tensor '{}': expected a whole number of 0 or more, got {}", path, name,
         one_line(number.dump()));
  return number.get<std::int64_t>();
}

TensorEntry entry_of(const std::string& name, const ordered_json& row, const std::string& path) {
  TensorEntry t;
  t.name = name;
  const ordered_json &shape = row.at("shape"), &offsets = row.at("data_offsets");
  const auto dtype = row.at("dtype").get<std::string>();
  const int bits = parse_format_dtype(dtype, t.dtype, t.foreign);
  if (bits == 0) {
    fail(Code::Io, "{}: tensor '{}' has dtype '{}', which the safetensors format does not have",
         path, name, dtype);
  }
  if (!shape.is_array() || !offsets.is_array() || offsets.size() != 2)
    fail(Code::Io, "{}: tensor '{}': expected a list as shape and two data_offsets", path, name);
  for (const ordered_json& dim : shape) t.shape.push_back(whole_number(dim, name, path));
  t.begin = whole_number(offsets[0], name, path);
  t.end = whole_number(offsets[1], name, path);
  const std::optional<std::int64_t> bytes = bytes_of(t.shape, bits);
  if (!bytes || t.end < t.begin || t.end - t.begin != *bytes) {
    fail(Code::Io,
         "{}: tensor '{}' {} of {} bits each has offsets {} to {}, which do not fit its shape; "
         "the file is damaged",
         path, name, to_string(t.shape), bits, t.begin, t.end);
  }
  return t;
}

void check_metadata(const ordered_json& metadata, const std::string& path) {
  const bool is_fine = metadata.is_null() ||
                       (metadata.is_object() &&
                        std::all_of(metadata.begin(), metadata.end(),
                                    [](const ordered_json& text) { return text.is_string(); }));
  if (!is_fine) fail(Code::Io, "{}: its __metadata__ must be a map from text to text", path);
}

// Rejects a key that occurs twice in one object, because parsers disagree on which of the two
// counts.
class DistinctKeys {
 public:
  explicit DistinctKeys(const std::string& path) : path_(path) {}
  bool take(ordered_json::parse_event_t event, const ordered_json& key) {
    using Event = ordered_json::parse_event_t;
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event == Event::key && !open_.back().insert(key.get<std::string>()).second)
      fail(Code::Io, "{}: '{}' occurs twice in its header", path_,
           one_line(key.get_ref<const std::string&>()));
    return true;
  }

 private:
  const std::string& path_;
  std::vector<std::set<std::string>> open_;
};

// A file being written, which the destructor closes.
class Writer {
 public:
  explicit Writer(const std::string& path) : path_(path), fd_(open_output(path)) {}
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
    // Devices and FIFOs can't be synced.
    if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
      fail(Code::Io, "{}: syncing failed: {}", path_, std::strerror(errno));
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

// Returns the bytes of a tensor that is to be written.
std::int64_t source_bytes(const TensorSource& t) {
  if (t.foreign.empty()) return element_count(t.shape) * dtype_bytes(t.dtype);
  DType none{};
  std::string name;
  const std::optional<std::int64_t> bytes =
      bytes_of(t.shape, parse_format_dtype(t.foreign, none, name));
  HETU_ASSERT(bytes.has_value());
  return *bytes;
}

}  // namespace

std::string format_dtype(DType dtype, const std::string& foreign) {
  if (!foreign.empty()) return foreign;
  for (const NameRow& row : kNames) {
    if (row.dtype == dtype) return row.name;
  }
  fail(Code::Internal, "dtype {} has no safetensors name", dtype_name(dtype));
}

int parse_format_dtype(const std::string& name, DType& dtype, std::string& foreign) {
  for (const NameRow& row : kNames) {
    if (name != row.name) continue;
    dtype = row.dtype;
    return static_cast<int>(8 * dtype_bytes(row.dtype));
  }
  for (const SizeRow& row : kForeign) {
    if (name != row.name) continue;
    foreign = name;
    return row.bits;
  }
  return 0;
}

void write_safetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                       const std::vector<std::pair<std::string, std::string>>& metadata) {
  ordered_json header = ordered_json::object();
  for (const auto& [key, value] : metadata) header["__metadata__"][key] = value;
  std::int64_t at = 0;
  for (const TensorSource& t : tensors) {
    const std::int64_t bytes = source_bytes(t);
    HETU_ASSERT(!header.contains(t.name));
    header[t.name] = {{"dtype", format_dtype(t.dtype, t.foreign)},
                      {"shape", t.shape},
                      {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that tensors start aligned
  const std::uint64_t length = text.size();
  Writer file(path);
  file.write(&length, sizeof length);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  for (const TensorSource& t : tensors) {
    std::int64_t left = source_bytes(t);
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

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  std::uint64_t length = 0;
  if (file_.bytes() < 8)
    fail(Code::Io, "{}: has {} bytes, too few for a safetensors file", path, file_.bytes());
  read_exactly(file_.descriptor(), path, 0, &length, 8);
  if (length > kMostHeader || static_cast<std::int64_t>(length) > file_.bytes() - 8) {
    fail(Code::Io,
         "{}: its header would be {} bytes long in a file of {}; not a safetensors file, or "
         "damaged",
         path, length, file_.bytes());
  }
  std::string header(length, '\0');
  read_exactly(file_.descriptor(), path, 8, header.data(), static_cast<std::int64_t>(length));
  data_at_ = 8 + static_cast<std::int64_t>(length);
  parse_header(header, file_.bytes() - data_at_);
}

void SafetensorsFile::parse_header(const std::string& header, std::int64_t data_bytes) {
  // Checked here because the parser skips a byte order mark and stops at a zero byte.
  if (header.empty() || header[0] != '{' || header.find('\0') != std::string::npos)
    fail(Code::Io, "{}: its header is not a JSON object; not a safetensors file, or damaged",
         path());
  try {
    DistinctKeys distinct(path());
    const auto check = [&distinct](int, ordered_json::parse_event_t event,
                                   const ordered_json& key) { return distinct.take(event, key); };
    const ordered_json in = ordered_json::parse(bounded_json(header, path(), Code::Io), check);
    for (const auto& [name, row] : in.items()) {
      if (name == "__metadata__")
        check_metadata(row, path());
      else
        tensors_.push_back(entry_of(name, row, path()));
    }
  } catch (const ordered_json::exception& e) {
    fail(Code::Io, "{}: its header is not that of a safetensors file: {}", path(), e.what());
  }
  check_cover(data_bytes);
}

// Checks that the tensors, in the order of their bytes, cover the data without gaps.
void SafetensorsFile::check_cover(std::int64_t data_bytes) const {
  std::vector<const TensorEntry*> in_order;
  for (const TensorEntry& t : tensors_) in_order.push_back(&t);
  std::sort(in_order.begin(), in_order.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::int64_t end = 0;
  for (const TensorEntry* t : in_order) {
    if (t->begin != end)
      fail(Code::Io,
           "{}: tensor '{}' begins at byte {}, expected byte {}, where the previous tensor ends; "
           "the file is damaged",
           path(), t->name, t->begin, end);
    end = t->end;
  }
  if (end != data_bytes)
    fail(Code::Io,
         "{}: its tensors take {} bytes, but {} bytes follow the header; the file is truncated or "
         "damaged",
         path(), end, data_bytes);
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
    fail(Code::Io, "{}: tensor '{}' has dtype {}, which Hetu does not read", path(), tensor.name,
         tensor.foreign);
  read_bytes(tensor, begin, bytes, to);
}

void SafetensorsFile::read_bytes(const TensorEntry& tensor, std::int64_t begin, std::int64_t bytes,
                                 void* to) const {
  HETU_ASSERT(begin >= 0 && bytes >= 0 && begin + bytes <= tensor.end - tensor.begin);
  read_exactly(file_.descriptor(), path(), data_at_ + tensor.begin + begin, to, bytes);
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
