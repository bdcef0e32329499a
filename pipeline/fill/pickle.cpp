// Source of the codes: Python's pickletools.
#include "pipeline/fill/pickle.h"

#include <bit>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "graph/base/error.h"

namespace hetu {
namespace {

using nlohmann::json;

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {}

  json run() {
    for (;;) {
      at_ = next_;
      const auto code = static_cast<unsigned char>(take(1)[0]);
      if (code == '.') break;
      if (!number(code) && !text(code) && !container(code) && !memory(code)) {
        stop(
            fmt::format("code 0x{:02x} is of no list, dictionary, text or number: only plain data "
                        "are read",
                        code));
      }
    }
    if (stack_.size() != 1 || !marks_.empty()) stop("it ends with an unfinished value");
    return std::move(stack_[0].value);
  }

 private:
  struct Slot {
    json value;
    bool is_mutable = false;  // a list or dictionary, which may grow after it was remembered
  };

  [[noreturn]] void stop(const std::string& why) const {
    fail(Code::Io, "{}: byte {} of the pickle: {}", origin_, at_, why);
  }
  std::string_view take(std::size_t count) {
    if (bytes_.size() - next_ < count) stop("it ends too early");
    next_ += count;
    return bytes_.substr(next_ - count, count);
  }
  std::uint64_t unsigned_of(std::size_t bytes) {
    std::uint64_t value = 0;
    const std::string_view raw = take(bytes);
    for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(raw[i]);
    return value;
  }
  // Two's complement of few bytes, the lowest first.
  std::int64_t signed_of(std::size_t bytes) {
    if (bytes > 8) stop("a number of more than 8 bytes");
    if (bytes == 0) return 0;
    const auto shift = static_cast<int>(64 - 8 * bytes);
    return static_cast<std::int64_t>(unsigned_of(bytes) << shift) >> shift;
  }
  void push(json value, bool is_mutable = false) {
    stack_.push_back({std::move(value), is_mutable});
  }
  Slot pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back()))
      stop("a value is missing");
    Slot top = std::move(stack_.back());
    stack_.pop_back();
    return top;
  }
  std::vector<json> pop_marked() {
    if (marks_.empty()) stop("a mark is missing");
    std::vector<json> values;
    for (std::size_t i = marks_.back(); i < stack_.size(); ++i)
      values.push_back(std::move(stack_[i].value));
    stack_.resize(marks_.back());
    marks_.pop_back();
    return values;
  }
  json& top(json::value_t kind) {
    if (stack_.empty() || stack_.back().value.type() != kind || !stack_.back().is_mutable)
      stop("a list or dictionary is missing");
    return stack_.back().value;
  }

  bool number(unsigned char code) {
    switch (code) {
      case 0x80:
        return take(1), true;  // protocol
      case 0x95:
        return take(8), true;  // length of a frame
      case 'N':
        return push(nullptr), true;
      case 0x88:
        return push(true), true;
      case 0x89:
        return push(false), true;
      case 'J':
        return push(signed_of(4)), true;
      case 'K':
        return push(unsigned_of(1)), true;
      case 'M':
        return push(unsigned_of(2)), true;
      case 0x8a:
        return push(signed_of(unsigned_of(1))), true;
      case 0x8b:
        return push(signed_of(unsigned_of(4))), true;
      case 'G': {
        std::uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
        return push(std::bit_cast<double>(bits)), true;
      }
      default:
        return false;
    }
  }

  bool text(unsigned char code) {
    const std::size_t length = code == 0x8c || code == 'U'  ? 1
                               : code == 'X' || code == 'T' ? 4
                               : code == 0x8d               ? 8
                                                            : 0;
    if (length == 0) return false;
    push(std::string(take(unsigned_of(length))));
    return true;
  }

  bool container(unsigned char code) {
    switch (code) {
      case ']':
        return push(json::array(), true), true;
      case '}':
        return push(json::object(), true), true;
      case ')':
        return push(json::array()), true;
      case '(':
        return marks_.push_back(stack_.size()), true;
      case 't':
        return push(pop_marked()), true;
      case 0x85:
      case 0x86:
      case 0x87: {
        std::vector<json> values(code - 0x84U);
        for (std::size_t i = values.size(); i-- > 0;) values[i] = pop().value;
        return push(std::move(values)), true;
      }
      case 'a': {
        json value = pop().value;
        return top(json::value_t::array).push_back(std::move(value)), true;
      }
      case 'e': {
        std::vector<json> values = pop_marked();
        json& list = top(json::value_t::array);
        for (json& value : values) list.push_back(std::move(value));
        return true;
      }
      case 's': {
        json value = pop().value;
        json key = pop().value;
        return set(top(json::value_t::object), key, std::move(value)), true;
      }
      case 'u': {
        std::vector<json> values = pop_marked();
        if (values.size() % 2 != 0) stop("a key without a value");
        json& dictionary = top(json::value_t::object);
        for (std::size_t i = 0; i < values.size(); i += 2)
          set(dictionary, values[i], std::move(values[i + 1]));
        return true;
      }
      default:
        return false;
    }
  }
  void set(json& dictionary, const json& key, json value) {
    if (!key.is_string()) stop("a key that is no text");
    dictionary[key.get<std::string>()] = std::move(value);
  }

  // What was remembered comes again as a copy.
  bool memory(unsigned char code) {
    switch (code) {
      case 0x94:
        return remember(memo_.size()), true;
      case 'q':
        return remember(unsigned_of(1)), true;
      case 'r':
        return remember(unsigned_of(4)), true;
      case 'h':
        return recall(unsigned_of(1)), true;
      case 'j':
        return recall(unsigned_of(4)), true;
      default:
        return false;
    }
  }
  void remember(std::uint64_t number) {
    if (stack_.empty()) stop("a value is missing");
    memo_[number] = stack_.back();
  }
  void recall(std::uint64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) stop("it refers to what was not there");
    if (found->second.is_mutable) stop("a list or dictionary stands in two places");
    copied_ += size_of(found->second.value);
    if (copied_ > kMostCopied) stop("it repeats itself too often");
    stack_.push_back(found->second);
  }
  static std::size_t size_of(const json& value) {
    std::size_t size = value.is_string() ? value.get_ref<const std::string&>().size() : 1;
    if (value.is_structured())
      for (const json& part : value) size += size_of(part);
    return size;
  }

  static constexpr std::size_t kMostCopied = std::size_t{1} << 28;
  std::string_view bytes_;
  const std::string& origin_;
  std::size_t next_ = 0, at_ = 0, copied_ = 0;
  std::vector<Slot> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, Slot> memo_;
};

void write(const std::string& text, std::string& out) {
  out += 'X';
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(text.size() >> shift & 0xFF);
  out += text;
}

template <class Part>
void write(const std::vector<Part>& list, std::string& out) {
  out += "](";
  for (const Part& part : list) write(part, out);
  out += 'e';
}

}  // namespace

bool is_pickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

std::string json_of_pickle(std::string_view bytes, const std::string& origin) {
  return Reader(bytes, origin).run().dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string pickle_of(const std::vector<std::vector<std::vector<std::string>>>& lists) {
  std::string out = "\x80\x02";
  write(lists, out);
  return out + '.';
}

}  // namespace hetu
