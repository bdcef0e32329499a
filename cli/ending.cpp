#include "cli/ending.h"

#include <exception>
#include <new>

#include "base/error.h"

namespace hetu::cli {
namespace {

Ending ending_of(const std::string& command, const Error& e) {
  if (e.code() == Code::Plan) return {exit_status(Code::Plan), fmt::format("{}\n", e.what())};
  // For these commands, input that can't be read counts as wrong input.
  return {exit_status(e.code() == Code::Io ? Code::Config : e.code()),
          fmt::format("hetu{}{}: {}\n", command.empty() ? "" : " ", command, e.what())};
}

}  // namespace

Ending run_to_end(const std::string& command, const std::function<int()>& run) {
  try {
    return {run(), ""};
  } catch (const Error& e) {
    return ending_of(command, e);
  } catch (const std::bad_alloc&) {
    return ending_of(command, {Code::Io, "not enough memory for a plan this large"});
  } catch (const std::exception& e) {
    return ending_of(command, {Code::Internal, e.what()});
  }
}

}  // namespace hetu::cli
