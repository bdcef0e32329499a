// Every environment variable that Hetu reads: one documented field each, from one table. Nothing
// else calls getenv; read by the libraries, the command-line tools and, through the binding, by
// Python.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "config/env_values.h"

namespace hetu {

/// Returns the value of a variable, or nullptr if it is not set.
using EnvLookup = std::function<const char*(const char* name)>;

/// Reads every variable. A variable set to "" counts as not set. Throws Config, naming variable,
/// value and what would be right.
Env read_env(const EnvLookup& lookup);

/// The environment of this process, read once, at the first call; then sets the log level and warns
/// of HETU_ variables that nothing reads. Throws as read_env, at every call.
const Env& env();

/// Every variable in the order of the documentation.
std::vector<EnvRow> env_table();

/// env_table() as a Markdown table, for docs.
std::string env_table_text();

/// The HETU_ names in `environment` ("NAME=value") that no row of env_table() has.
std::vector<std::string> unknown_variables(const std::vector<std::string>& environment);

}  // namespace hetu
