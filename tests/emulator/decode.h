// Conversion of a kernel's text to a runnable program.
#pragma once
#include <string>

#include "tests/emulator/program.h"

namespace hetu::emulator {

/// Throws Problem if the PTX contains something that the emulator doesn't support.
Program make_program(const std::string& ptx, const Text& text, const Function& entry,
                     const Globals& globals);

}  // namespace hetu::emulator
