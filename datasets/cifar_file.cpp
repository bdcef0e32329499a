// Finds and reads CIFAR-100 files in both formats.
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "datasets/cifar.h"
#include "datasets/cifar_pickle.h"
#include "datasets/image_list.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRowBytes = 2 + Cifar100::kBytes;

// Returns the file that `path` stands for.
std::string find_file(const std::string& path, bool train) {
  std::error_code error;
  if (!fs::exists(path, error)) fail(Code::Io, "{}: no such file or folder", path);
  if (!fs::is_directory(path, error)) return path;
  const std::string name = train ? "train" : "test";
  for (const char* below : {"", "cifar-100-binary", "cifar-100-python"}) {
    for (const std::string& file : {name + ".bin", name}) {
      const fs::path candidate = fs::path(path) / below / file;
      if (fs::is_regular_file(candidate, error)) return candidate.string();
    }
  }
  fail(Code::Io,
       "{}: found neither {}.bin nor {} in this folder or in its sub-folders cifar-100-binary and "
       "cifar-100-python; expected the CIFAR-100 files",
       path, name, name);
}

Cifar100 read_rows(const std::vector<std::uint8_t>& bytes, const std::string& path) {
  if (bytes.empty() || bytes.size() % kRowBytes != 0) {
    fail(Code::Io,
         "{}: not a CIFAR-100 file: {} bytes are neither a pickle nor whole rows of {} bytes "
         "(coarse label, fine label, 32 x 32 x 3){}",
         path, bytes.size(), kRowBytes,
         !bytes.empty() && bytes.size() % (kRowBytes - 1) == 0
             ? "; a multiple of 3073 bytes suggests CIFAR-10"
             : "");
  }
  Cifar100 set;
  const std::size_t rows = bytes.size() / kRowBytes;
  set.labels.reserve(rows);
  set.coarse.reserve(rows);
  set.pixels.resize(rows * Cifar100::kBytes);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::uint8_t* at = bytes.data() + row * kRowBytes;
    set.coarse.push_back(at[0]);
    set.labels.push_back(at[1]);
    std::copy_n(at + 2, Cifar100::kBytes, set.pixels.data() + row * Cifar100::kBytes);
  }
  return set;
}

void check_labels(const Cifar100& set) {
  for (std::size_t row = 0; row < set.labels.size(); ++row) {
    if (set.labels[row] < Cifar100::kClasses && set.coarse[row] < Cifar100::kCoarse) continue;
    fail(Code::Io,
         "{}: row {} has the labels {} (coarse) and {} (fine), but CIFAR-100 labels are below {} "
         "and {}; check that this is CIFAR-100",
         set.path, row, set.coarse[row], set.labels[row], Cifar100::kCoarse, Cifar100::kClasses);
  }
}

}  // namespace

Cifar100 read_cifar100(const std::string& path, bool train) {
  const std::string file = find_file(path, train);
  const std::vector<std::uint8_t> bytes = read_whole_file(file);
  Cifar100 set = is_pickle(bytes) ? read_cifar_pickle(bytes, file) : read_rows(bytes, file);
  set.path = file;
  check_labels(set);
  return set;
}

}  // namespace hetu
