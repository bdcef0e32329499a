#include "cli/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "graph/base/error.h"
#include "graph/base/nearest.h"

namespace hetu::cli {
namespace {

std::string shortened(const std::string& text) {
  constexpr std::size_t kMost = 60;
  return text.size() <= kMost ? text : text.substr(0, kMost).append("…");
}

[[noreturn]] void unknown(const std::string& name, const std::vector<Option>& options) {
  std::vector<std::string> names;
  for (const Option& o : options) names.push_back(o.name);
  fail(Code::InvalidArgument, "unknown option {}{}; --help lists them", shortened(name),
       did_you_mean(name.substr(0, 60), names));
}

std::string joined(const std::vector<const char*>& words) {
  std::string text;
  for (const char* w : words) text.append(text.empty() ? "" : ", ").append(w);
  return text;
}

void wrap(std::string& out, const std::string& text, std::size_t indent) {
  constexpr std::size_t kColumns = 100;
  std::size_t column = indent;
  for (const std::string& word : split(text, ' ')) {
    if (column + word.size() > kColumns) {
      out.append("\n").append(indent, ' ');
      column = indent;
    }
    out.append(word).append(" ");
    column += word.size() + 1;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  out.append("\n");
}

}  // namespace

std::vector<std::string> parse_options(const std::vector<std::string>& arguments,
                                       const std::vector<Option>& options) {
  std::vector<std::string> rest;
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    const std::string& word = arguments[k];
    if (word == "--") {
      rest.insert(rest.end(), arguments.begin() + k + 1, arguments.end());
      break;
    }
    if (word.size() < 2 || word[0] != '-') {
      rest.push_back(word);
      continue;
    }
    const std::size_t equals = word.rfind("--", 0) == 0 ? word.find('=') : std::string::npos;
    const std::string name = word.substr(0, equals);
    const auto at = std::find_if(options.begin(), options.end(),
                                 [&](const Option& o) { return o.name == name; });
    if (at == options.end()) unknown(name, options);
    std::string value;
    if (at->value == nullptr) {
      require(equals == std::string::npos, "{} takes no value", name);
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else {
      require(k + 1 < arguments.size(), "{} needs a value: {} {}", name, name, at->value);
      value = arguments[++k];
    }
    try {
      at->set(value);
    } catch (const Error& e) {
      fail(e.code(), "{}: {}", name, e.what());
    }
  }
  return rest;
}

bool wants_help(const std::vector<std::string>& arguments) {
  for (const std::string& word : arguments) {
    if (word == "--") return false;
    if (word == "--help" || word == "-h") return true;
  }
  return false;
}

std::string help_text(const std::vector<Option>& options) {
  constexpr std::size_t kIndent = 30;
  std::string out;
  for (const Option& o : options) {
    std::string head = "  " + o.name;
    if (o.value != nullptr) head.append(" ").append(o.value);
    out += head;
    if (head.size() + 2 > kIndent)
      out.append("\n").append(kIndent, ' ');
    else
      out.append(kIndent - head.size(), ' ');
    wrap(out, o.meaning, kIndent);
  }
  return out;
}

std::int64_t to_integer(const std::string& text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(
      error == std::errc() && end == text.data() + text.size() && value >= least && value <= most,
      "expected a whole number from {} to {}, got '{}'", least, most, shortened(text));
  return value;
}

double to_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size() && std::isfinite(value) &&
              value >= 0,
          "expected a finite number >= 0, got '{}'", shortened(text));
  return value;
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
  require(!in(to_come), "'{}' is to come; known here: {}", text, joined(known));
  require(in(known), "unknown '{}'; known: {}", shortened(text), joined(known));
  return text;
}

}  // namespace hetu::cli
