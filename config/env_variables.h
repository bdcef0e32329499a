// The table of environment variables: what each one means, and the function that stores its value.
#pragma once
#include <string>
#include <vector>

#include "config/env_values.h"

namespace hetu::variables {

constexpr int kMostWorkers = 1 << 20;

/// A row of documentation with the function that stores a value that is set; nullptr: not read.
struct Variable {
  EnvRow row;
  void (*store)(Env& env, const std::string& name, const std::string& value);
};

/// All of them, in the order of the documentation.
std::vector<Variable> all();

/// Throws Config, naming variable, value and what would be right.
[[noreturn]] void wrong(const std::string& name, const std::string& value,
                        const std::string& right);

/// A whole number in [low, high]. Throws as `wrong`.
int parse_int(const std::string& name, const std::string& value, int low, int high);

}  // namespace hetu::variables
