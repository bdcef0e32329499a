// The HDF5 library decompresses a chunk as a whole and caches chunks per dataset. If the library's
// default cache is smaller than a row of chunks, reading rows from front to back decompresses
// chunks repeatedly. Each dataset is therefore opened twice: once to learn its chunks, and then
// with a cache that holds one row of chunks.
#include "datasets/hdf5_file.h"

#include <hdf5.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text_file.h"

namespace hetu {
namespace {

std::mutex& library_lock() {
  static std::mutex lock;
  return lock;
}

// Maximum size of the chunk cache of a dataset. The cache holds one row of chunks if that fits.
constexpr std::int64_t kMaxCacheBytes = std::int64_t{256} << 20;

// Returns the innermost reason of the last failure in this thread.
std::string library_reason() {
  std::string reason = "no reason given";
  const auto take_first = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    *static_cast<std::string*>(out) = error->desc;
    return 1;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &reason);
  H5Eclear2(H5E_DEFAULT);
  return reason;
}

// An identifier that is closed at the end of its scope.
class Held {
 public:
  Held(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Held() {
    if (id_ >= 0) close_(id_);
  }
  Held(Held&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  Held& operator=(Held&&) = delete;
  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

struct Dataset {
  Held id;
  Shape shape;
};

// Turns off the library's own error output, which is on by default in each thread. Errors are
// thrown instead.
void be_quiet() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

// Returns the bytes of one row of chunks. A cache of this size suffices for reading from front to
// back. Returns 0 for datasets that are not chunked.
std::int64_t row_of_chunks_bytes(const Dataset& dataset) {
  const Held plan(H5Dget_create_plist(dataset.id.get()), H5Pclose);
  const Held type(H5Dget_type(dataset.id.get()), H5Tclose);
  const std::size_t rank = dataset.shape.size();
  if (!plan.ok() || !type.ok() || rank == 0 || H5Pget_layout(plan.get()) != H5D_CHUNKED) return 0;
  std::vector<hsize_t> chunk(rank);
  if (H5Pget_chunk(plan.get(), static_cast<int>(rank), chunk.data()) < 0) return 0;
  auto bytes = static_cast<std::int64_t>(H5Tget_size(type.get()) * chunk[0]);
  for (std::size_t axis = 1; axis < rank; ++axis) {
    const auto side = static_cast<std::int64_t>(chunk[axis]);
    bytes *= (dataset.shape[axis] + side - 1) / side * side;
  }
  return bytes;
}

}  // namespace

struct Hdf5File::Impl {
  Impl(std::string name, Held file_id) : path(std::move(name)), file(std::move(file_id)) {}

  // The caller holds the lock.
  Dataset open(const std::string& name, hid_t access) const;
  Dataset& dataset(const std::string& name);

  std::string path;
  Held file;
  std::map<std::string, Dataset> datasets;
};

Dataset Hdf5File::Impl::open(const std::string& name, hid_t access) const {
  Dataset out{Held(H5Dopen2(file.get(), name.c_str(), access), H5Dclose), {}};
  if (!out.id.ok()) {
    H5Eclear2(H5E_DEFAULT);
    fail(Code::Io, "{}: has no dataset '{}'", path, name);
  }
  const Held type(H5Dget_type(out.id.get()), H5Tclose);
  const Held space(H5Dget_space(out.id.get()), H5Sclose);
  if (!type.ok() || !space.ok()) {
    fail(Code::Io, "{}: dataset '{}' cannot be read: {}", path, name, library_reason());
  }
  if (H5Tget_class(type.get()) != H5T_INTEGER) {
    fail(Code::Io, "{}: dataset '{}' does not hold integers", path, name);
  }
  const int rank = H5Sget_simple_extent_ndims(space.get());
  std::vector<hsize_t> sides(static_cast<std::size_t>(std::max(rank, 0)));
  H5Sget_simple_extent_dims(space.get(), sides.data(), nullptr);
  out.shape.assign(sides.begin(), sides.end());
  return out;
}

Dataset& Hdf5File::Impl::dataset(const std::string& name) {
  const auto known = datasets.find(name);
  if (known != datasets.end()) return known->second;
  std::int64_t bytes = 0;
  {
    const Dataset first = open(name, H5P_DEFAULT);
    bytes = std::min(row_of_chunks_bytes(first), kMaxCacheBytes);
  }
  const Held access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  // 1.0: chunks that have been read completely leave the cache first.
  H5Pset_chunk_cache(access.get(), 4099, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)),
                     1.0);
  return datasets.emplace(name, open(name, access.get())).first->second;
}

Hdf5File::Hdf5File(std::string path) {
  check_regular(path);  // the library would block on a FIFO
  const std::lock_guard lock(library_lock());
  be_quiet();
  const Held access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access.get(), false, true);
  Held file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (!file.ok()) fail(Code::Io, "{}: not a readable HDF5 file: {}", path, library_reason());
  impl_ = std::make_unique<Impl>(std::move(path), std::move(file));
}

Hdf5File::~Hdf5File() {
  const std::lock_guard lock(library_lock());
  be_quiet();
  impl_.reset();
}

const std::string& Hdf5File::path() const { return impl_->path; }

Shape Hdf5File::shape(const std::string& dataset) {
  const std::lock_guard lock(library_lock());
  be_quiet();
  return impl_->dataset(dataset).shape;
}

void Hdf5File::read_rows(const std::string& dataset, std::int64_t first, std::int64_t count,
                         std::int32_t* out) {
  if (count == 0) return;
  const std::lock_guard lock(library_lock());
  be_quiet();
  const Dataset& from = impl_->dataset(dataset);
  HETU_ASSERT(!from.shape.empty() && first >= 0 && first + count <= from.shape[0]);
  std::vector<hsize_t> start(from.shape.size(), 0);
  std::vector<hsize_t> sides(from.shape.begin(), from.shape.end());
  start[0] = static_cast<hsize_t>(first);
  sides[0] = static_cast<hsize_t>(count);
  const Held file_space(H5Dget_space(from.id.get()), H5Sclose);
  const Held memory(H5Screate_simple(static_cast<int>(sides.size()), sides.data(), nullptr),
                    H5Sclose);
  H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(), nullptr, sides.data(),
                      nullptr);
  if (H5Dread(from.id.get(), H5T_NATIVE_INT32, memory.get(), file_space.get(), H5P_DEFAULT, out) <
      0) {
    fail(Code::Io, "{}: rows {} to {} of '{}' cannot be read: {}", impl_->path, first,
         first + count, dataset, library_reason());
  }
}

}  // namespace hetu
