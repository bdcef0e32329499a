// Options from Python: values tell the fields of base/fields.h, and their tables go back for
// keywords, flags and help.
#pragma once
#include <nanobind/nanobind.h>

#include "base/fields.h"

namespace hetu {

/// Tells fields what a dict holds; None leaves one out, as False does a flag that is off. Throws
/// InvalidArgument: a name that no field has, or what set_field refuses.
void tell(const Fields& fields, const nanobind::dict& values);

/// A field's value as Python has it; None if nothing is given.
nanobind::object to_python(const FieldValue& value);

/// A table of fields, as dicts.
nanobind::list described(const Fields& fields);

}  // namespace hetu
