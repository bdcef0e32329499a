// One file of click logs in the format of Criteo's display-advertising data sets: the offsets of
// its rows, and the parser of a line. Used by criteo.h.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// A line as parsed, before hashing and scaling. An empty column is 0 and counts as missing.
struct CriteoRow {
  static constexpr int kIntegers = 13;
  static constexpr int kCategories = 26;
  static constexpr int kColumns = 1 + kIntegers + kCategories;

  bool click = false;
  std::array<std::int64_t, kIntegers> integers = {};
  std::array<std::uint32_t, kCategories> categories = {};
  int missing = 0;  ///< empty columns
};

/// Parses one line, without its line end: label, 13 decimal integers and 26 categories of up to 8
/// hexadecimal digits, separated by tabs. All columns except the label may be empty. Returns an
/// empty string, or an error text with the column (counted from 1), the value found and the value
/// expected.
std::string parse_criteo_line(std::string_view line, CriteoRow& row);

/// A file with random access by rows. It keeps the offset of every 4096th row and reads rows by
/// ranges.
class CriteoFile {
 public:
  /// Counts the lines in one pass over the file. Throws Io if the file cannot be opened or read.
  explicit CriteoFile(std::string path);

  const std::string& path() const { return path_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t bytes() const { return bytes_; }

  /// Calls `line(number, text)` for rows [first, first + count), where `number` is the line number
  /// from 1. A line of more than 4096 bytes may be passed incompletely, but with more than 4096
  /// bytes. Throws Io, naming the file, if the file has become shorter or cannot be read.
  using Line = std::function<void(std::int64_t number, std::string_view text)>;
  void read(std::int64_t first, std::int64_t count, const Line& line) const;

 private:
  std::string path_;
  std::int64_t rows_ = 0;
  std::int64_t bytes_ = 0;
  std::vector<std::int64_t> offsets_;  // of rows 0, 4096, 8192, …
};

/// Lists the files that `path` stands for: the file itself, or the files of a folder. In a folder
/// these are day_0, day_1, … in numerical order. Without such files they are *.tsv and *.txt, by
/// name. Names that begin with a dot are skipped. Throws Io if the path doesn't exist, can't be
/// read, or has no such file.
std::vector<std::string> list_criteo_files(const std::string& path);

}  // namespace hetu
