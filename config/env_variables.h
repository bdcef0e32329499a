// The table of environment variables: the documentation of each, and the function that stores its
// value.
#pragma once
#include <string>
#include <vector>

#include "config/env_values.h"

namespace hetu::variables {

constexpr int kMostWorkers = 1 << 20;

/// A row of documentation with the function that stores the variable's value. `store` is nullptr if
/// the variable is not read, or if env.cpp reads it together with others.
struct Variable {
  EnvRow row;
  void (*store)(Env& env, const std::string& name, const std::string& value);
};

/// Returns all variables in the order of the documentation.
std::vector<Variable> all();

/// Throws Config, and names the variable, its value and the expected values.
[[noreturn]] void wrong(const std::string& name, const std::string& value,
                        const std::string& right);

/// Parses a whole number in [low, high]. Throws as `wrong` does.
int parse_int(const std::string& name, const std::string& value, int low, int high);

}  // namespace hetu::variables
