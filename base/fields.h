// User options as tables. A struct of options has a function `fields(options)` that returns a table
// bound to the struct. Every interface uses that table: the tool's arguments, Python's keywords,
// the scripts' flags, --help, docs/reference.md, and range checks. The default of an option is
// defined in the struct only.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace hetu {

/// A typed value that is read from or written to a field. std::monostate means that it is not set.
using FieldValue =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<std::string>>;

/// Range of a number. Bounds of whole numbers are whole. Without an upper bound, numbers go up to
/// kLargestNumber, or to the largest int if the field is an int.
struct Range {
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
  bool above = false;  ///< true if `least` itself is excluded
  bool below = false;  ///< true if `most` itself is excluded
};

struct OptionField;
using Fields = std::vector<OptionField>;

/// Access to a value that is written as text, such as an enumeration. `set` throws InvalidArgument
/// for an unknown word.
struct TextAccess {
  std::function<std::string()> get;
  std::function<void(const std::string&)> set;
};

/// A list of structs with fields of their own, given as KEY=VALUE text or as Python dicts. Each
/// call of `add` appends one struct, whose fields `fill` sets. Throws InvalidArgument if the struct
/// is incomplete afterwards.
struct RecordAccess {
  std::function<void(const std::function<void(const Fields&)>& fill)> add;
};

/// Pointer to a field's value. Its type is the type of the field.
using FieldPointer =
    std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                 std::vector<int>*, std::vector<std::int64_t>*, std::vector<double>*,
                 std::vector<std::string>*, std::optional<bool>*, std::optional<int>*,
                 std::optional<double>*, std::optional<std::string>*, TextAccess, RecordAccess>;

/// Type of an option, as the command line shows it.
enum class FieldType : std::uint8_t {
  Flag,      ///< set by its presence
  Integer,   ///< a whole number
  Number,    ///< a finite number
  Text,      ///< any text, or one of `choices`
  Integers,  ///< a,b,c
  Numbers,
  Texts,
  Records  ///< KEY=VALUE,…; the flag may be repeated
};

/// One option. Its flag is "--" and the name with dashes, unless `flag` is set.
struct OptionField {
  std::string name;                ///< Python's keyword: "micro_batches"
  FieldPointer value;              ///< where the value is stored; the initial value is the default
  const char* argument = nullptr;  ///< placeholder of the value in --help: "M"
  const char* doc = "";            ///< description for --help and for Python
  Range range = {};                ///< range of a number, or of each number in a list
  std::vector<const char*> choices = {};
  /// Known choices that are not supported yet; they are refused with a message of their own.
  std::vector<const char*> to_come = {};
  const char* unit = "";  ///< "bytes": text may end in KiB, MiB or GiB
  /// Description of the default, if no value expresses it.
  const char* otherwise = nullptr;
  const char* flag = nullptr;  ///< explicit flag: "--preduce-weights", "-o"; "": Python only
  /// The flag whose KEY=VALUE text contains this key: "--group-options".
  const char* within = nullptr;
  const char* negated = nullptr;           ///< description of the flag's --no-… form
  const char* since = "0.1";               ///< the first version that has the option
  std::set<std::string>* given = nullptr;  ///< receives the names of the fields that are set
};

/// Returns the type of a field.
FieldType type_of(const OptionField& field);
/// Returns the name of a type for messages: "flag", "whole number", "number", "text", "list of
/// whole numbers", …
const char* type_name(FieldType type);
/// Returns the flag of a field, for example "--micro-batches".
std::string flag_of(const OptionField& field);
/// Returns the range as text: ">= 1", "above 0 and <= 1"; "" if it has none.
std::string range_text(const OptionField& field);

/// Sets a field from text of the command line, whose parser adds the flag to errors. Throws
/// InvalidArgument with what was found and what is expected.
void read_field(const OptionField& field, const std::string& text);
/// Sets the field of a flag, or the fields of its keys. Errors name the flag.
void read_flag(const Fields& fields, const std::string& flag, const std::string& text);
/// Sets a field from a program's value. Any value is accepted if it equals the current one. Throws
/// as read_field does, and names the flag.
void set_field(const OptionField& field, const FieldValue& value);
/// Returns the current value of a field.
FieldValue value_of(const OptionField& field);
/// Returns the value as text in the form that the command line takes; "" if it is not set.
std::string text_of(const OptionField& field);

/// Sets fields from text such as "wait=0.5,late_us=100". Throws InvalidArgument for an unknown key,
/// for a repeated key, and for values that read_field refuses, with the key before the message.
void read_key_values(const Fields& fields, const std::string& text);

/// Returns the fields that are keys in the text of a flag.
Fields keys_of(const Fields& fields, const std::string& flag);

/// Returns the field with a name. Throws InvalidArgument and suggests the closest known flag.
const OptionField& find_field(const Fields& fields, const std::string& name);
/// As above, for the keys of a text. The error lists all known keys.
const OptionField& find_key(const Fields& fields, const std::string& key);

/// Checks the values that are in a struct, whatever set them. Throws InvalidArgument for a number
/// outside its field's range, as set_field does, and for text that is not one of its choices.
void check_fields(const Fields& fields);

/// Returns a description of the default; "" if there is nothing to say.
std::string default_text(const OptionField& field);
/// Returns `doc` with the default, for --help.
std::string help_of(const OptionField& field);

/// Returns the fields, changed to add their names to `given` when they are set.
Fields recorded(Fields fields, std::set<std::string>& given);
/// Returns the fields with these names, in the order of `names`. Asserts that each name exists.
Fields only(const Fields& fields, const std::vector<std::string>& names);
/// Returns all fields except those with these names.
Fields without(const Fields& fields, const std::vector<std::string>& names);
/// Returns both tables, one after the other.
Fields joined(Fields fields, const Fields& more);

}  // namespace hetu
