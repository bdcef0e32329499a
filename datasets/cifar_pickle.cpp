// A small pickle machine. A pickle is a program for a stack machine: opcodes push constants,
// collect the values above a mark into tuples, lists and dicts, and store values in a memo for
// reuse. The opcode REDUCE calls a named function, which is why unpickling a foreign file with
// Python is unsafe. Here REDUCE and BUILD recognise only the few names that NumPy arrays need and
// construct a Value; any other name or opcode is an error.
//
// Example, a file of one array: {'data': _reconstruct(ndarray, (0,), b'b') + BUILD(1, (rows, 3072),
// dtype('u1'), False, bytes), ...}.
#include "datasets/cifar_pickle.h"

#include <algorithm>
#include <deque>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace hetu {
namespace {

struct Value;
using Ref = Value*;  // into the reader's store: a damaged file may contain cycles

// A value on the pickle's stack. The items of a Dict are key, value, key, value, and so on.
struct Value {
  enum class Kind { Mark, Other, Bool, Int, Text, List, Tuple, Dict, Name, Array, Type };
  Kind kind = Kind::Other;
  std::int64_t number = 0;
  std::string text;  // for Text, Name ("module name"), Type ("u1"), and the bytes of Array
  std::vector<Ref> items;
  std::vector<std::int64_t> shape;  // for Array
};
using Kind = Value::Kind;

// An array's description in a pickle. `is_fortran`: the bytes lie column by column.
struct ArrayParts {
  Ref shape, type, bytes;
  bool is_fortran = false;
};

// Returns the bytes of a [rows, columns] array of uint8 row by row, given column by column.
std::string by_rows(const std::string& by_columns, std::size_t rows, std::size_t columns) {
  std::string out(by_columns.size(), '\0');
  for (std::size_t column = 0; column < columns; ++column)
    for (std::size_t row = 0; row < rows; ++row)
      out[row * columns + column] = by_columns[column * rows + row];
  return out;
}

// The pickle machine. REDUCE and BUILD know NumPy's array and dtype, and call nothing.
class Reader {
 public:
  Reader(const std::vector<std::uint8_t>& bytes, std::string path)
      : bytes_(bytes), path_(std::move(path)) {}

  Ref read() {
    while (true) {
      at_ = next_;
      const std::uint8_t code = byte();
      if (code == '.') return pop();
      if (!constant(code) && !memory(code) && !container(code) && !object(code)) {
        wrong(fmt::format("the opcode 0x{:02x} does not occur in CIFAR files", code));
      }
    }
  }

 private:
  [[noreturn]] void wrong(const std::string& found) const {
    fail(Code::Io,
         "{}: byte {}: {}; expected a pickled dict with data, fine_labels and coarse_labels", path_,
         at_, found);
  }

  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1)[0]); }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - next_) wrong("the file ends too early");
    const auto* from = reinterpret_cast<const char*>(bytes_.data()) + next_;
    next_ += count;
    return {from, count};
  }
  // Reads an unsigned little-endian number of `width` bytes.
  std::uint64_t number(int width) {
    std::uint64_t out = 0;
    const std::string_view from = take(static_cast<std::uint64_t>(width));
    for (int i = width - 1; i >= 0; --i) {
      out = out << 8 | static_cast<std::uint8_t>(from[static_cast<std::size_t>(i)]);
    }
    return out;
  }
  std::string line() {
    std::string out;
    for (char c = take(1)[0]; c != '\n'; c = take(1)[0]) out += c;
    return out;
  }

  Ref push(Kind kind) {
    store_.emplace_back().kind = kind;
    stack_.push_back(&store_.back());
    return stack_.back();
  }
  void push_int(std::int64_t value) { push(Kind::Int)->number = value; }
  void push_text(std::string_view text) { push(Kind::Text)->text = text; }
  Ref pop() {
    if (stack_.empty()) wrong("the stack is empty");
    Ref top = stack_.back();
    stack_.pop_back();
    return top;
  }
  Ref top(Kind kind) {
    if (stack_.empty() || stack_.back()->kind != kind)
      wrong("the stack has no value of the right type on top");
    return stack_.back();
  }
  std::vector<Ref> pop_to_mark() {
    std::size_t begin = stack_.size();
    while (begin > 0 && stack_[begin - 1]->kind != Kind::Mark) --begin;
    if (begin == 0) wrong("no mark on the stack");
    std::vector<Ref> out(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return out;
  }
  void append_to(Kind kind, const std::vector<Ref>& more) {
    if (kind == Kind::Dict && more.size() % 2 != 0) wrong("a key without a value");
    const Ref into = top(kind);
    into->items.insert(into->items.end(), more.begin(), more.end());
  }
  void push_tuple(std::size_t count) {
    std::vector<Ref> items(count);
    for (std::size_t i = count; i > 0; --i) items[i - 1] = pop();
    push(Kind::Tuple)->items = std::move(items);
  }

  bool constant(std::uint8_t code);
  bool memory(std::uint8_t code);
  bool container(std::uint8_t code);
  bool object(std::uint8_t code);
  void name(const std::string& module, const std::string& what);
  void reduce();
  void build();
  void fill_array(Ref array, const ArrayParts& parts);
  void count_copy(std::size_t bytes);
  void memoize(std::uint64_t index);

  const std::vector<std::uint8_t>& bytes_;
  std::string path_;
  std::size_t next_ = 0, at_ = 0, copied_ = 0;
  std::deque<Value> store_;
  std::vector<Ref> stack_, memo_;
};

bool Reader::constant(std::uint8_t code) {
  switch (code) {
    case 0x80:  // PROTO
      number(1);
      return true;
    case 0x95:  // FRAME
      number(8);
      return true;
    case 'N':  // NONE
      push(Kind::Other);
      return true;
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      push(Kind::Bool)->number = code == 0x88 ? 1 : 0;
      return true;
    case 'K':  // BININT1
      push_int(static_cast<std::int64_t>(number(1)));
      return true;
    case 'M':  // BININT2
      push_int(static_cast<std::int64_t>(number(2)));
      return true;
    case 'J':  // BININT
      push_int(static_cast<std::int32_t>(number(4)));
      return true;
    case 'U':   // SHORT_BINSTRING
    case 'C':   // SHORT_BINBYTES
    case 0x8c:  // SHORT_BINUNICODE
      push_text(take(number(1)));
      return true;
    case 'T':  // BINSTRING
    case 'B':  // BINBYTES
    case 'X':  // BINUNICODE
      push_text(take(number(4)));
      return true;
    case 0x8d:  // BINUNICODE8
    case 0x8e:  // BINBYTES8
    case 0x96:  // BYTEARRAY8
      push_text(take(number(8)));
      return true;
    default:
      return false;
  }
}

void Reader::memoize(std::uint64_t index) {
  if (stack_.empty() || index > bytes_.size()) wrong("invalid memo index");
  if (memo_.size() <= index) memo_.resize(index + 1);
  memo_[index] = stack_.back();
}

bool Reader::memory(std::uint8_t code) {
  const auto get = [this](std::uint64_t index) {
    if (index >= memo_.size() || memo_[index] == nullptr) wrong("undefined memo index");
    stack_.push_back(memo_[index]);
  };
  switch (code) {
    case 'q':  // BINPUT
      return memoize(number(1)), true;
    case 'r':  // LONG_BINPUT
      return memoize(number(4)), true;
    case 0x94:  // MEMOIZE
      return memoize(memo_.size()), true;
    case 'h':  // BINGET
      return get(number(1)), true;
    case 'j':  // LONG_BINGET
      return get(number(4)), true;
    default:
      return false;
  }
}

bool Reader::container(std::uint8_t code) {
  switch (code) {
    case '(':  // MARK
      push(Kind::Mark);
      return true;
    case '}':  // EMPTY_DICT
      push(Kind::Dict);
      return true;
    case ']':  // EMPTY_LIST
      push(Kind::List);
      return true;
    case ')':  // EMPTY_TUPLE
      push(Kind::Tuple);
      return true;
    case 'a': {  // APPEND
      const Ref item = pop();
      return append_to(Kind::List, {item}), true;
    }
    case 'e':  // APPENDS
      return append_to(Kind::List, pop_to_mark()), true;
    case 's': {  // SETITEM
      const Ref value = pop();
      const Ref key = pop();
      return append_to(Kind::Dict, {key, value}), true;
    }
    case 'u':  // SETITEMS
      return append_to(Kind::Dict, pop_to_mark()), true;
    case 't': {  // TUPLE
      std::vector<Ref> items = pop_to_mark();
      push(Kind::Tuple)->items = std::move(items);
      return true;
    }
    case 0x85:  // TUPLE1
    case 0x86:  // TUPLE2
    case 0x87:  // TUPLE3
      return push_tuple(code - 0x84U), true;
    default:
      return false;
  }
}

bool Reader::object(std::uint8_t code) {
  switch (code) {
    case 'c': {  // GLOBAL
      const std::string module = line();
      name(module, line());
      return true;
    }
    case 0x93: {  // STACK_GLOBAL
      const Ref what = pop();
      const Ref module = pop();
      name(module->text, what->text);
      return true;
    }
    case 'R':  // REDUCE
      return reduce(), true;
    case 'b':  // BUILD
      return build(), true;
    default:
      return false;
  }
}

void Reader::name(const std::string& module, const std::string& what) {
  const std::string full = module + " " + what;
  for (const char* known :
       {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct",
        "numpy.core.numeric _frombuffer", "numpy._core.numeric _frombuffer", "numpy ndarray",
        "numpy dtype", "_codecs encode"}) {
    if (full == known) {
      push(Kind::Name)->text = full;
      return;
    }
  }
  wrong(fmt::format("the name '{}' does not occur in CIFAR files", full));
}

void Reader::reduce() {
  const Ref arguments = pop();
  const Ref called = pop();
  if (called->kind != Kind::Name || arguments->kind != Kind::Tuple)
    wrong("a call without a known name or arguments");
  const std::vector<Ref>& given = arguments->items;
  if (called->text == "numpy dtype") {
    if (given.empty()) wrong("a NumPy type without a name");
    push(Kind::Type)->text = given[0]->text;
  } else if (called->text ==
             "_codecs encode") {  // Python 3 writes bytes in protocol 2 as latin-1 text
    if (given.size() != 2 || given[1]->text != "latin1") wrong("text in an unknown encoding");
    std::string out;
    const std::string& in = given[0]->text;
    count_copy(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto c = static_cast<std::uint8_t>(in[i]);
      const bool two = c >= 0xc2 && c <= 0xc3 && i + 1 < in.size();
      out += two ? static_cast<char>((c & 3) << 6 | (in[++i] & 0x3f)) : in[i];
    }
    push_text(out);
  } else if (called->text.find("_reconstruct") != std::string::npos) {
    push(Kind::Array);
  } else if (called->text.find("_frombuffer") != std::string::npos) {  // bytes, type, shape, order
    if (given.size() != 4 || given[3]->kind != Kind::Text ||
        (given[3]->text != "C" && given[3]->text != "F"))
      wrong("an array without bytes, type, shape, or the order C or F");
    fill_array(push(Kind::Array), {given[2], given[1], given[0], given[3]->text == "F"});
  } else {
    wrong(fmt::format("the call of {} is not supported", called->text));
  }
}

// Bounds the memory for copies: a few bytes of a damaged file can request a copy of the largest
// text again and again.
void Reader::count_copy(std::size_t bytes) {
  copied_ += bytes;
  if (copied_ > 8 * bytes_.size()) wrong("the same text is copied too often");
}

void Reader::fill_array(Ref array, const ArrayParts& parts) {
  const auto& [shape, type, bytes, is_fortran] = parts;
  if (shape->kind != Kind::Tuple || type->kind != Kind::Type || bytes->kind != Kind::Text) {
    wrong("a NumPy array without shape, type or bytes");
  }
  for (const Ref length : shape->items) array->shape.push_back(length->number);
  array->items = {type};
  count_copy(bytes->text.size());
  array->text = bytes->text;
  if (!is_fortran || array->shape.size() < 2) return;
  // read_cifar_pickle rejects a byte count that doesn't match the shape.
  const auto rows = static_cast<std::size_t>(std::max<std::int64_t>(1, array->shape[0]));
  if (array->shape.size() > 2) wrong("a NumPy array in Fortran order has more than two axes");
  if (array->text.size() % rows == 0)
    array->text = by_rows(bytes->text, rows, array->text.size() / rows);
}

// Handles BUILD. An array's state is (version, shape, type, Fortran order, bytes). A dtype's state
// is ignored, because uint8 needs nothing of it.
void Reader::build() {
  const Ref state = pop();
  if (!stack_.empty() && stack_.back()->kind == Kind::Type) return;
  const Ref array = top(Kind::Array);
  if (state->kind != Kind::Tuple || state->items.size() != 5) wrong("a NumPy array without state");
  const Ref order = state->items[3];
  if (order->kind != Kind::Bool && order->kind != Kind::Int)
    wrong("a NumPy array without the flag for Fortran order");
  fill_array(array, {state->items[1], state->items[2], state->items[4], order->number != 0});
}

std::vector<std::uint8_t> labels_of(const Value* list, const char* key, std::size_t rows,
                                    const std::string& path) {
  if (list == nullptr || list->kind != Kind::List || list->items.size() != rows) {
    fail(Code::Io, "{}: '{}' is not a list of {} labels, one per image", path, key, rows);
  }
  std::vector<std::uint8_t> out;
  out.reserve(rows);
  for (const Ref item : list->items) {
    // A number that doesn't fit into a byte becomes 255, which check_labels rejects as out of
    // range.
    out.push_back(static_cast<std::uint8_t>(
        item->kind == Kind::Int ? std::clamp<std::int64_t>(item->number, -1, 255) : 255));
  }
  return out;
}

}  // namespace

bool is_pickle(const std::vector<std::uint8_t>& bytes) {
  // A pickle begins with the PROTO opcode and the protocol number. The binary format begins with a
  // coarse label, which is below 20.
  return bytes.size() > 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
}

Cifar100 read_cifar_pickle(const std::vector<std::uint8_t>& bytes, const std::string& path) {
  Reader reader(bytes, path);
  const Ref whole = reader.read();
  const auto find = [whole](std::string_view key) -> const Value* {
    for (std::size_t i = 0; i + 1 < whole->items.size(); i += 2) {
      if (whole->items[i]->text == key) return whole->items[i + 1];
    }
    return nullptr;
  };
  const Value* data = whole->kind == Kind::Dict ? find("data") : nullptr;
  if (data == nullptr || data->kind != Kind::Array || data->shape.size() != 2 ||
      data->shape[1] != Cifar100::kBytes || data->items[0]->text != "u1" || data->shape[0] < 1 ||
      data->text.size() / Cifar100::kBytes != static_cast<std::size_t>(data->shape[0]) ||
      data->text.size() % Cifar100::kBytes != 0) {
    fail(Code::Io,
         "{}: the pickle has no uint8 array 'data' of shape [rows, 3072]; expected the file train "
         "or test of CIFAR-100",
         path);
  }
  if (find("fine_labels") == nullptr && find("labels") != nullptr) {
    fail(Code::Io, "{}: has 'labels' but no 'fine_labels': this is CIFAR-10, not CIFAR-100", path);
  }
  Cifar100 set;
  set.pixels.assign(data->text.begin(), data->text.end());
  const auto rows = static_cast<std::size_t>(data->shape[0]);
  set.labels = labels_of(find("fine_labels"), "fine_labels", rows, path);
  set.coarse = labels_of(find("coarse_labels"), "coarse_labels", rows, path);
  return set;
}

}  // namespace hetu
