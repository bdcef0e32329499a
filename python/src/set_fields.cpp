#include "python/src/set_fields.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "base/words.h"

namespace nb = nanobind;

namespace hetu {
namespace {

std::string text_of_python(nb::handle value) { return nb::cast<std::string>(nb::str(value)); }

// Converts a number. Accepts everything that Python's index() and float() accept, including NumPy's
// numbers.
FieldValue number_of(const std::string& name, nb::handle value) {
  if (PyIndex_Check(value.ptr()) != 0) {
    const nb::object whole = nb::steal(PyNumber_Index(value.ptr()));
    if (!whole.is_valid()) nb::raise_python_error();
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(whole.ptr(), &overflow);
    require(overflow == 0, "{}: {} is too large for a 64-bit integer", name, text_of_python(value));
    return static_cast<std::int64_t>(number);
  }
  return nb::cast<double>(nb::float_(value));
}

FieldValue list_of(const std::string& name, nb::handle values) {
  std::vector<std::int64_t> whole;
  std::vector<double> numbers;
  std::vector<std::string> texts;
  for (const nb::handle one : values) {
    if (nb::isinstance<nb::str>(one)) {
      texts.push_back(nb::cast<std::string>(one));
      continue;
    }
    const FieldValue number = number_of(name, one);
    if (const auto* n = std::get_if<std::int64_t>(&number)) whole.push_back(*n);
    const auto* n = std::get_if<std::int64_t>(&number);
    numbers.push_back(n != nullptr ? static_cast<double>(*n) : std::get<double>(number));
  }
  require(texts.empty() || numbers.empty(),
          "{}: expected a list of numbers or a list of strings, got both", name);
  if (!texts.empty()) return texts;
  if (whole.size() == numbers.size()) return whole;
  return numbers;
}

FieldValue from_python(const std::string& name, nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  if (nb::hasattr(value, "__fspath__")) return nb::cast<std::string>(value.attr("__fspath__")());
  const bool number = PyIndex_Check(value.ptr()) != 0 || nb::hasattr(value, "__float__");
  if (number && !nb::hasattr(value, "__len__")) return number_of(name, value);
  if (nb::hasattr(value, "__iter__")) return list_of(name, value);
  fail(Code::InvalidArgument, "{}: expected a number, a string or a list, got {}", name,
       text_of_python(nb::repr(value)).substr(0, 60));
}

// Returns the quoted example of a field's description as a dict: {"pipeline": 1, "factor": 2} for
// "pipeline=1,factor=2".
std::string example_of(const OptionField& field) {
  const std::vector<std::string> quotes = split(field.doc, '"');
  std::string text;
  for (const std::string& part : split(quotes.size() > 1 ? quotes[1] : "key=1", ',')) {
    const std::size_t equals = part.find('=');
    text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", part.substr(0, equals),
                        part.substr(equals + 1));
  }
  return "{" + text + "}";
}

// Sets records. Each record is a dict of its keys.
void set_records(const OptionField& field, nb::handle values) {
  const auto& records = std::get<RecordAccess>(field.value);
  const auto check = [&](bool fits, nb::handle got) {
    require(fits, "{}: expected a list of dicts, such as [{}], got {}", field.name,
            example_of(field), text_of_python(nb::repr(got)).substr(0, 60));
  };
  check(nb::isinstance<nb::list>(values) || nb::isinstance<nb::tuple>(values), values);
  for (const nb::handle one : values) {
    check(nb::isinstance<nb::dict>(one), values);
    const auto record = nb::cast<nb::dict>(one);
    std::string text;
    for (const auto& [key, value] : record)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", text_of_python(key),
                          text_of_python(value));
    try {
      records.add([&](const Fields& keys) {
        for (const auto& [key, value] : record)
          set_field(find_key(keys, text_of_python(key)), from_python(text_of_python(key), value));
      });
    } catch (const Error& e) {
      fail(e.code(), "{} '{}': {}", field.name, text.substr(0, 80), e.what());
    }
  }
}

bool is_off(const OptionField& field) {
  const FieldValue value = value_of(field);
  const bool* flag = std::get_if<bool>(&value);
  return field.negated == nullptr && flag != nullptr && !*flag;
}

void set_one_field(const OptionField& field, nb::handle value) {
  if (type_of(field) == FieldType::Records) return set_records(field, value);
  const std::string flag = flag_of(field);  // "" for a field that has a keyword only
  const FieldValue given = from_python(flag.empty() ? field.name : flag, value);
  if (is_off(field) && given == FieldValue(false)) return;
  set_field(field, given);
}

// Returns the field that the keyword no_NAME switches off, or null if there is none.
const OptionField* negated_by(const Fields& fields, const std::string& name) {
  for (const OptionField& f : fields)
    if (f.negated != nullptr && name == "no_" + f.name) return &f;
  return nullptr;
}

}  // namespace

void set_fields(const Fields& fields, const nb::dict& values) {
  for (const auto& [key, value] : values) {
    const std::string name = text_of_python(key);
    if (value.is_none()) continue;
    const OptionField* negated = negated_by(fields, name);
    if (negated == nullptr)
      set_one_field(find_field(fields, name), value);
    else if (nb::cast<bool>(value))
      set_field(*negated, false);
  }
}

nb::object to_python(const FieldValue& value) {
  return std::visit(
      [](const auto& v) -> nb::object {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>)
          return nb::none();
        else
          return nb::cast(v);
      },
      value);
}

nb::list described(const Fields& fields) {
  nb::list rows;
  const auto text = [](const char* maybe) -> nb::object {
    return maybe == nullptr ? nb::object(nb::none()) : nb::object(nb::str(maybe));
  };
  for (const OptionField& f : fields) {
    nb::dict row;
    row["name"] = f.name;
    row["flag"] = flag_of(f);
    row["within"] = text(f.within);
    row["type"] = type_name(type_of(f));
    row["argument"] = text(f.argument);
    row["default"] = to_python(value_of(f));
    row["otherwise"] = text(f.otherwise);
    row["range"] = range_text(f);
    row["choices"] = std::vector<std::string>(f.choices.begin(), f.choices.end());
    row["doc"] = f.doc;
    row["said"] = default_text(f);
    row["help"] = help_of(f);
    row["negated"] = text(f.negated);
    row["unit"] = f.unit;
    row["since"] = f.since;
    rows.append(row);
  }
  return rows;
}

}  // namespace hetu
