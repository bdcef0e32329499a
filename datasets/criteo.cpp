#include "datasets/criteo.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "datasets/criteo_file.h"
#include "datasets/order.h"

namespace hetu {
namespace {

constexpr int kDense = CriteoRow::kIntegers;
constexpr int kIds = CriteoRow::kCategories;

// The model's inputs for one row.
struct Features {
  std::int32_t label = 0;
  float dense[kDense] = {};
  std::int32_t ids[kIds] = {};
};

Features features_of(const CriteoRow& row, std::int64_t hash_size) {
  Features out;
  out.label = row.click ? 1 : 0;
  for (int i = 0; i < kDense; ++i)
    out.dense[i] = static_cast<float>(
        std::log1p(static_cast<double>(std::max<std::int64_t>(row.integers[i], 0))));
  for (int c = 0; c < kIds; ++c)
    out.ids[c] =
        static_cast<std::int32_t>(c * hash_size + std::int64_t{row.categories[c]} % hash_size);
  return out;
}

class Criteo final : public RowSource {
 public:
  Criteo(const CriteoOptions& options, const std::vector<std::int64_t>& rows)
      : options_(options),
        files_(options.set->files),
        starts_(1, 0),
        order_(rows, options.seed, options.window),
        fields_({{"label", DType::Int32, {}},
                 {"dense", DType::Float32, {kDense}},
                 {"ids", DType::Int32, {kIds}}}) {
    for (const std::int64_t of_file : rows) starts_.push_back(starts_.back() + of_file);
  }

  const std::vector<Field>& fields() const override { return fields_; }
  std::int64_t rows() const override { return order_.rows(); }
  bool same_everywhere() const override { return true; }
  std::string order() const override {
    const std::string drawn =
        options_.train ? fmt::format("window {} seed {}", options_.window, options_.seed) : "eval";
    return fmt::format("criteo files {} rows {} {}", files_.size(), rows(), drawn);
  }
  void read(Batch& batch) override;

 private:
  void load(std::int64_t epoch, std::int64_t window);
  void read_piece(const FileRange& piece);
  std::vector<FileRange> pieces(std::int64_t epoch, std::int64_t window) const;

  CriteoOptions options_;
  const std::vector<CriteoFile>& files_;
  std::vector<std::int64_t> starts_;  // first row of each file, then the total number of rows
  WindowedOrder order_;
  std::vector<Field> fields_;
  std::int64_t epoch_ = -1;
  std::int64_t window_ = -1;
  std::vector<std::int64_t> places_;  // order_ within the loaded window; empty: file order
  std::vector<Features> held_;
};

// Returns the file ranges of a window's rows. Without a random order, rows are taken in file order.
std::vector<FileRange> Criteo::pieces(std::int64_t epoch, std::int64_t window) const {
  if (options_.train) return order_.pieces(epoch, window);
  std::vector<FileRange> out;
  std::int64_t first = window * options_.window;
  const std::int64_t end = std::min(first + options_.window, rows());
  for (std::size_t f = 0; f < files_.size(); ++f) {
    const std::int64_t stop = std::min(end, starts_[f + 1]);
    if (first >= stop) continue;
    out.push_back({static_cast<int>(f), first - starts_[f], stop - first});
    first = stop;
  }
  return out;
}

void Criteo::read_piece(const FileRange& piece) {
  const CriteoFile& file = files_[static_cast<std::size_t>(piece.file)];
  file.read(piece.first, piece.count, [&](std::int64_t number, std::string_view text) {
    CriteoRow row;
    const std::string trouble = parse_criteo_line(text, row);
    if (!trouble.empty()) fail(Code::Io, "{}:{}: {}", file.path(), number, trouble);
    held_.push_back(features_of(row, options_.hash_size));
  });
}

void Criteo::load(std::int64_t epoch, std::int64_t window) {
  epoch_ = window_ = -1;  // invalidates the window, because reading may throw
  held_.clear();
  places_.clear();
  if (options_.train) places_ = order_.order(epoch, window);
  for (const FileRange& piece : pieces(epoch, window)) read_piece(piece);
  epoch_ = epoch;
  window_ = window;
}

void Criteo::read(Batch& batch) {
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const std::int64_t index = batch.first + row;
    const std::int64_t window = index / options_.window;
    // Without a random order all epochs are equal.
    const std::int64_t epoch = options_.train ? batch.epoch : 0;
    if (epoch != epoch_ || window != window_) load(epoch, window);
    const auto place = static_cast<std::size_t>(index - window * options_.window);
    const Features& from =
        held_[places_.empty() ? place : static_cast<std::size_t>(places_[place])];
    for (FieldData& field : batch.fields) {
      if (field.name == "label")
        field.as<std::int32_t>()[row] = from.label;
      else if (field.name == "dense")
        std::copy_n(from.dense, kDense, field.as<float>() + row * kDense);
      else
        std::copy_n(from.ids, kIds, field.as<std::int32_t>() + row * kIds);
    }
  }
}

}  // namespace

std::int64_t CriteoSet::rows() const {
  std::int64_t total = 0;
  for (const CriteoFile& file : files) total += file.rows();
  return total;
}

CriteoSet open_criteo(const std::string& path) {
  CriteoSet set{path, {}};
  for (std::string& file : list_criteo_files(path)) set.files.emplace_back(std::move(file));
  if (set.rows() == 0) {
    fail(Code::Io, "{}: has no rows; expected lines of {} tab-separated columns", path,
         CriteoRow::kColumns);
  }
  return set;
}

std::unique_ptr<RowSource> criteo_source(const CriteoOptions& options) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) / kIds;
  require(options.hash_size >= 1 && options.hash_size <= kMost,
          "criteo: hash size {} is out of range; use 1 to {} rows for each of the {} columns",
          options.hash_size, kMost, kIds);
  require(options.max_rows >= 0, "criteo: the limit of rows must be 0 (no limit) or more, got {}",
          options.max_rows);
  require(options.set != nullptr && !options.set->files.empty(),
          "criteo: no files are given; open a file or folder with open_criteo");
  std::vector<std::int64_t> rows;
  std::int64_t left = options.max_rows > 0 ? options.max_rows : options.set->rows();
  for (const CriteoFile& file : options.set->files) {
    rows.push_back(std::min(file.rows(), left));
    left -= rows.back();
  }
  return std::make_unique<Criteo>(options, rows);
}

CriteoCheck check_criteo(const std::string& path, const std::function<void(int, int)>& progress) {
  constexpr std::int64_t kListed = 5;
  CriteoCheck out;
  const std::vector<std::string> paths = list_criteo_files(path);
  for (const std::string& one : paths) {
    const CriteoFile file(one);
    std::int64_t bad = 0;
    file.read(0, file.rows(), [&](std::int64_t number, std::string_view text) {
      CriteoRow row;
      const std::string trouble = parse_criteo_line(text, row);
      if (!trouble.empty()) {
        if (++bad <= kListed)
          out.problems.push_back(fmt::format("{}:{}: {}", one, number, trouble));
        return;
      }
      out.clicks += row.click ? 1 : 0;
      out.missing += row.missing;
      for (const std::int64_t value : row.integers) out.negative += value < 0 ? 1 : 0;
    });
    if (bad > kListed)
      out.problems.push_back(fmt::format("{}: and {} more bad rows", one, bad - kListed));
    if (file.rows() == 0) out.problems.push_back(fmt::format("{}: has no rows", one));
    out.rows += file.rows();
    out.bad_rows += bad;
    ++out.files;
    if (progress) progress(out.files, static_cast<int>(paths.size()));
  }
  return out;
}

}  // namespace hetu
