// Click logs in the format of Criteo's display-advertising sets (the Kaggle challenge of 2014, the
// terabyte of 24 days), and what training makes of their columns.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/criteo_file.h"
#include "datasets/source.h"

namespace hetu {

/// The files of a set, whose lines are counted and whose rows are not read yet.
struct CriteoSet {
  std::string path;
  std::vector<CriteoFile> files;

  std::int64_t rows() const;
};

/// A file, or a folder of day files; see list_criteo_files. Reads each once, to count its lines.
/// Throws Io for a missing file or folder, and for files without rows.
CriteoSet open_criteo(const std::string& path);

struct CriteoOptions {
  std::shared_ptr<const CriteoSet> set;
  /// Rows of the embedding table that each of the 26 columns has, >= 1.
  std::int64_t hash_size = 10000;
  /// Training: rows in a drawn order per epoch, within windows. Otherwise as they stand.
  bool train = true;
  std::uint64_t seed = 0;
  /// Rows are shuffled within windows of this many, which are held in memory (160 bytes each).
  std::int64_t window = 65536;
  /// Only the first rows of the files, in their order; 0 takes all.
  std::int64_t max_rows = 0;
};

/// Rows of click logs. Fields:
///   label int32 []: 1 clicked, 0 not;
///   dense float32 [13]: log(1 + max(x, 0)) of the integers, an empty one as 0;
///   ids int32 [26]: c * hash_size + category mod hash_size of column c = 0 to 25, an empty one as
///   category 0: one table for all columns, in which each has rows of its own.
/// The rules of Meta's DLRM (Naumov et al. 2019, its data_utils.py with --max-ind-range), whose
/// tables are one per column. Files are read by ranges. Throws InvalidArgument for a hash size
/// below 1 or with more than 2^31 rows in all; while reading Io for a line that is no row, with
/// file, line, column, what was found and what is right.
std::unique_ptr<RowSource> criteo_source(const CriteoOptions& options);

/// What `hetu data check` prints.
struct CriteoCheck {
  int files = 0;
  std::int64_t rows = 0;
  std::int64_t clicks = 0;
  std::int64_t missing = 0;   ///< columns that are empty, of 39 per row
  std::int64_t negative = 0;  ///< integers below 0
  std::int64_t bad_rows = 0;
  std::vector<std::string> problems;  ///< the first bad rows of each file
};

/// Reads every row of every file once. Bad rows are counted and listed, at most 5 per file. Throws
/// Io for what cannot be read. `progress(done, files)` is called after each file.
CriteoCheck check_criteo(const std::string& path, const std::function<void(int, int)>& progress);

}  // namespace hetu
