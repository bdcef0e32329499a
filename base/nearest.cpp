#include "base/nearest.h"

#include <algorithm>
#include <numeric>

namespace hetu {
namespace {

// Returns the Levenshtein distance. Keeps one row of the table at a time.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view wanted, const std::vector<std::string>& known) {
  std::size_t best = std::max<std::size_t>(2, wanted.size() / 3) + 1;
  std::string name;
  for (const std::string& k : known) {
    const std::size_t d = distance(wanted, k);
    if (d < best) {
      best = d;
      name = k;
    }
  }
  return name;
}

std::string did_you_mean(std::string_view wanted, const std::vector<std::string>& known) {
  const std::string name = nearest_name(wanted, known);
  return name.empty() ? "" : "; did you mean '" + name + "'?";
}

}  // namespace hetu
