#include "pipeline/cost/block_table.h"

#include <map>
#include <sstream>
#include <vector>

#include "base/decimal.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/text_file.h"

namespace hetu {
namespace {

[[noreturn]] void wrong(const std::string& origin, const std::string& what) {
  fail(Code::Config, "{}: {}", origin, what);
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  return cells;
}

double cell_number(const std::string& cell, const std::string& at) {
  const std::optional<double> x = to_decimal(cell);
  if (!x || *x < 0)
    wrong(at, fmt::format("expected a number >= 0, found '{}'", cell.substr(0, 40)));
  if (*x > kLargestNumber)
    wrong(at, fmt::format("expected a number of at most {}, found '{}'", kLargestNumber,
                          cell.substr(0, 40)));
  return *x;
}

}  // namespace

bool is_block_table(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text.compare(first, 3, "bs,") == 0;
}

namespace {

using Row = std::map<std::string, double>;

// Returns the rows of a table, by column.
std::vector<Row> rows_of(const std::string& text, const std::string& origin) {
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> names = split(line);
  std::vector<Row> rows;
  for (int n = 2; std::getline(in, line); ++n) {
    if (line.empty()) continue;
    const std::string at = fmt::format("{}:{}", origin, n);
    const std::vector<std::string> cells = split(line);
    if (cells.size() != names.size())
      wrong(at, fmt::format("the row has {} cells, but the table has {} columns", cells.size(),
                            names.size()));
    Row& row = rows.emplace_back();
    for (std::size_t c = 0; c < cells.size(); ++c) row[names[c]] = cell_number(cells[c], at);
  }
  return rows;
}

}  // namespace

std::vector<int> sizes_of_table(const std::string& text, const std::string& origin) {
  std::vector<int> sizes;
  for (Row& row : rows_of(text, origin)) sizes.push_back(static_cast<int>(row["bs"]));
  return sizes;
}

// The columns of the table: bs (batch size), time_f, time_b, time_kron, time_inv and time_prec in
// ms, and mem_act, mem_param, mem_peak_err, mem_save_err and mem_kron in MiB. A backward is split
// evenly into its two gradients, because the table has only their sum.
Costs costs_of_table(const std::string& text, const std::string& origin, const BlockTable& table) {
  if (table.micro_batch_size < 1 || table.blocks_per_stage < 1)
    wrong(origin,
          "a table of blocks needs --micro-batch-size and --blocks-per-stage, both at least 1");
  std::string sizes;
  for (Row& row : rows_of(text, origin)) {
    sizes += fmt::format("{}{:g}", sizes.empty() ? "" : ", ", row["bs"]);
    if (row["bs"] != table.micro_batch_size) continue;
    constexpr double kMiB = 1024 * 1024;
    const double blocks = table.blocks_per_stage;
    StageCost c;
    c.forward = c.recompute = row["time_f"] * blocks;
    c.input_grad = c.weight_grad = row["time_b"] * blocks / 2;
    c.activation_bytes = row["mem_act"] * blocks * kMiB;
    c.weight_bytes = row["mem_param"] * blocks * kMiB;
    // blocks run one after the other, so only one needs it
    c.working_bytes = row["mem_peak_err"] * kMiB;
    c.curvature = {.factors = row["time_kron"] * blocks,
                   .inversion = row["time_inv"] * blocks,
                   .precondition = row["time_prec"] * blocks,
                   .saved_bytes = row["mem_save_err"] * blocks * kMiB,
                   .factor_bytes = row["mem_kron"] * blocks * kMiB};
    Costs costs;
    costs.unit = "ms";
    costs.per_worker = false;
    costs.stages = {c};
    return costs;
  }
  wrong(origin, fmt::format("no row for a micro-batch size of {}; the table has {}",
                            table.micro_batch_size, sizes.empty() ? "none" : sizes));
}

}  // namespace hetu
