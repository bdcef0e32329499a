// CIFAR-100's pickled format, read without Python. The reader knows only the opcodes and NumPy
// classes that such files contain, and never calls anything. Used by cifar_file.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "datasets/cifar.h"

namespace hetu {

/// Returns true if the bytes begin as a pickle of protocols 2 to 5 does.
bool is_pickle(const std::vector<std::uint8_t>& bytes);

/// Reads a pickled dict with `data` (a NumPy array, uint8 [rows, 3072]), `fine_labels` and
/// `coarse_labels` (lists of numbers). Python 2 or 3 may have written it (protocols 2 to 5). Throws
/// Io for anything else, naming `path`, the byte offset and the content found there.
Cifar100 read_cifar_pickle(const std::vector<std::uint8_t>& bytes, const std::string& path);

}  // namespace hetu
