// A kernel's text made ready to be run.
#pragma once
#include <string>

#include "tests/emulator/program.h"

namespace hetu::emulator {

/// Throws Problem where PTX has what the emulator does not know.
Program make_program(const std::string& ptx, const Text& text, const Function& entry,
                     const Globals& globals);

}  // namespace hetu::emulator
