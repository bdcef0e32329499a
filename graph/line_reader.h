// Reader of one line of a graph's text form, for text.cpp.
#pragma once
#include <cctype>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/hex.h"
#include "graph/graph.h"

namespace hetu {

/// Reads one line from left to right. Every error states the line, the column and what was
/// expected.
class LineReader {
 public:
  LineReader(std::string_view text, int line) : text_(text), line_(line) {}

  /// Throws InvalidArgument: expected `what`, found the next 20 characters.
  [[noreturn]] void expected(std::string_view what) const {
    const std::string_view rest = text_.substr(at_, 20);
    fail(Code::InvalidArgument, "graph text, line {}, column {}: expected {}, found {}", line_,
         at_ + 1, what, rest.empty() ? "the end of the line" : fmt::format("'{}'", rest));
  }

  void spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  /// Skips spaces, then consumes `token` if it comes next. Returns true if it did.
  bool take(std::string_view token) {
    spaces();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  /// Consumes `token`, or throws.
  void expect(std::string_view token) {
    if (!take(token)) expected(fmt::format("'{}'", token));
  }

  void end() {
    spaces();
    if (at_ != text_.size()) expected("the end of the line");
  }

  /// Reads letters, digits and underscores, at least one.
  std::string word() {
    spaces();
    const std::size_t start = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    if (at_ == start) expected("a word");
    return std::string(text_.substr(start, at_ - start));
  }

  template <class T>
  T number(std::string_view what) {
    spaces();
    T value{};
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) expected(what);
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  /// Reads a text in double quotes; a backslash escapes a character, and \n is a newline.
  std::string quoted() {
    expect("\"");
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        out += text_[at_] == 'n' ? '\n' : text_[at_];
      } else {
        out += text_[at_];
      }
      ++at_;
    }
    if (at_ == text_.size()) expected("'\"'");
    ++at_;
    return out;
  }

  /// Reads the number of a value, such as %4.
  ValueId value() {
    expect("%");
    return number<ValueId>("the number of a value");
  }

  /// Reads a type such as float32[B, 128] or float32[4B].
  TensorType type() {
    TensorType type;
    spaces();
    const std::size_t start = at_;
    try {
      type.dtype = parse_dtype(word());
    } catch (const Error&) {
      at_ = start;
      expected("a type such as float32[B, 128]");
    }
    expect("[");
    while (!take("]")) {
      if (!type.shape.empty()) expect(",");
      if (take("B")) {
        type.shape.push_back(kBatch);
      } else {
        const auto dim = number<std::int64_t>("a dimension");
        if (dim < 0) expected("a dimension >= 0, or B");
        type.shape.push_back(take("B") ? -dim : dim);
      }
    }
    return type;
  }

  /// Reads a quoted text, a list of integers, an integer, or a number with one of the characters
  /// ".ein".
  Attr attr() {
    spaces();
    if (at_ < text_.size() && text_[at_] == '"') return quoted();
    if (take("[")) {
      std::vector<std::int64_t> list;
      while (!take("]")) {
        if (!list.empty()) expect(",");
        list.push_back(number<std::int64_t>("an integer"));
      }
      return list;
    }
    const std::size_t start = at_;
    const std::size_t stop = text_.find_first_of(",} ", at_);
    const std::string_view token = text_.substr(start, stop - start);
    if (token.find_first_of(".ein") == std::string_view::npos) {
      return number<std::int64_t>("an integer, a number, a quoted string or a list");
    }
    return number<double>("a number");
  }

  /// Reads one of `names` and returns its index.
  template <std::size_t N>
  int choice(const char* const (&names)[N], std::string_view what) {
    spaces();
    const std::size_t start = at_;
    const std::string found = word();
    for (std::size_t i = 0; i < N; ++i) {
      if (found == names[i]) return static_cast<int>(i);
    }
    at_ = start;
    expected(what);
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  int line_;
};

}  // namespace hetu
