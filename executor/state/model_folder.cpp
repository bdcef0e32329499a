#include "executor/state/model_folder.h"

#include <filesystem>

#include "base/error.h"

namespace hetu {

void refuse_models(const std::string& folder, const std::vector<std::string>& steps) {
  for (const std::string& step : steps) {
    std::error_code ignored;
    if (std::filesystem::exists(std::filesystem::path(step) / kModelGraph, ignored))
      fail(Code::Io,
           "{} holds a saved model, which a training can't resume from or save beside ({}); choose "
           "another folder for the checkpoints",
           folder, step);
  }
}

}  // namespace hetu
