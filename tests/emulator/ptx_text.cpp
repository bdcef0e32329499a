#include "tests/emulator/ptx_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "tests/emulator/interpreter.h"

namespace hetu::emulator {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

class Reader {
 public:
  Reader(const std::string& text, std::size_t at, std::size_t end, int line)
      : text_(text), at_(at), end_(end), line_(line) {}

  bool more() {
    skip();
    return at_ < end_;
  }
  int line() const { return line_; }
  std::size_t at() const { return at_; }
  char peek() {
    skip();
    return at_ < end_ ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) bad(fmt::format("'{}'", c));
  }
  std::string word() {
    skip();
    const std::size_t from = at_;
    while (at_ < end_ && is_word(text_[at_])) ++at_;
    return text_.substr(from, at_ - from);
  }
  /// Returns the text up to a character, and skips the character.
  std::string until(char c) {
    std::string made;
    while (at_ < end_ && text_[at_] != c) {
      if (text_[at_] == '\n') ++line_;
      made += text_[at_++];
    }
    if (at_ >= end_) bad(fmt::format("'{}'", c));
    if (c == '\n') ++line_;
    ++at_;
    return made;
  }
  /// Skips to behind the brace that closes the open one.
  void leave_braces() {
    for (int depth = 1; depth > 0; ++at_) {
      if (at_ >= end_) bad("'}'");
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] == '{') ++depth;
      if (text_[at_] == '}') --depth;
    }
  }
  [[noreturn]] void bad(const std::string& wanted) {
    throw Problem(
        fmt::format("line {} of PTX: expected {} at '{}'", line_, wanted, text_.substr(at_, 40)));
  }

 private:
  void skip() {
    while (at_ < end_) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (c == '/' && text_.compare(at_, 2, "//") == 0) {
        while (at_ < end_ && text_[at_] != '\n') ++at_;
      } else if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == '\0') {
        ++at_;
      } else {
        return;
      }
    }
  }

  const std::string& text_;
  std::size_t at_, end_;
  int line_;
};

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> made;
  std::string word;
  for (const char c : text) {
    if (is_word(c)) {
      word += c;
    } else if (!word.empty()) {
      made.push_back(std::exchange(word, {}));
    }
  }
  if (!word.empty()) made.push_back(word);
  return made;
}

/// Parses ".align 8 .b8 name[16] = {1, 2}", without its state space.
Variable variable(std::string_view text, std::string space, bool external) {
  Variable made;
  made.space = std::move(space);
  const std::size_t begins = text.find('='), open = text.substr(0, begins).find('[');
  const std::vector<std::string> words = words_of(text.substr(0, std::min(begins, open)));
  std::size_t element = 1;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == ".align")
      made.alignment = std::strtoul(words[++i].c_str(), nullptr, 10);
    else if (words[i].front() == '.' && words[i] != ".ptr" && words[i] != ".global")
      element = static_cast<std::size_t>(type_bytes(words[i].substr(1)));
    else if (words[i].front() != '.' && std::isdigit(words[i].front()) == 0)
      made.name = words[i];
  }
  made.alignment = std::max(made.alignment, element);
  made.bytes = element;
  if (open != std::string_view::npos) {
    const std::size_t count = std::strtoul(text.data() + open + 1, nullptr, 10);
    made.dynamic = external && count == 0;
    made.bytes = element * count;
  }
  if (begins != std::string_view::npos) {
    if (element != 1) throw Problem("PTX: values of " + made.name + " are not bytes");
    for (const std::string& word : words_of(text.substr(begins)))
      made.values.push_back(static_cast<unsigned char>(std::strtoul(word.c_str(), nullptr, 10)));
  }
  return made;
}

std::vector<Variable> parameters(Reader& in) {
  std::vector<Variable> made;
  in.expect('(');
  for (const std::string& one : split_operands(in.until(')')))
    if (const std::size_t at = one.find(".param"); at != std::string::npos)
      made.push_back(variable(std::string_view(one).substr(at + 6), "param", false));
  return made;
}

bool is_space(const std::string& word) {
  return word == ".global" || word == ".const" || word == ".shared" || word == ".local" ||
         word == ".param";
}

Registers registers(std::string_view name, int bytes) {
  Registers made{std::string(name), 0, bytes};
  if (const std::size_t open = name.find('<'); open != std::string_view::npos) {
    made.name = name.substr(0, open);
    made.count = std::atoi(name.data() + open + 1);
  }
  return made;
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0)
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.remove_suffix(1);
  return std::string(text);
}

Statement declaration(Reader& in, const std::string& space) {
  Statement made;
  made.kind = Statement::Kind::Variable;
  if (space != ".reg") {
    made.variables.push_back(variable(in.until(';'), space.substr(1), false));
    return made;
  }
  made.kind = Statement::Kind::Registers;
  const int bytes = type_bytes(in.word().substr(1));
  for (const std::string& name : split_operands(in.until(';')))
    made.registers.push_back(registers(name, bytes));
  return made;
}

}  // namespace

int type_bytes(std::string_view type) {
  if (!type.empty() && type.front() == '.') type.remove_prefix(1);
  if (type == "pred") return 1;
  if (type == "bf16") return 2;
  if (type == "f16x2" || type == "bf16x2" || type == "tf32") return 4;
  const int bits = type.size() > 1 ? std::atoi(type.data() + 1) : 0;
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
    throw Problem(fmt::format("PTX: no type of that name: {}", type));
  return bits / 8;
}

std::vector<std::string> split_operands(std::string_view list) {
  std::vector<std::string> made;
  int depth = 0;
  std::string one;
  for (const char c : list) {
    if (c == '[' || c == '{' || c == '(') ++depth;
    if (c == ']' || c == '}' || c == ')') --depth;
    if (c == ',' && depth == 0)
      made.push_back(trimmed(std::exchange(one, {})));
    else
      one += c;
  }
  if (one = trimmed(one); !one.empty()) made.push_back(one);
  return made;
}

Text read_module(const std::string& ptx) {
  Text made;
  Reader in(ptx, 0, ptx.size(), 1);
  bool external = false;
  while (in.more()) {
    const std::string word = in.word();
    if (word == ".version" || word == ".target" || word == ".address_size") {
      do in.word();
      while (in.take(','));
    } else if (word == ".extern" || word == ".visible" || word == ".weak") {
      external = word == ".extern";
    } else if (is_space(word)) {
      made.variables.push_back(variable(in.until(';'), word.substr(1), external));
      external = false;
    } else if (word == ".entry" || word == ".func") {
      Function f;
      f.entry = word == ".entry";
      if (in.peek() == '(') f.results = parameters(in);
      f.name = in.word();
      if (in.peek() == '(') f.parameters = parameters(in);
      while (in.peek() == '.')
        if (in.word() == ".maxntid")
          f.most_threads = std::atoi(in.until('\n').c_str());
        else
          in.until('\n');          // .minnctapersm and the like
      if (in.take(';')) continue;  // declared, not defined
      in.expect('{');
      f.body = in.at();
      f.line = in.line();
      in.leave_braces();
      f.end = in.at() - 1;
      made.functions.push_back(f);
    } else {
      in.bad("a directive");
    }
  }
  return made;
}

std::vector<Statement> read_body(const std::string& ptx, const Function& function) {
  std::vector<Statement> made;
  Reader in(ptx, function.body, function.end, function.line);
  while (in.more()) {
    const int line = in.line();
    Statement one;
    if (in.take('{')) {
      one.kind = Statement::Kind::Open;
    } else if (in.take('}')) {
      one.kind = Statement::Kind::Close;
    } else if (in.take(';')) {
      continue;
    } else {
      if (in.take('@')) {
        one.guard_negated = in.take('!');
        one.guard = in.word();
      }
      const std::string word = in.word();
      if (word.empty()) in.bad("an instruction");
      if (word == ".pragma") {
        in.until(';');
        continue;
      }
      if (word == ".reg" || is_space(word)) {
        one = declaration(in, word);
      } else if (in.take(':')) {
        one.kind = Statement::Kind::Label;
        one.opcode = word;
      } else {
        one.opcode = word;
        one.operands = split_operands(in.until(';'));
      }
    }
    one.line = line;
    made.push_back(std::move(one));
  }
  return made;
}

}  // namespace hetu::emulator
