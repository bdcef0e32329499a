// Checkpoints whose tensors Python passes and receives as bytes. hetu.torch uses them.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/env.h"
#include "executor/state/checkpoint.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Room = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr std::int64_t kPieceBytes = 4 << 20;  // checksummed and written while it is in the cache

// Calls a Python function for the bytes of one tensor, passes them on and releases them. So a save
// needs memory for one copied tensor at a time.
void take_bytes(const nb::callable& bytes_of, const TensorSource::Take& take) {
  const nb::gil_scoped_acquire held;
  const auto bytes = nb::cast<Bytes>(bytes_of());
  const nb::gil_scoped_release free;
  const auto* const data = bytes.data();
  const auto size = static_cast<std::int64_t>(bytes.size());
  for (std::int64_t at = 0; at < size; at += kPieceBytes)
    take(data + at, std::min(kPieceBytes, size - at));
}

// Converts a row (name, state, dtype as safetensors names it, shape, function that returns the
// bytes).
RawTensor raw_tensor(const nb::tuple& row) {
  RawTensor t;
  t.name = nb::cast<std::string>(row[0]);
  t.state = nb::cast<std::string>(row[1]);
  const auto dtype = nb::cast<std::string>(row[2]);
  require(parse_format_dtype(dtype, t.dtype, t.foreign) != 0,
          "'{}': dtype '{}' is not a dtype of safetensors files", t.name, dtype);
  t.shape = nb::cast<Shape>(row[3]);
  t.pieces = [bytes_of = nb::cast<nb::callable>(row[4])](const TensorSource::Take& take) {
    take_bytes(bytes_of, take);
  };
  return t;
}

void save_tensors(const std::string& folder, const std::string& model_file, std::int64_t step,
                  const std::string& run_json, const nb::list& files, comm::Transport& links) {
  // Destroyed while the interpreter lock is held, because it holds Python functions.
  std::vector<SavePart> parts;
  for (const nb::handle file : files) {
    const auto row = nb::cast<nb::tuple>(file);
    SavePart part{nb::cast<std::string>(row[0]), {}, nb::cast<std::string>(row[1]), {}};
    for (const nb::handle tensor : nb::cast<nb::list>(row[2]))
      part.raw.push_back(raw_tensor(nb::cast<nb::tuple>(tensor)));
    parts.push_back(std::move(part));
  }
  const SavePlace place = {.folder = folder, .model_file = model_file, .job = env().job};
  const nb::gil_scoped_release free;
  save_checkpoint(place, step, run_json, parts, links);
}

nb::list rows_of(const Manifest& manifest) {
  nb::list out;
  for (const CheckpointTensor& t : manifest.tensors)
    out.append(nb::make_tuple(t.name, t.state, format_dtype(t.dtype, t.foreign), t.shape, t.file));
  return out;
}

nb::list rows_of(const SafetensorsFile& file) {
  nb::list out;
  for (const TensorEntry& t : file.tensors())
    out.append(nb::make_tuple(t.name, format_dtype(t.dtype, t.foreign), t.shape));
  return out;
}

void check_room(const std::string& name, std::int64_t bytes, const Room& to) {
  require(static_cast<std::int64_t>(to.size()) == bytes,
          "'{}' has {} bytes, but the array has room for {}", name, bytes, to.size());
}

void bind_readers(nb::module_& m) {
  nb::class_<CheckpointReader>(
      m, "CheckpointReader",
      "Reads the tensors of a folder's newest checkpoint as bytes, and compares their checksums.")
      .def(nb::init<const std::string&>())
      .def_prop_ro("folder", [](const CheckpointReader& r) { return r.manifest().folder; })
      .def_prop_ro("step", [](const CheckpointReader& r) { return r.manifest().step; })
      .def_prop_ro("run", [](const CheckpointReader& r) { return r.manifest().run_json; })
      .def_prop_ro("checksum", [](const CheckpointReader& r) { return r.manifest().crc; })
      .def_prop_ro(
          "tensors", [](const CheckpointReader& r) { return rows_of(r.manifest()); },
          "(name, state, dtype, shape, file) of each tensor. dtype is the name that safetensors "
          "uses.")
      .def(
          "read",
          [](CheckpointReader& r, std::size_t number, const Room& to) {
            const std::vector<CheckpointTensor>& all = r.manifest().tensors;
            require(number < all.size(), "{}: no tensor {}", r.manifest().folder, number);
            check_room(all[number].name, all[number].bytes(), to);
            const nb::gil_scoped_release free;
            r.read(all[number], to.data());
          },
          "Fills a uint8 array with the bytes of the tensor with this number.");
  nb::class_<SafetensorsFile>(m, "SafetensorsFile", "A safetensors file with a checked header.")
      .def(nb::init<const std::string&>())
      .def_prop_ro(
          "tensors", [](const SafetensorsFile& f) { return rows_of(f); },
          "(name, dtype, shape) of each tensor.")
      .def(
          "read",
          [](const SafetensorsFile& f, std::size_t number, const Room& to) {
            require(number < f.tensors().size(), "{}: no tensor {}", f.path(), number);
            const TensorEntry& t = f.tensors()[number];
            check_room(t.name, t.end - t.begin, to);
            const nb::gil_scoped_release free;
            f.read_bytes(t, 0, t.end - t.begin, to.data());
          },
          "Fills a uint8 array with the bytes of the tensor with this number.");
}

}  // namespace

void bind_checkpoint(nb::module_& m) {
  bind_readers(m);
  m.def("save_tensors", &save_tensors, nb::arg("folder"), nb::arg("model_file"), nb::arg("step"),
        nb::arg("run_json"), nb::arg("files"), nb::arg("links"),
        "Saves one step, which replaces the step that the folder holds. Every worker calls it. "
        "`files`: (name, text, tensors). Without text, tensors are (name, state, dtype, shape, "
        "function that returns the bytes as a flat uint8 array). `model_file`: as in SavePlace.");
}

}  // namespace hetu
