#include "datasets/criteo_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/text_file.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kEvery = 4096;  // rows between stored offsets
constexpr std::size_t kLongest = 4096;
constexpr std::size_t kChunk = std::size_t{1} << 20;

std::string column_name(int column) {
  if (column == 0) return "label";
  const bool integer = column <= CriteoRow::kIntegers;
  return fmt::format("{}{}", integer ? "I" : "C", integer ? column : column - CriteoRow::kIntegers);
}

// Formats a field for an error message: escaped to printable ASCII and shortened.
std::string shown(std::string_view field) {
  constexpr std::size_t kShown = 24;
  std::string out;
  for (const char c : field.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7F ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return fmt::format("'{}'{}", out, field.size() > kShown ? "…" : "");
}

std::string wrong(int column, std::string_view field, const char* expected) {
  return fmt::format("column {} ({}) is {}, expected {}", column + 1, column_name(column),
                     shown(field), expected);
}

template <class T>
bool read_number(std::string_view field, int base, T& value) {
  const char* const end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value, base);
  return error == std::errc() && stop == end;
}

// Parses column number `column` of a row. Returns an error text, or an empty string.
std::string parse_field(int column, std::string_view field, CriteoRow& row) {
  if (column == 0) {
    row.click = field == "1";
    return row.click || field == "0" ? "" : wrong(0, field, "0 or 1");
  }
  const bool is_integer = column <= CriteoRow::kIntegers;
  std::int64_t integer = 0;
  std::uint32_t category = 0;
  if (field.empty()) {
    ++row.missing;
  } else if (is_integer && !read_number(field, 10, integer)) {
    return wrong(column, field, "a decimal integer of 64 bits or nothing");
  } else if (!is_integer && (field.size() > 8 || !read_number(field, 16, category))) {
    return wrong(column, field, "1 to 8 hexadecimal digits or nothing");
  }
  if (is_integer)
    row.integers[static_cast<std::size_t>(column - 1)] = integer;
  else
    row.categories[static_cast<std::size_t>(column - 1 - CriteoRow::kIntegers)] = category;
  return "";
}

// A file that is open for reading.
class Opened {
 public:
  explicit Opened(const std::string& path) : file_(path) {}

  // Reads up to `bytes` bytes from `offset` on. Returns fewer only at the end of the file.
  std::size_t read(char* to, std::size_t bytes, std::int64_t offset) const {
    std::size_t done = 0;
    while (done < bytes) {
      const ssize_t got = ::pread(file_.descriptor(), to + done, bytes - done,
                                  offset + static_cast<std::int64_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(Code::Io, "{}: cannot be read: {}", file_.path(), std::strerror(errno));
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

 private:
  InputFile file_;
};

// Returns N for the name "day_N", and -1 for other names.
std::int64_t day_of(const std::string& name) {
  std::int64_t day = -1;
  const bool is_day = name.rfind("day_", 0) == 0 && name.size() > 4 && name[4] != '-' &&
                      read_number(std::string_view(name).substr(4), 10, day);
  return is_day ? day : -1;
}

}  // namespace

std::string parse_criteo_line(std::string_view line, CriteoRow& row) {
  row.missing = 0;
  if (line.size() > kLongest) {
    return fmt::format("the line has more than {} bytes, expected {} tab-separated columns",
                       kLongest, CriteoRow::kColumns);
  }
  const auto columns = 1 + static_cast<int>(std::count(line.begin(), line.end(), '\t'));
  if (columns != CriteoRow::kColumns) {
    return fmt::format(
        "{} columns, expected {}, tab-separated: label, {} integers, {} categories{}", columns,
        CriteoRow::kColumns, CriteoRow::kIntegers, CriteoRow::kCategories,
        columns == CriteoRow::kColumns - 1 ? "; rows without a label are for prediction only" : "");
  }
  for (int column = 0; column < columns; ++column) {
    const std::size_t end = std::min(line.find('\t'), line.size());
    std::string trouble = parse_field(column, line.substr(0, end), row);
    if (!trouble.empty()) return trouble;
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return "";
}

CriteoFile::CriteoFile(std::string path) : path_(std::move(path)) {
  const Opened file(path_);
  std::vector<char> chunk(kChunk);
  bool in_line = false;
  while (const std::size_t got = file.read(chunk.data(), kChunk, bytes_)) {
    const char* at = chunk.data();
    const char* const end = at + got;
    while (at != end) {
      if (!in_line && rows_ % kEvery == 0) offsets_.push_back(bytes_ + (at - chunk.data()));
      const auto* const stop =
          static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at)));
      in_line = stop == nullptr;
      if (in_line) break;
      ++rows_;
      at = stop + 1;
    }
    bytes_ += static_cast<std::int64_t>(got);
  }
  rows_ += in_line ? 1 : 0;  // the last line may lack its line end
}

void CriteoFile::read(std::int64_t first, std::int64_t count, const Line& line) const {
  HETU_ASSERT(first >= 0 && count >= 0 && first + count <= rows_);
  if (count == 0) return;
  const Opened file(path_);
  std::int64_t number = first / kEvery * kEvery, offset = offsets_[first / kEvery];
  const auto take = [&](const char* text, std::size_t length) {
    if (number >= first) line(number + 1, {text, length});
    ++number;
  };
  std::vector<char> chunk(kChunk);
  std::size_t held = 0;  // bytes of a line whose end has not been read yet
  while (number < first + count) {
    const std::size_t got = file.read(chunk.data() + held, kChunk - held, offset);
    offset += static_cast<std::int64_t>(got);
    const char* at = chunk.data();
    const char* const end = at + held + got;
    while (number < first + count) {
      const auto* const stop =
          static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at)));
      if (stop == nullptr) break;
      take(at, static_cast<std::size_t>(stop - at));
      at = stop + 1;
    }
    held = static_cast<std::size_t>(end - at);
    if (number == first + count) return;
    if (got == 0 && held == 0)
      fail(Code::Io,
           "{}: has {} rows now, but had {} at the start; data files must not change during a run",
           path_, number, rows_);
    if (got == 0) {
      take(at, held);
      held = 0;
    }
    held =
        std::min(held, kLongest + 1);  // keeps enough of a longer line to show that it is too long
    std::memmove(chunk.data(), at, held);
  }
}

std::vector<std::string> list_criteo_files(const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::not_found) fail(Code::Io, "{}: no such file or folder", path);
  if (error) fail(Code::Io, "{}: cannot be read: {}", path, error.message());
  if (type != fs::file_type::directory) return {path};
  std::vector<std::pair<std::int64_t, std::string>> days;
  std::vector<std::string> texts;
  // increment() reports a folder that can't be read to its end. A range-for would throw
  // filesystem_error.
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const fs::path& file = at->path();
    const std::string name = file.filename().string();
    std::error_code not_there;  // of a link to nowhere, which is skipped
    // Hidden files are an editor's backups, or the ._ files that macOS writes beside others.
    if (name[0] == '.' || !at->is_regular_file(not_there)) continue;
    const std::int64_t day = day_of(name);
    if (day >= 0) days.emplace_back(day, file.string());
    if (file.extension() == ".tsv" || file.extension() == ".txt") texts.push_back(file.string());
  }
  if (error) fail(Code::Io, "{}: cannot be read: {}", path, error.message());
  if (days.empty() && texts.empty())
    fail(Code::Io, "{}: has no click logs; expected day_0, day_1, …, or *.tsv or *.txt", path);
  if (days.empty()) {
    std::sort(texts.begin(), texts.end());
    return texts;
  }
  std::sort(days.begin(), days.end());
  texts.clear();
  for (auto& [day, file] : days) texts.push_back(std::move(file));
  return texts;
}

}  // namespace hetu
