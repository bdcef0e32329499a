// Reading and writing of fields. A field refers to its value by a variant of pointer types
// (FieldPointer). std::visit selects the code for the type, so conversions and range checks exist
// only here:
//
//   command line   text ── read_into ── from_text ── number_from ── the value
//   program        FieldValue ── set_into ── from_value ── checked_number ── the value
#include "base/fields.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "base/limits.h"
#include "base/words.h"

namespace hetu {
namespace {

template <class T>
struct Held {
  using Type = T;
};
template <class T>
struct Held<std::optional<T>> {
  using Type = T;
};

// The type that a pointer refers to. For an optional, the type inside.
template <class P>
using In = typename Held<std::remove_pointer_t<P>>::Type;

template <class T>
constexpr bool kWhole = std::is_integral_v<T> && !std::is_same_v<T, bool>;

std::int64_t whole(double bound) {
  return bound >= 0x1p63 ? INT64_MAX : static_cast<std::int64_t>(bound);
}

// The largest value of a type that a user may pass. Any unsigned number is allowed, because it is a
// seed.
template <class T>
constexpr double kMost = kLargestNumber;
template <>
constexpr double kMost<int> = std::numeric_limits<int>::max();
template <>
constexpr double kMost<std::uint64_t> = 0x1p63;

bool within(const Range& r, double x, double most) {
  return std::isfinite(x) && (r.above ? x > r.least : x >= r.least) &&
         (r.below ? x < r.most : x <= r.most) && x <= most;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

std::string spoken(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

// Returns the name of a field for messages. A key of KEY=VALUE text has no flag of its own, and
// neither has a keyword that exists in Python only.
std::string where(const OptionField& f) {
  if (f.within != nullptr) return spoken(f.name);
  const std::string flag = flag_of(f);
  return flag.empty() ? f.name : flag;
}

// Returns the bound that `found` exceeds. This is the range as --help shows it, or the upper bound
// that --help omits because no sensible value reaches it.
std::string bound_text(const OptionField& f, double found) {
  const std::string range = range_text(f);
  const double most = std::min(f.range.most, kLargestNumber);
  const std::string end = fmt::format("{} {}", f.range.below ? "<" : "<=", most);
  return found > most && range.find(end) == std::string::npos ? end : range;
}

// Parses a number of bytes, with or without a unit.
template <class T>
T size_from(const std::string& text) {
  try {
    const auto bytes = to_bytes(text);
    return static_cast<T>(bytes ? *bytes : to_number(trimmed(text)));
  } catch (const Error&) {
    fail(Code::InvalidArgument,
         "'{}' is not a size; give a number of bytes up to {}, or a number with KiB, MiB or GiB, "
         "such as 4GiB",
         shortened(text), kLargestNumber);
  }
}

// Parses a number from the command line and checks the field's range.
template <class T>
T number_from(const OptionField& f, const std::string& text) {
  if (std::string(f.unit) == "bytes") return size_from<T>(text);
  if constexpr (kWhole<T>) {
    const double most = std::min(f.range.most, kMost<T>);
    return static_cast<T>(to_integer(text, whole(f.range.least), whole(most)));
  } else {
    const double value = to_number(text);
    require(within(f.range, value, kMost<T>), "expected a finite number {}, got '{}'",
            bound_text(f, value), shortened(text));
    return value;
  }
}

template <class T>
T from_text(const OptionField& f, const std::string& text) {
  if constexpr (std::is_same_v<T, std::string>) {
    return f.choices.empty() ? text : one_of(text, f.choices, f.to_come);
  } else {
    return number_from<T>(f, text);
  }
}

template <class T>
constexpr bool kList = false;
template <class T>
constexpr bool kList<std::vector<T>> = true;

void read_into(const OptionField& f, const std::string& text) {
  std::visit(
      [&](const auto& pointer) {
        using P = std::decay_t<decltype(pointer)>;
        using T = In<P>;
        if constexpr (std::is_same_v<P, TextAccess>) {
          pointer.set(text);
        } else if constexpr (std::is_same_v<P, RecordAccess>) {
          pointer.add([&](const Fields& row) { read_key_values(row, text); });
        } else if constexpr (std::is_same_v<T, bool>) {
          *pointer = true;
        } else if constexpr (kList<T>) {
          pointer->clear();
          for (const std::string& part : split(text, ','))
            pointer->push_back(from_text<typename T::value_type>(f, part));
        } else {
          *pointer = from_text<T>(f, text);
        }
      },
      f.value);
}

// Converts to the type that FieldValue has for T.
template <class T>
FieldValue widened(const T& value) {
  if constexpr (std::is_same_v<T, std::vector<int>>)
    return std::vector<std::int64_t>(value.begin(), value.end());
  else if constexpr (kWhole<T>)
    return static_cast<std::int64_t>(value);
  else
    return value;
}

[[noreturn]] void refuse(const OptionField& f, const std::string& what, const std::string& got) {
  fail(Code::InvalidArgument, "{} must be {}, got {}", where(f), what, shortened(got));
}

std::string to_text(const FieldValue& value) {
  const auto listed = [](const auto& list) { return fmt::format("{}", fmt::join(list, ",")); };
  return std::visit(
      [&](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>)
          return "";
        else if constexpr (kList<T>)
          return listed(v);
        else
          return fmt::format("{}", v);
      },
      value);
}

double as_number(const FieldValue& value) {
  if (const auto* n = std::get_if<std::int64_t>(&value)) return static_cast<double>(*n);
  const auto* x = std::get_if<double>(&value);
  return x != nullptr ? *x : std::nan("");
}

template <class T>
T checked_number(const OptionField& f, const FieldValue& value) {
  const bool whole_number = std::holds_alternative<std::int64_t>(value);
  const bool fits = whole_number || (!kWhole<T> && std::holds_alternative<double>(value));
  if (!fits) refuse(f, kWhole<T> ? "a whole number" : "a number", "'" + to_text(value) + "'");
  const double x = as_number(value);
  if (!within(f.range, x, kMost<T>)) refuse(f, bound_text(f, x), to_text(value));
  if (whole_number) return static_cast<T>(std::get<std::int64_t>(value));
  return static_cast<T>(x);
}

// Converts a value from a program to the type T, within the field's range. Text is parsed as on the
// command line.
template <class T>
T from_value(const OptionField& f, const FieldValue& value) {
  if constexpr (std::is_same_v<T, bool>) {
    const bool* flag = std::get_if<bool>(&value);
    if (flag == nullptr) refuse(f, "true or false", "'" + to_text(value) + "'");
    return *flag;
  } else if constexpr (std::is_same_v<T, std::string>) {
    const bool plain = std::holds_alternative<std::string>(value) || !std::isnan(as_number(value));
    if (!plain) refuse(f, "text", "'" + to_text(value) + "'");
    return from_text<std::string>(f, to_text(value));
  } else {
    if (const auto* text = std::get_if<std::string>(&value)) return number_from<T>(f, *text);
    return checked_number<T>(f, value);
  }
}

// Sets a list from a program's value: a list, a single element, or text as on the command line.
template <class T>
void set_list(const OptionField& f, std::vector<T>& into, const FieldValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return read_into(f, *text);
  std::vector<T> made;
  const auto add = [&](const auto& list) {
    for (const auto& one : list) made.push_back(from_value<T>(f, one));
  };
  if (const auto* whole_numbers = std::get_if<std::vector<std::int64_t>>(&value))
    add(*whole_numbers);
  else if (const auto* numbers = std::get_if<std::vector<double>>(&value))
    add(*numbers);
  else if (const auto* texts = std::get_if<std::vector<std::string>>(&value))
    add(*texts);
  else
    made.push_back(from_value<T>(f, value));
  into = std::move(made);
}

void set_into(const OptionField& f, const FieldValue& value) {
  std::visit(
      [&](const auto& pointer) {
        using P = std::decay_t<decltype(pointer)>;
        using T = In<P>;
        if constexpr (std::is_same_v<P, TextAccess>)
          pointer.set(to_text(value));
        else if constexpr (std::is_same_v<P, RecordAccess>)
          refuse(f, "records", "'" + to_text(value) + "'");
        else if constexpr (kList<T>)
          set_list(f, *pointer, value);
        else
          *pointer = from_value<T>(f, value);
      },
      f.value);
}

// Calls `set`, and prefixes its error with the place where the value was given. An error that
// begins with that place already stays as it is.
template <class Set>
void at(const std::string& where, const Set& set) {
  try {
    set();
  } catch (const Error& e) {
    const std::string what = e.what();
    if (what.rfind(where + " must be", 0) == 0) throw;
    fail(e.code(), "{}: {}", where, what);
  }
}

void note(const OptionField& f) {
  if (f.given != nullptr) f.given->insert(f.name);
}

}  // namespace

FieldType type_of(const OptionField& field) {
  return std::visit(
      [](const auto& pointer) {
        using P = std::decay_t<decltype(pointer)>;
        using T = In<P>;
        if constexpr (std::is_same_v<P, RecordAccess>) return FieldType::Records;
        if constexpr (std::is_same_v<T, bool>) return FieldType::Flag;
        if constexpr (kWhole<T>) return FieldType::Integer;
        if constexpr (std::is_same_v<T, double>) return FieldType::Number;
        if constexpr (std::is_same_v<T, std::vector<int>>) return FieldType::Integers;
        if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) return FieldType::Integers;
        if constexpr (std::is_same_v<T, std::vector<double>>) return FieldType::Numbers;
        if constexpr (std::is_same_v<T, std::vector<std::string>>) return FieldType::Texts;
        return FieldType::Text;
      },
      field.value);
}

void read_field(const OptionField& field, const std::string& text) {
  read_into(field, text);
  note(field);
}

void read_flag(const Fields& fields, const std::string& flag, const std::string& text) {
  const Fields keys = keys_of(fields, flag);
  at(flag, [&] {
    if (!keys.empty()) return read_key_values(keys, text);
    for (const OptionField& f : fields)
      if (flag_of(f) == flag) return read_field(f, text);
    HETU_ASSERT(false);
  });
}

void set_field(const OptionField& field, const FieldValue& value) {
  if (value_of(field) != value || type_of(field) == FieldType::Records)
    at(where(field), [&] { set_into(field, value); });
  note(field);
}

FieldValue value_of(const OptionField& field) {
  return std::visit(
      [](const auto& pointer) -> FieldValue {
        using P = std::decay_t<decltype(pointer)>;
        if constexpr (std::is_same_v<P, TextAccess>) {
          return pointer.get();
        } else if constexpr (std::is_same_v<P, RecordAccess>) {
          return std::monostate();
        } else if constexpr (!std::is_same_v<std::remove_pointer_t<P>, In<P>>) {
          return pointer->has_value() ? widened(**pointer) : FieldValue();
        } else {
          return widened(*pointer);
        }
      },
      field.value);
}

std::string text_of(const OptionField& field) { return to_text(value_of(field)); }

void read_key_values(const Fields& fields, const std::string& text) {
  std::set<std::string> seen;
  for (const std::string& part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    require(equals != std::string::npos, "expected KEY=VALUE, got '{}'", part.substr(0, 40));
    const std::string key = trimmed(part.substr(0, equals));
    const OptionField& field = find_key(fields, key);
    require(seen.insert(field.name).second, "'{}' is given twice; give it once", field.name);
    at(field.name, [&] { read_into(field, trimmed(part.substr(equals + 1))); });
    note(field);
  }
}

void check_fields(const Fields& fields) {
  for (const OptionField& f : fields) {
    const FieldValue value = value_of(f);
    const auto* word = std::get_if<std::string>(&value);
    if (word != nullptr && !f.choices.empty() && std::holds_alternative<std::string*>(f.value)) {
      const bool known = std::find(f.choices.begin(), f.choices.end(), *word) != f.choices.end();
      require(known, "unknown {} '{}'; known: {}", spoken(f.name), word->substr(0, 60),
              fmt::join(f.choices, ", "));
    }
    const auto check = [&](double x) {
      if (!within(f.range, x, kLargestNumber)) refuse(f, bound_text(f, x), fmt::format("{}", x));
    };
    if (std::holds_alternative<std::uint64_t*>(f.value)) continue;  // any value is allowed
    if (std::holds_alternative<std::int64_t>(value) || std::holds_alternative<double>(value))
      check(as_number(value));
    if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value))
      for (const std::int64_t x : *list) check(static_cast<double>(x));
    if (const auto* list = std::get_if<std::vector<double>>(&value))
      for (const double x : *list) check(x);
  }
}

}  // namespace hetu
