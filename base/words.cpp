#include "base/words.h"

#include <algorithm>
#include <charconv>

#include "base/decimal.h"
#include "base/error.h"
#include "base/limits.h"

namespace hetu {
namespace {

std::string joined(const std::vector<const char*>& words) {
  std::string text;
  for (const char* w : words) text.append(text.empty() ? "" : ", ").append(w);
  return text;
}

}  // namespace

std::int64_t to_integer(const std::string& text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(
      error == std::errc() && end == text.data() + text.size() && value >= least && value <= most,
      "expected a whole number from {} to {}, got '{}'", least, most, shortened(text));
  return value;
}

double to_number(const std::string& text) {
  const std::optional<double> value = to_decimal(text);
  require(value && *value >= 0, "expected a finite number >= 0, got '{}'", shortened(text));
  require(*value <= kLargestNumber, "expected a number of at most {}, got '{}'", kLargestNumber,
          shortened(text));
  return *value;
}

std::optional<double> to_bytes(const std::string& text) {
  struct Unit {
    const char* name;
    double bytes;
  };
  for (const Unit& unit : {Unit{"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}}) {
    const std::size_t n = text.size();
    if (n < 3 || text.substr(n - 3) != unit.name) continue;
    const std::size_t last = text.substr(0, n - 3).find_last_not_of(' ');
    const double bytes = to_number(text.substr(0, last + 1)) * unit.bytes;
    require(bytes <= kLargestNumber, "expected at most {} bytes, got '{}'", kLargestNumber,
            shortened(text));
    return bytes;
  }
  return std::nullopt;
}

std::string memory_text(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB ({} bytes)", static_cast<double>(bytes) / (1 << 20), bytes);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t from = 0; from <= text.size() && !text.empty();) {
    const std::size_t to = std::min(text.find(separator, from), text.size());
    parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

std::string one_of(const std::string& text, const std::vector<const char*>& known,
                   const std::vector<const char*>& to_come) {
  const auto in = [&](const std::vector<const char*>& words) {
    return std::any_of(words.begin(), words.end(), [&](const char* w) { return text == w; });
  };
  require(!in(to_come), "'{}' is not supported yet; supported: {}", text, joined(known));
  require(in(known), "unknown '{}'; known: {}", shortened(text), joined(known));
  return text;
}

std::string shortened(const std::string& text) {
  constexpr std::size_t kMost = 60;
  return text.size() <= kMost ? text : text.substr(0, kMost).append("…");
}

}  // namespace hetu
