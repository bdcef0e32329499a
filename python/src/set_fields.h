// Options from Python. Python's values set the fields of base/fields.h. The tables of fields are
// returned to Python for keywords, flags and help.
#pragma once
#include <nanobind/nanobind.h>

#include "base/fields.h"

namespace hetu {

/// Sets fields from a dict. None leaves a field unset, and so does False for a flag that is off.
/// Throws InvalidArgument for a name that no field has, and for values that set_field refuses.
void set_fields(const Fields& fields, const nanobind::dict& values);

/// Returns a field's value as a Python object; None if it is not set.
nanobind::object to_python(const FieldValue& value);

/// Returns a table of fields as a list of dicts.
nanobind::list described(const Fields& fields);

}  // namespace hetu
