// Click logs in the format of Criteo's display-advertising data sets, and the features that
// training makes of their columns. The data sets are the Kaggle challenge of 2014 and the terabyte
// of 24 days.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/criteo_file.h"
#include "datasets/source.h"

namespace hetu {

/// The files of a data set. Their lines have been counted. Their rows are read later.
struct CriteoSet {
  std::string path;
  std::vector<CriteoFile> files;

  /// Returns the rows of all files.
  std::int64_t rows() const;
};

/// Opens a file, or a folder of day files (see list_criteo_files), and reads each file once to
/// count its lines. Throws Io for a missing file or folder, and for files without rows.
CriteoSet open_criteo(const std::string& path);

/// The options of criteo_source.
struct CriteoOptions {
  std::shared_ptr<const CriteoSet> set;
  /// Rows per column in the embedding table, >= 1. There are 26 columns.
  std::int64_t hash_size = 10000;
  /// true: rows in random order per epoch, shuffled within windows. false: in file order.
  bool train = true;
  std::uint64_t seed = 0;
  /// Rows per shuffle window. A window is held in memory, at 160 bytes per row.
  std::int64_t window = 65536;
  /// Uses only this many rows from the start of the files; 0 uses all rows.
  std::int64_t max_rows = 0;
};

/// Returns the rows of click logs. Fields:
///   label int32 []: 1 clicked, 0 not clicked;
///   dense float32 [13]: log(1 + max(x, 0)) of the integers, with 0 for an empty column;
///   ids int32 [26]: c * hash_size + category mod hash_size for column c = 0 to 25, with category 0
///   for an empty column. All columns share one table, in which each has its own rows.
/// These are the rules of Meta's DLRM (Naumov et al. 2019, its data_utils.py with --max-ind-range),
/// except that DLRM has one table per column. Files are read by ranges of rows. Throws
/// InvalidArgument for a hash size below 1, or for more than 2^31 rows in the table. Reading throws
/// Io for a malformed line, with file, line, column, the value found and the value expected.
std::unique_ptr<RowSource> criteo_source(const CriteoOptions& options);

/// The report that `hetu data check` prints for click logs.
struct CriteoCheck {
  int files = 0;
  std::int64_t rows = 0;
  std::int64_t clicks = 0;
  std::int64_t missing = 0;   ///< empty columns, of 39 per row
  std::int64_t negative = 0;  ///< integers below 0
  std::int64_t bad_rows = 0;
  std::vector<std::string> problems;  ///< the first bad rows of each file, one line each
};

/// Reads every row of every file once. Counts bad rows and lists at most 5 per file. Throws Io for
/// files that cannot be read. Calls `progress(done, files)` after each file, unless it is null.
CriteoCheck check_criteo(const std::string& path, const std::function<void(int, int)>& progress);

}  // namespace hetu
