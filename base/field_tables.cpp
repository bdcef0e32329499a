// Functions on whole tables of fields, and the texts that describe a field.
#include <algorithm>

#include "base/error.h"
#include "base/fields.h"
#include "base/nearest.h"
#include "base/words.h"

namespace hetu {
namespace {

std::vector<const char*> names_of(const Fields& fields) {
  std::vector<const char*> names;
  for (const OptionField& f : fields) names.push_back(f.name.c_str());
  return names;
}

}  // namespace

const char* type_name(FieldType type) {
  constexpr const char* kNames[] = {
      "flag",          "whole number", "number", "text", "list of whole numbers", "list of numbers",
      "list of texts", "records"};
  return kNames[static_cast<int>(type)];
}

std::string flag_of(const OptionField& field) {
  if (field.flag != nullptr) return field.flag;
  std::string flag = "--" + field.name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string range_text(const OptionField& f) {
  const FieldType type = type_of(f);
  const bool numbers = type == FieldType::Integer || type == FieldType::Number ||
                       type == FieldType::Integers || type == FieldType::Numbers;
  if (!numbers) return "";
  std::string text = fmt::format("{} {}", f.range.above ? "above" : ">=", f.range.least);
  // Bounds that only keep a number within its type are of no use to a reader.
  if (f.range.most < (1 << 20))
    text += fmt::format(" and {} {}", f.range.below ? "<" : "<=", f.range.most);
  return text;
}

const OptionField& find_field(const Fields& fields, const std::string& name) {
  for (const OptionField& f : fields)
    if (f.name == name) return f;
  std::vector<std::string> flags;
  for (const OptionField& f : fields) flags.push_back(flag_of(f));
  const std::string flag =
      flag_of({.name = name.substr(0, 60), .value = static_cast<bool*>(nullptr)});
  fail(Code::InvalidArgument, "unknown option {}{}; --help lists them", flag,
       did_you_mean(flag, flags));
}

const OptionField& find_key(const Fields& fields, const std::string& key) {
  one_of(key, names_of(fields));
  return find_field(fields, key);
}

std::string default_text(const OptionField& field) {
  if (field.otherwise != nullptr) return field.otherwise;
  return type_of(field) == FieldType::Flag ? "" : text_of(field);
}

std::string help_of(const OptionField& field) {
  const std::string otherwise = default_text(field);
  return otherwise.empty() ? field.doc : fmt::format("{} (default {})", field.doc, otherwise);
}

Fields recorded(Fields fields, std::set<std::string>& given) {
  for (OptionField& f : fields) f.given = &given;
  return fields;
}

Fields only(const Fields& fields, const std::vector<std::string>& names) {
  Fields some;
  for (const std::string& name : names) {
    const auto at = std::find_if(fields.begin(), fields.end(),
                                 [&](const OptionField& f) { return f.name == name; });
    HETU_ASSERT(at != fields.end());
    some.push_back(*at);
  }
  return some;
}

Fields without(const Fields& fields, const std::vector<std::string>& names) {
  Fields some;
  std::copy_if(fields.begin(), fields.end(), std::back_inserter(some), [&](const OptionField& f) {
    return std::find(names.begin(), names.end(), f.name) == names.end();
  });
  return some;
}

Fields joined(Fields fields, const Fields& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

Fields keys_of(const Fields& fields, const std::string& flag) {
  Fields keys;
  std::copy_if(fields.begin(), fields.end(), std::back_inserter(keys),
               [&](const OptionField& f) { return f.within != nullptr && flag == f.within; });
  return keys;
}

}  // namespace hetu
