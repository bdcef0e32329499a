#include "cli/options.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/nearest.h"

namespace hetu::cli {
namespace {

[[noreturn]] void unknown(const std::string& name, const std::vector<Option>& options) {
  std::vector<std::string> names;
  for (const Option& o : options) names.push_back(o.name);
  fail(Code::InvalidArgument, "unknown option {}{}; --help lists them", shortened(name),
       did_you_mean(name.substr(0, 60), names));
}

// Returns the columns of a text in a terminal, for UTF-8 without wide characters.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not a continuation byte
  }));
}

void wrap(std::string& out, const std::string& text, std::size_t indent) {
  constexpr std::size_t kColumns = 100;
  std::size_t column = indent;
  for (const std::string& word : split(text, ' ')) {
    const std::size_t width = width_of(word);
    if (column + width > kColumns && column > indent) {
      out.pop_back();  // the space after the previous word
      out.append("\n").append(indent, ' ');
      column = indent;
    }
    out.append(word).append(" ");
    column += width + 1;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  out.append("\n");
}

// Returns the option for the KEY=VALUE text that sets several fields.
Option key_values(const Fields& keys) {
  std::string known;
  for (const OptionField& f : keys) known += (known.empty() ? "" : ", ") + f.name;
  return {keys.front().within, "K=V,…", "further constants: " + known,
          [keys](const std::string& text) { read_key_values(keys, text); }};
}

}  // namespace

std::vector<Option> options_of(const Fields& fields) {
  std::vector<Option> rows;
  std::set<std::string> texts;
  for (const OptionField& f : fields) {
    if (f.within != nullptr) {
      if (texts.insert(f.within).second) rows.push_back(key_values(keys_of(fields, f.within)));
      continue;
    }
    const std::string flag = flag_of(f);
    const bool is_flag = type_of(f) == FieldType::Flag;
    // parse_options adds the option's name to errors.
    rows.push_back({flag, is_flag ? nullptr : f.argument, help_of(f),
                    [f](const std::string& text) { read_field(f, text); }});
    if (f.negated != nullptr)
      rows.push_back({"--no-" + flag.substr(2), nullptr, f.negated,
                      [f](const std::string&) { set_field(f, false); }});
  }
  return rows;
}

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

std::string two_columns(const std::vector<HelpRow>& rows, std::size_t indent) {
  std::string out;
  for (const HelpRow& row : rows) {
    const std::string head = "  " + row.name;
    const std::size_t width = width_of(head);
    out += head;
    if (width + 2 > indent)
      out.append("\n").append(indent, ' ');
    else
      out.append(indent - width, ' ');
    const std::vector<std::string> lines = split(row.meaning, '\n');
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i > 0) out.append(indent, ' ');
      wrap(out, lines[i], indent);
    }
    if (lines.empty()) out.append("\n");
  }
  return out;
}

std::string wrapped(const std::string& text) {
  std::string out;
  for (const std::string& line : split(text, '\n')) wrap(out, line, 0);
  return out;
}

std::string help_text(const std::vector<Option>& options) {
  std::vector<HelpRow> rows;
  for (const Option& o : options)
    rows.push_back({o.value == nullptr ? o.name : o.name + " " + o.value, o.meaning});
  return two_columns(rows, 30);
}

}  // namespace hetu::cli
