// The tables of options that Python sees, by name. Tables of trainings are in training_parts.cpp,
// and a build without training has none (no_training.cpp).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/fields.h"

namespace hetu {

/// Receives the table of a new struct, and a function that checks the struct once its fields are
/// set.
using UseTable = std::function<void(const Fields& fields, const std::function<void()>& check)>;

/// A table of options. `make` creates the struct with its defaults and passes it to `use`.
struct OptionTable {
  std::string name;
  std::function<void(const UseTable& use)> make;
};

/// Makes the table of a struct whose fields need no check together.
template <class Options>
void with(const UseTable& use) {
  Options options;
  use(fields(options), [] {});
}

/// Returns the tables of trainings. Each kind of optimizer has a table with its own defaults.
std::vector<OptionTable> training_tables();
/// Throws the error for a table that doesn't exist in this build.
[[noreturn]] void refuse_table(const std::string& name);

}  // namespace hetu
