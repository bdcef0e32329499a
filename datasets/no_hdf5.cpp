// Implements Hdf5File for builds without HDF5: opening a file throws Unsupported.
#include "base/error.h"
#include "datasets/hdf5_file.h"

namespace hetu {

struct Hdf5File::Impl {
  std::string path;
};

Hdf5File::Hdf5File(std::string path) {
  fail(Code::Unsupported,
       "{}: this build has no HDF5; install its development package and configure with "
       "-DHETU_HDF5=ON",
       path);
}

Hdf5File::~Hdf5File() = default;

const std::string& Hdf5File::path() const { return impl_->path; }

Shape Hdf5File::shape(const std::string&) { return {}; }

void Hdf5File::read_rows(const std::string&, std::int64_t, std::int64_t, std::int32_t*) {}

}  // namespace hetu
