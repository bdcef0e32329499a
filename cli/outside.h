// Other programs, run for their output: what doctor tries and completion asks.
#pragma once
#include <string>
#include <vector>

namespace hetu::cli {

/// How a program ended and what it wrote.
struct Ended {
  int status = 0;      ///< 127 where it cannot be started, 124 where it was ended after `timeout_s`
  std::string output;  ///< standard output; with `errors`, standard error among it
};

/// Runs `words`, found along PATH, with no input. `environment`: "NAME=value" on top of this
/// process's.
Ended run_outside(const std::vector<std::string>& words, double timeout_s, bool errors = false,
                  const std::vector<std::string>& environment = {});

/// This program's own file.
std::string own_program();

/// The program `name` beside this one (a virtual environment's bin folder), as it was called or as
/// it lies; else `name`, for PATH.
std::string beside(const std::string& self, const std::string& name);

}  // namespace hetu::cli
