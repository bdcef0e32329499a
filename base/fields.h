// What a user may tell, stated once: a struct of options has a function `fields(options)` that
// gives a table bound to it, and every way in goes by that table: the tool's words, Python's
// keywords, the scripts' flags, --help, docs/reference.md and the checks of ranges. A default
// stands in the struct alone.
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

/// A typed value on its way into a field or out of one; nothing: it is not given.
using FieldValue =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<std::string>>;

/// Range of a number. Bounds of whole numbers are whole; the default is up to kLargestNumber.
struct Range {
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
  bool above = false;  ///< `least` itself is not in it
  bool below = false;  ///< `most` itself is not
};

struct OptionField;
using Fields = std::vector<OptionField>;

/// A place behind words, such as an enumeration; `set` throws InvalidArgument for an unknown one.
struct WordPlace {
  std::function<std::string()> get;
  std::function<void(const std::string&)> set;
};

/// A list of structs that have fields of their own, as KEY=VALUE text or as Python's dicts; each
/// call adds one, which `fill` is to tell. Throws InvalidArgument if it is not whole then.
struct RecordPlace {
  std::function<void(const std::function<void(const Fields&)>& fill)> add;
};

/// Where a field's value stands; its type is the field's.
using Place =
    std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                 std::vector<int>*, std::vector<std::int64_t>*, std::vector<double>*,
                 std::vector<std::string>*, std::optional<bool>*, std::optional<int>*,
                 std::optional<double>*, std::optional<std::string>*, WordPlace, RecordPlace>;

enum class FieldType : std::uint8_t {
  Flag,      ///< told by being there
  Integer,   ///< whole
  Number,    ///< finite
  Text,      ///< or one of `choices`
  Integers,  ///< a,b,c
  Numbers,
  Texts,
  Records  ///< KEY=VALUE,…; the flag may be repeated
};

/// One option. The flag is its name with dashes, unless `flag` says another.
struct OptionField {
  std::string name;                ///< Python's keyword: "micro_batches"
  Place place;                     ///< its value when made is the default
  const char* argument = nullptr;  ///< stands for the value in --help: "M"
  const char* doc = "";            ///< for both languages
  Range range = {};                ///< of a number, or of each in a list
  std::vector<const char*> choices = {};
  std::vector<const char*> to_come = {};  ///< choices that are known, and refused as such
  const char* unit = "";                  ///< "bytes": text may have KiB, MiB or GiB
  const char* otherwise =
      nullptr;                 ///< in words, what holds if it is not told, where no value says it
  const char* flag = nullptr;  ///< "--preduce-weights", "-o"
  const char* within =
      nullptr;  ///< the flag whose KEY=VALUE text it is a key of: "--group-options"
  const char* negated = nullptr;           ///< the doc of a flag's --no-… form
  const char* since = "0.1";               ///< the version that has it first
  std::set<std::string>* given = nullptr;  ///< takes the names of those that are told
};

FieldType type_of(const OptionField& field);
/// "flag", "whole number", "number", "text", "list of whole numbers", …
const char* type_name(FieldType type);
std::string flag_of(const OptionField& field);
/// ">= 1", "above 0 and <= 1"; "" for none.
std::string range_text(const OptionField& field);

/// Tells a field from the command line, whose parser names the flag. Throws InvalidArgument: what
/// was found and what is right.
void read_field(const OptionField& field, const std::string& text);
/// Tells the field, or the keys, of a flag, which is then named.
void read_flag(const Fields& fields, const std::string& flag, const std::string& text);
/// Tells a field a value of a program, which is fine where it is what stands there already. Throws
/// likewise, naming the flag.
void set_field(const OptionField& field, const FieldValue& value);
FieldValue value_of(const OptionField& field);
/// The value as text, as the command line takes it; "" where nothing is given.
std::string text_of(const OptionField& field);

/// Tells fields from "wait=0.5,late_us=100". Throws InvalidArgument: an unknown key, one that
/// stands twice, or what read_field refuses, with the key before it.
void read_key_values(const Fields& fields, const std::string& text);

/// Those whose keys stand in the text of a flag.
Fields keys_of(const Fields& fields, const std::string& flag);

/// The field of a name. Throws InvalidArgument, naming the closest known one.
const OptionField& find_field(const Fields& fields, const std::string& name);
/// The same of the keys of one text; names all known ones.
const OptionField& find_key(const Fields& fields, const std::string& key);

/// What stands in a struct, however it came there. Throws InvalidArgument: a number out of its
/// field's range, as set_field does, or a word that is none of its choices.
void check_fields(const Fields& fields);

/// What holds if a field is not told, in words; "" where there is nothing to say.
std::string default_text(const OptionField& field);
/// `doc`, and the default, for --help.
std::string help_of(const OptionField& field);

/// These fields, which enter their names into `given` as they are told.
Fields recorded(Fields fields, std::set<std::string>& given);
/// Those of these names, in their order; of a name that is none of theirs: our bug.
Fields only(const Fields& fields, const std::vector<std::string>& names);
/// All but those.
Fields without(const Fields& fields, const std::vector<std::string>& names);
/// Both, in this order.
Fields joined(Fields fields, const Fields& more);

}  // namespace hetu
