#include <algorithm>

#include "base/error.h"
#include "pipeline/render/canvas.h"
#include "pipeline/render/render.h"

namespace hetu {
namespace {

/// Returns the look of an instruction. A kind's text form is an instruction without stage and
/// micro-batch.
const KindLook& look_of_instr(Instr instr) {
  instr.stage = -1;
  instr.micro = -1;
  instr.part = 0;
  return look_of(to_string(instr));
}

/// The cells of a plan, broken into blocks of columns.
class OrderGrid {
 public:
  OrderGrid(const Schedule& schedule, const GridOptions& options)
      : options_(options), workers_(static_cast<int>(schedule.workers.size())) {
    check_grid(options, workers_);
    prefix_ = static_cast<int>(prefix_of(0, workers_).size()) + 1;
    for (const Program& program : schedule.workers) rows_.push_back(unroll(program));
    for (const auto& row : rows_) longest_ = std::max(longest_, row.size());
    for (const Mark& mark : options.marks) {
      const auto length = static_cast<int>(rows_[mark.worker].size());
      require(mark.index >= 0 && mark.index < length,
              "mark: there is no instruction {} of worker {}; it has {} of them, counted from 0",
              mark.index, mark.worker, length);
    }
  }
  std::string text() const {
    std::string out = options_.title.empty() ? "" : options_.title + "\n";
    for (std::size_t first = 0; first < longest_;) {
      if (first > 0) out += '\n';
      const std::vector<int> starts = columns_from(first);
      for (int w = 0; w < workers_; ++w) out += row(w, first, starts);
      first += starts.size() - 1;
    }
    return out + mark_texts(options_.marks);
  }

 private:
  /// Returns the start column of each cell of a block that begins at instruction `first`. The last
  /// element is the end of the block.
  std::vector<int> columns_from(std::size_t first) const {
    std::vector<int> starts = {0};
    for (std::size_t i = first; i < longest_; ++i) {
      std::size_t width = 0;
      for (const auto& row : rows_) {
        if (i < row.size()) width = std::max(width, to_string(row[i]).size() + 1);
      }
      const int end = starts.back() + static_cast<int>(width);
      if (i > first && prefix_ + end - 1 > options_.columns) break;
      starts.push_back(end);
    }
    return starts;
  }

  std::string row(int worker, std::size_t first, const std::vector<int>& starts) const {
    const auto& instrs = rows_[worker];
    const std::size_t last = std::min(first + starts.size() - 1, instrs.size());
    Canvas canvas(starts.back() - 1, ' ');
    for (std::size_t i = first; i < last; ++i) {
      const std::string cell = to_string(instrs[i]);
      const int at = starts[i - first];
      canvas.block(at, at + static_cast<int>(cell.size()), cell, look_of_instr(instrs[i]));
    }
    std::string out = prefix_of(worker, workers_) + '|' + canvas.text(options_.color) + '\n';
    for (std::size_t m = 0; m < options_.marks.size(); ++m) {
      const Mark& mark = options_.marks[m];
      const auto index = static_cast<std::size_t>(mark.index);
      if (mark.worker != worker || index < first || index >= last) continue;
      const int at = prefix_ + starts[index - first];
      const int length = static_cast<int>(to_string(instrs[index]).size());
      out += pointer_line(at, at + length, m + 1, options_.columns);
    }
    return out;
  }

  const GridOptions& options_;
  int workers_ = 0;
  int prefix_ = 0;
  std::size_t longest_ = 0;
  std::vector<std::vector<Instr>> rows_;
};

}  // namespace

std::string render_rows(const Schedule& schedule, const GridOptions& options) {
  return OrderGrid(schedule, options).text();
}

}  // namespace hetu
