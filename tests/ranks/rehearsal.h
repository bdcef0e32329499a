// A rehearsal with a process per worker. CMake sets the path of the hetu tool.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "tests/ranks/jobs.h"
#include "tests/temporary_folder.h"

namespace hetu {

/// Returns the report of `hetu rehearse ARGUMENTS`. The report goes through a file, because mpirun
/// may write between its lines.
inline std::string rehearsal(int workers, const std::string& arguments, Ended& job) {
  const TemporaryFolder folder;
  const std::string file = folder / "report.json";
  job = run_job(workers,
                std::string(HETU_BINARY) + " rehearse " + arguments + " --format json -o " + file);
  std::ifstream in(file);
  std::ostringstream report;
  report << in.rdbuf();
  return report.str();
}

}  // namespace hetu
