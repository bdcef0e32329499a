#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/progress_line.h"
#include "datasets/bert_hdf5.h"
#include "datasets/cifar.h"
#include "datasets/criteo.h"
#include "datasets/drawn_images.h"
#include "datasets/image.h"
#include "datasets/image_folder.h"
#include "datasets/loader.h"
#include "datasets/spare_columns.h"
#include "executor/device/threads.h"
#include "executor/job/shared_samples.h"
#include "python/src/arrays.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

std::unique_ptr<Loader> bert_loader(const BertHdf5Options& source, const LoaderOptions& options) {
  return std::make_unique<Loader>(bert_hdf5_source(source), options);
}

nb::dict position_dict(const Position& p) {
  nb::dict out;
  out["epoch"] = p.epoch;
  out["index"] = p.index;
  out["global_batch"] = p.global_batch;
  out["order"] = p.order;
  return out;
}

Position position_of(const nb::dict& d) {
  return {nb::cast<std::int64_t>(d["epoch"]), nb::cast<std::int64_t>(d["index"]),
          nb::cast<std::int64_t>(d["global_batch"]), nb::cast<std::string>(d["order"])};
}

// Copies one field of a Python item (a dict of contiguous NumPy arrays) into a batch.
void copy_field(const nb::dict& item, FieldData& to, std::int64_t first_row, std::int64_t rows) {
  const auto array =
      nb::cast<nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>>(item[to.name.c_str()]);
  const std::size_t row_bytes = array.nbytes() / std::max<std::size_t>(1, array.shape(0));
  copy_in_parallel(to.bytes.data(),
                   static_cast<const std::byte*>(array.data()) + first_row * row_bytes,
                   static_cast<std::int64_t>(rows * row_bytes));
}

// Makes a stream of global batches from a Python function (epoch, item) -> dict of arrays or None.
// Python has checked the arrays, so they are only copied here. The stream does not keep `item`
// alive; see stream_loader.
std::unique_ptr<RowSource> python_stream(const std::string& name,
                                         const std::vector<nb::tuple>& fields,
                                         std::int64_t global_batch, nb::handle item,
                                         bool may_be_early) {
  StreamSource stream;
  stream.may_be_early = may_be_early;
  stream.name = name;
  stream.global_batch = global_batch;
  for (const nb::tuple& f : fields) {
    stream.fields.push_back({nb::cast<std::string>(f[0]), parse_dtype(nb::cast<std::string>(f[1])),
                             nb::cast<Shape>(f[2])});
  }
  stream.item = [item, names = stream.fields](std::int64_t epoch, std::int64_t number,
                                              Batch& whole) {
    nb::gil_scoped_acquire gil;
    const nb::object got = item(epoch, number);
    if (got.is_none()) return false;
    const nb::dict dict = nb::cast<nb::dict>(got);
    const auto first =
        nb::cast<nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>>(dict[names[0].name.c_str()]);
    resize_batch(whole, names, static_cast<std::int64_t>(first.shape(0)));
    for (FieldData& field : whole.fields) copy_field(dict, field, 0, whole.rows);
    return true;
  };
  return stream_source(std::move(stream));
}

// The loader's attribute `item` keeps the function alive. So Python's garbage collector sees a
// reference cycle through the function, for example if the function belongs to a class whose
// globals hold the loader. The loader has no thread that could call the function while it is being
// destroyed.
nb::object stream_loader(const std::string& name, const std::vector<nb::tuple>& fields,
                         const nb::callable& item, std::int64_t rows_of_item, LoaderOptions options,
                         const ReaderSet* set) {
  const bool may_be_early = std::exchange(options.prefetch, 0) > 0;
  auto rows = python_stream(name, fields, rows_of_item, item, may_be_early);
  std::unique_ptr<Loader> made = set != nullptr
                                     ? open_loader(std::move(rows), options, *set)
                                     : std::make_unique<Loader>(std::move(rows), options);
  if (made == nullptr) return nb::none();
  nb::object loader = nb::cast(std::move(made));
  loader.attr("item") = item;
  return loader;
}

LoaderOptions loader_options(int pipelines, int pipeline, std::int64_t batch_size,
                             std::vector<std::string> fields, int prefetch, bool every_row_once,
                             std::vector<std::int64_t> shares) {
  LoaderOptions o;
  o.pipelines = pipelines;
  o.pipeline = pipeline;
  o.batch_size = batch_size;
  o.fields = std::move(fields);
  o.prefetch = prefetch;
  o.every_row_once = every_row_once;
  o.shares = std::move(shares);
  return o;
}

nb::dict next_arrays(Loader& loader) {
  const std::shared_ptr<SpareColumns> spare = loader.spare();
  Batch batch = spare->take();
  {
    const nb::gil_scoped_release release;
    loader.next(batch);
  }
  nb::dict out;
  for (std::size_t i = 0; i < batch.fields.size(); ++i) {
    FieldData& field = batch.fields[i];
    out[field.name.c_str()] =
        own_array(field.dtype, field.shape, std::move(field.bytes),
                  [spare, i](std::vector<std::byte> bytes) { spare->put(i, std::move(bytes)); });
  }
  return out;
}

// Returns a checksum of the next batch without making arrays, because importing NumPy takes half of
// the start time.
std::uint32_t next_checksum(Loader& loader) {
  Batch batch;
  loader.next(batch);
  std::uint32_t found = 0;
  for (const FieldData& field : batch.fields) {
    found = crc32c(field.name.data(), field.name.size(), found);
    found = crc32c(field.bytes.data(), field.bytes.size(), found);
  }
  return found;
}

using WriteSet = void (*)(const std::string& folder, const DrawnSet& set);

template <WriteSet kWrite>
void write_set(const std::string& folder, int classes, int train, int val, int side,
               std::uint64_t seed) {
  kWrite(folder, {classes, train, val, side, seed});
}

void bind_images(nb::module_& m) {
  m.def("reads_images", &reads_images, "Returns True in a build with libjpeg and libpng.");
  m.def("write_drawn_folder", &write_set<write_drawn_folder>,
        nb::call_guard<nb::gil_scoped_release>());
  m.def("write_drawn_cifar100", &write_set<write_drawn_cifar100>,
        nb::call_guard<nb::gil_scoped_release>());
  nb::class_<ImageList>(m, "ImageList", "The classes and images of a folder.")
      .def(nb::init<std::string>(), nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("images", &ImageList::images)
      .def_prop_ro("classes", &ImageList::classes)
      .def("class_name", &ImageList::class_name)
      .def("path", &ImageList::path)
      .def("label", &ImageList::label);
  m.def(
      "image_folder_loader",
      [](std::shared_ptr<ImageList> list, int size, bool train, std::uint64_t seed, int threads,
         const LoaderOptions& options) {
        ImageFolderOptions source;
        source.list = std::move(list);
        source.size = size;
        source.train = train;
        source.seed = seed;
        source.threads = threads;
        return std::make_unique<Loader>(image_folder_source(source), options);
      },
      nb::call_guard<nb::gil_scoped_release>());
  nb::class_<Cifar100>(m, "Cifar100Set", "The rows of a CIFAR-100 file.")
      .def_prop_ro("rows", &Cifar100::rows);
  m.def("read_cifar100", &read_cifar100, nb::call_guard<nb::gil_scoped_release>());
  m.def("cifar100_loader", [](std::shared_ptr<Cifar100> set, bool train, std::uint64_t seed,
                              const LoaderOptions& options) {
    Cifar100Options source;
    source.set = std::move(set);
    source.train = train;
    source.seed = seed;
    return std::make_unique<Loader>(cifar100_source(source), options);
  });
}

void bind_criteo(nb::module_& m) {
  nb::class_<CriteoSet>(m, "CriteoSet", "Files of click logs.")
      .def_prop_ro("rows", &CriteoSet::rows);
  m.def("open_criteo", &open_criteo, nb::call_guard<nb::gil_scoped_release>());
  m.def("criteo_loader",
        [](std::shared_ptr<CriteoSet> set, const nb::dict& how, const LoaderOptions& options) {
          CriteoOptions source;
          source.set = std::move(set);
          source.hash_size = nb::cast<std::int64_t>(how["hash_size"]);
          source.train = nb::cast<bool>(how["train"]);
          source.seed = nb::cast<std::uint64_t>(how["seed"]);
          source.max_rows = nb::cast<std::int64_t>(how["max_rows"]);
          return std::make_unique<Loader>(criteo_source(source), options);
        });
}

void bind_progress(nb::module_& m) {
  nb::class_<ProgressLine>(m, "ProgressLine",
                           "The progress of a long command, as a line on standard error.")
      .def(nb::init<std::string, std::string>(), nb::arg("command"), nb::arg("unit"))
      .def("__call__", &ProgressLine::operator(), nb::arg("done"), nb::arg("all"),
           "Sets the progress; 0 stands for an unknown number.")
      .def("close", &ProgressLine::close, "Removes the line.")
      .def("__enter__", [](const nb::object& self) { return self; })
      .def("__exit__", [](const ProgressLine& line, const nb::args&) { line.close(); });
}

}  // namespace

void bind_data(nb::module_& m) {
  bind_progress(m);
  bind_images(m);
  bind_criteo(m);
  nb::class_<LoaderOptions>(m, "LoaderOptions")
      .def(
          "__init__",
          [](LoaderOptions* self, int pipelines, int pipeline, std::int64_t batch_size,
             std::vector<std::string> fields, int prefetch, bool every_row_once,
             std::vector<std::int64_t> shares) {
            new (self)
                LoaderOptions(loader_options(pipelines, pipeline, batch_size, std::move(fields),
                                             prefetch, every_row_once, std::move(shares)));
          },
          nb::arg("pipelines"), nb::arg("pipeline"), nb::arg("batch_size"), nb::arg("fields"),
          nb::arg("prefetch"), nb::arg("every_row_once") = false,
          nb::arg("shares") = std::vector<std::int64_t>());
  nb::class_<Loader>(m, "Loader", "Hands out this worker's slice of each global batch.",
                     nb::dynamic_attr())
      .def("next", &next_arrays, "Returns the next batch as a dict of NumPy arrays.")
      .def("next_checksum", &next_checksum, nb::call_guard<nb::gil_scoped_release>(),
           "Returns the CRC-32C of the next batch: of its fields and their names, in order.")
      .def("position", [](const Loader& l) { return position_dict(l.position()); })
      .def("seek", [](Loader& l, const nb::dict& p) { l.seek(position_of(p)); })
      .def("divide", &Loader::divide, nb::call_guard<nb::gil_scoped_release>())
      .def("seek_step", &Loader::seek_step, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("batches_per_epoch", &Loader::batches_per_epoch)
      .def_prop_ro("dropped_per_epoch", &Loader::dropped_per_epoch)
      .def_prop_ro("skipped_rows", &Loader::skipped_rows)
      .def_prop_ro("global_batch", &Loader::global_batch);
  m.def(
      "bert_loader",
      [](const std::string& folder, std::uint64_t seed, std::int64_t vocabulary_size,
         std::int64_t max_rows, const LoaderOptions& options) {
        BertHdf5Options source;
        source.folder = folder;
        source.seed = seed;
        source.vocabulary_size = vocabulary_size;
        source.max_rows = max_rows;
        return bert_loader(source, options);
      },
      nb::call_guard<nb::gil_scoped_release>());
  m.def("bert_fields", [](const std::string& folder) {
    BertHdf5Options source;
    source.folder = folder;
    const auto rows = bert_hdf5_source(source);
    nb::list out;
    for (const Field& f : rows->fields())
      out.append(nb::make_tuple(f.name, dtype_name(f.dtype), f.shape));
    return nb::make_tuple(out, rows->rows());
  });
  const nb::class_<ReaderSet> reader_set(
      m, "Together", "Describes which workers read which rows of one set of rows.");
  nb::class_<Readers>(m, "Readers", "The readers of a job; see executor/job/shared_samples.h.")
      .def("open", &Readers::open, nb::keep_alive<0, 1>(), nb::arg("apart"),
           nb::arg("compared") = false, nb::arg("fields") = std::vector<std::string>(),
           "`fields`: the fields that the runs read; empty: all.")
      .def("single", &Readers::single, nb::keep_alive<0, 1>());
  m.def("stream_loader", &stream_loader, nb::arg("name"), nb::arg("fields"), nb::arg("item"),
        nb::arg("rows_of_item"), nb::arg("options"), nb::arg("together").none(),
        nb::keep_alive<0, 6>(),
        "`together`: one worker calls `item` for the whole job; None: this loader calls it alone. "
        "`rows_of_item`: a multiple of the options' global batch. With options that read ahead, "
        "`item` may be called for a step while the previous step is computed.");
  m.def("bert_vocabulary_size", &bert_vocabulary_size);
  m.def("bert_target_entropy", &bert_target_entropy, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace hetu
