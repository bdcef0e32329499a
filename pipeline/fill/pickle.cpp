// A stack machine for the opcodes that pickles of plain data use. It runs no code from the file.
// Source of the opcodes: Python's pickletools.
#include "pipeline/fill/pickle.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"

namespace hetu {
namespace {

using nlohmann::json;

/// Evaluates the opcodes on a stack of JSON values.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& origin)
      : bytes_(bytes), origin_(origin), most_copied_(kFreeCopies + kCopiesPerByte * bytes.size()) {}

  json run() {
    for (;;) {
      at_ = next_;
      const auto code = static_cast<unsigned char>(take(1)[0]);
      if (code == '.') break;
      if (!number(code) && !text(code) && !container(code) && !memory(code)) {
        stop(
            fmt::format("opcode 0x{:02x} is not supported; only lists, dictionaries, text and "
                        "numbers can be read",
                        code));
      }
    }
    if (stack_.size() != 1 || !marks_.empty()) stop("it ends with an unfinished value");
    return std::move(stack_[0].value);
  }

 private:
  struct Slot {
    json value;
    bool is_mutable = false;  // a list or dictionary, which may grow after it was memoized
    int depth = 0;            // nesting depth of containers
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
  // Decodes a little-endian two's complement number.
  std::int64_t signed_of(std::size_t bytes) {
    if (bytes > 8) stop("a number has more than 8 bytes");
    if (bytes == 0) return 0;
    const auto shift = static_cast<int>(64 - 8 * bytes);
    return static_cast<std::int64_t>(unsigned_of(bytes) << shift) >> shift;
  }
  void push(json value, bool is_mutable = false) {
    const int depth = value.is_structured() ? 1 : 0;
    stack_.push_back({std::move(value), is_mutable, depth});
  }
  // Functions that traverse a value recurse, so its depth is bounded.
  void deepen(Slot& container, const Slot& part) const {
    container.depth = std::max(container.depth, part.depth + 1);
    if (container.depth > kDeepest)
      stop(fmt::format("lists and dictionaries nest deeper than {}", kDeepest));
  }
  void push_tuple(std::vector<Slot> parts) {
    Slot tuple = {json::array(), false, 1};
    for (Slot& part : parts) {
      deepen(tuple, part);
      tuple.value.push_back(std::move(part.value));
    }
    stack_.push_back(std::move(tuple));
  }
  Slot pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back()))
      stop("a value is missing");
    Slot top = std::move(stack_.back());
    stack_.pop_back();
    return top;
  }
  std::vector<Slot> pop_marked() {
    if (marks_.empty()) stop("a mark is missing");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Slot> slots(std::make_move_iterator(begin), std::make_move_iterator(stack_.end()));
    stack_.resize(marks_.back());
    marks_.pop_back();
    return slots;
  }
  Slot& top(json::value_t kind) {
    if (stack_.empty() || stack_.back().value.type() != kind || !stack_.back().is_mutable)
      stop("a list or dictionary is missing");
    return stack_.back();
  }
  void append(Slot& list, Slot part) const {
    deepen(list, part);
    list.value.push_back(std::move(part.value));
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
        double value = 0;
        std::memcpy(&value, &bits, sizeof value);  // Emscripten's library has no std::bit_cast
        return push(value), true;
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
        return push_tuple(pop_marked()), true;
      case 0x85:
      case 0x86:
      case 0x87: {
        std::vector<Slot> parts(code - 0x84U);
        for (std::size_t i = parts.size(); i-- > 0;) parts[i] = pop();
        return push_tuple(std::move(parts)), true;
      }
      case 'a': {
        Slot part = pop();
        return append(top(json::value_t::array), std::move(part)), true;
      }
      case 'e': {
        std::vector<Slot> parts = pop_marked();
        Slot& list = top(json::value_t::array);
        for (Slot& part : parts) append(list, std::move(part));
        return true;
      }
      case 's': {
        Slot value = pop();
        const Slot key = pop();
        return set(top(json::value_t::object), key.value, std::move(value)), true;
      }
      case 'u': {
        std::vector<Slot> parts = pop_marked();
        if (parts.size() % 2 != 0) stop("a key has no value");
        Slot& dictionary = top(json::value_t::object);
        for (std::size_t i = 0; i < parts.size(); i += 2)
          set(dictionary, parts[i].value, std::move(parts[i + 1]));
        return true;
      }
      default:
        return false;
    }
  }
  void set(Slot& dictionary, const json& key, Slot part) const {
    if (!key.is_string()) stop("a key is not text");
    deepen(dictionary, part);
    dictionary.value[key.get<std::string>()] = std::move(part.value);
  }

  // A value is copied when it is memoized, and each time it is recalled.
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
    const Slot& top = stack_.back();
    if (top.is_mutable) {
      memo_[number] = {nullptr, true, 0};  // can't be recalled
    } else {
      count_copy(top.value);
      memo_[number] = top;
    }
  }
  void recall(std::uint64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) stop("it refers to a value that was not stored");
    if (found->second.is_mutable) stop("a list or dictionary occurs twice");
    count_copy(found->second.value);
    stack_.push_back(found->second);
  }
  // A few bytes can request copies of copies whose size doubles each time. The total size of copies
  // is therefore limited by the size of the file.
  void count_copy(const json& value) {
    copied_ += memory_of(value);
    if (copied_ > most_copied_) stop("it has too many copies of the same values");
  }
  static std::size_t memory_of(const json& value) {
    std::size_t bytes = sizeof value;
    if (value.is_string()) bytes += value.get_ref<const std::string&>().size();
    if (value.is_structured())
      for (const json& part : value) bytes += memory_of(part);
    return bytes;
  }

  static constexpr int kDeepest = 64;
  static constexpr std::size_t kFreeCopies = std::size_t{1} << 20, kCopiesPerByte = 64;  // bytes
  std::string_view bytes_;
  const std::string& origin_;
  const std::size_t most_copied_;
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
