// `hetu doctor`: the trials of Hetu's parts. The list of trials is in doctor_trials.cpp, or in
// no_training.cpp for a build without training.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace hetu::cli {

constexpr double kTryTimeout_s = 60;  ///< longest time of a trial in seconds

/// The result of a trial.
struct Finding {
  enum class State { Works, Missing, Broken };
  State state = State::Works;
  std::string text;
};

Finding works(std::string text);
Finding missing(std::string text);
Finding broken(std::string text);

/// One trial. `install` says what to do if the part is missing.
struct Trial {
  const char* name;
  std::string install;
  std::function<Finding()> attempt;
};

/// Returns the trials of this build, in the order of the report.
std::vector<Trial> trials();
/// Joins the job of one worker that the trial of MPI starts, and returns its greeting. Throws
/// Unsupported without MPI.
std::string greeting_of_worker();

/// Describes the cores and the memory of this machine.
Finding processor();
/// Imports hetu with the Python of this program.
Finding python();
std::string first_line(const std::string& text);

}  // namespace hetu::cli
