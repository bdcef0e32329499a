// One file of click logs in the format of Criteo's display-advertising sets: where its rows lie,
// and what a line says. Read by criteo.h.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// A line as it stands: nothing is hashed or scaled yet. What is empty is 0, and counted.
struct CriteoRow {
  static constexpr int kIntegers = 13;
  static constexpr int kCategories = 26;
  static constexpr int kColumns = 1 + kIntegers + kCategories;

  bool click = false;
  std::array<std::int64_t, kIntegers> integers = {};
  std::array<std::uint32_t, kCategories> categories = {};
  int missing = 0;  ///< columns that are empty
};

/// Reads one line, without its end: label, 13 integers and 26 categories of up to 8 hexadecimal
/// digits, tab-separated; all but the label may be empty. Returns what is wrong with it, with the
/// column (counted from 1), what was found and what is right; empty if nothing is.
std::string parse_criteo_line(std::string_view line, CriteoRow& row);

/// A file by rows: an offset every 4096 rows is kept, the rows themselves are read by ranges.
class CriteoFile {
 public:
  /// Counts the lines, once through the file. Throws Io for what cannot be opened or read.
  explicit CriteoFile(std::string path);

  const std::string& path() const { return path_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t bytes() const { return bytes_; }

  /// Calls `line(number, text)` for rows [first, first + count), numbers counting lines from 1.
  /// Of a line of more than 4096 bytes at least so many are given. Throws Io, naming the file: it
  /// is shorter than it was, or cannot be read.
  using Line = std::function<void(std::int64_t number, std::string_view text)>;
  void read(std::int64_t first, std::int64_t count, const Line& line) const;

 private:
  std::string path_;
  std::int64_t rows_ = 0;
  std::int64_t bytes_ = 0;
  std::vector<std::int64_t> offsets_;  // of rows 0, 4096, 8192, …
};

/// The files that `path` means: itself; of a folder those named day_0, day_1, … in the order of
/// their numbers, or, without such, *.tsv and *.txt by name. Names that begin with a dot are passed
/// over. Throws Io: nothing there, none of them.
std::vector<std::string> list_criteo_files(const std::string& path);

}  // namespace hetu
