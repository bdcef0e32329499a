// All environment variables that Hetu reads, from one table with a documented field per variable.
// No other code calls getenv. Read by the libraries, the command-line tools and, through the
// binding, by Python.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "config/env_values.h"

namespace hetu {

/// Returns the value of a variable, or nullptr if it is not set.
using EnvLookup = std::function<const char*(const char* name)>;

/// Reads every variable. A variable that is set to "" counts as not set. Throws Config, and names
/// the variable, its value and the expected values.
Env read_env(const EnvLookup& lookup);

/// Returns the environment of this process. It is read once, at the first call. That call also sets
/// the log level, and warns of HETU_ variables that no code reads. Throws as read_env does, at
/// every call.
const Env& env();

/// Returns every variable in the order of the documentation.
std::vector<EnvRow> env_table();

/// Returns env_table() as a Markdown table, for the documentation.
std::string env_table_text();

/// Returns the names in `environment` ("NAME=value") that begin with HETU_ and are not in
/// env_table().
std::vector<std::string> unknown_variables(const std::vector<std::string>& environment);

}  // namespace hetu
