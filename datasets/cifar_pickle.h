// CIFAR-100's pickled form, read without Python: a reader that knows the few opcodes and the two
// NumPy classes that such files hold, and calls nothing. Read by cifar_file.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "datasets/cifar.h"

namespace hetu {

/// True if the bytes begin as a pickle of protocol 2 or later does.
bool is_pickle(const std::vector<std::uint8_t>& bytes);

/// The rows of a pickled dict with `data` (a NumPy array, uint8 [rows, 3072]), `fine_labels` and
/// `coarse_labels` (lists of numbers), as Python 2 or 3 wrote it (protocols 2 to 5). Throws Io for
/// anything else, naming `path`, the place and what stands there.
Cifar100 read_cifar_pickle(const std::vector<std::uint8_t>& bytes, const std::string& path);

}  // namespace hetu
