#include "datasets/image_folder.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "datasets/augment.h"
#include "datasets/image.h"
#include "datasets/order.h"
#include "datasets/resample.h"
#include "datasets/row_threads.h"

namespace hetu {
namespace {

// Buffers of one thread, reused from image to image.
struct Desk {
  Image image;
  Box there;  // the box within `image` that is needed
  Resampler resampler;
};

// Decodes an image. A format that this build doesn't support ends the run with the image's name. It
// is not replaced as a damaged image is, because another build could read it.
DecodeTrouble decode_named(const std::string& path, const PartOf& part, Desk& desk) {
  try {
    return decode_part(read_whole_file(path), part, desk.image, desk.there);
  } catch (const Error& error) {
    if (error.code() != Code::Unsupported) throw;
    fail(Code::Unsupported, "{}: {}", path, error.what());
  }
}

class ImageFolder final : public RowSource {
 public:
  explicit ImageFolder(const ImageFolderOptions& options)
      : options_(options),
        list_(*options.list),
        fields_({{"image", DType::Float32, {3, options.size, options.size}},
                 {"label", DType::Int32, {}}}),
        threads_(options.threads),
        desks_(static_cast<std::size_t>(options.threads)) {}

  const std::vector<Field>& fields() const override { return fields_; }
  std::int64_t rows() const override { return list_.images(); }
  bool same_everywhere() const override { return true; }
  std::string order() const override {
    return fmt::format("image_folder images {} classes {} names {:016x} size {} {} seed {}",
                       list_.images(), list_.classes(), list_.digest(), options_.size,
                       options_.train ? "train" : "eval", options_.seed);
  }
  std::int64_t skipped_rows() const override { return skipped_; }
  void read(Batch& batch) override;

 private:
  std::int64_t image_of(std::int64_t epoch, std::int64_t row);
  void read_image(std::int64_t epoch, std::int64_t image, Desk& desk, float* planes);
  void decode_or_next_of_class(std::int64_t image, const PartOf& part, Desk& desk);
  void warn(const std::string& path, const DecodeTrouble& trouble);

  ImageFolderOptions options_;
  const ImageList& list_;
  std::vector<Field> fields_;
  RowThreads threads_;
  std::vector<Desk> desks_;
  std::vector<std::int64_t> order_;  // order of epoch_
  std::int64_t epoch_ = -1;
  std::atomic<std::int64_t> skipped_ = 0;
};

std::int64_t ImageFolder::image_of(std::int64_t epoch, std::int64_t row) {
  if (!options_.train) return row;
  if (epoch != epoch_) {
    order_ = drawn_order(list_.images(), options_.seed, static_cast<std::uint64_t>(epoch), 0);
    epoch_ = epoch;
  }
  return order_[static_cast<std::size_t>(row)];
}

void ImageFolder::warn(const std::string& path, const DecodeTrouble& trouble) {
  ++skipped_;
  if (!list_.first_trouble()) return;
  log(Level::Warning,
      "{}: {}; it is replaced by another image of its class. Further bad images are only counted; "
      "`hetu data check` lists them.",
      path, trouble);
}

void ImageFolder::decode_or_next_of_class(std::int64_t image, const PartOf& part, Desk& desk) {
  const int label = list_.label(image);
  const std::int64_t first = list_.first_of(label);
  const std::int64_t count = list_.first_of(label + 1) - first;
  for (std::int64_t step = 0; step < count; ++step) {
    const std::string path = list_.path(first + (image - first + step) % count);
    const DecodeTrouble trouble = decode_named(path, part, desk);
    if (trouble.empty()) return;
    if (step == 0) warn(path, trouble);
  }
  fail(Code::Io, "{}/{}: none of its {} images can be decoded", list_.folder(),
       list_.class_name(label), count);
}

void ImageFolder::read_image(std::int64_t epoch, std::int64_t image, Desk& desk, float* planes) {
  const int size = options_.size;
  bool flip = false;
  int width = size, height = size;  // size to which the part is resized
  Box window = {0, 0, size, size};  // box of the resized image that is returned
  // Restarts the random numbers for each image that is tried, so that a replacement is cropped by
  // its own size.
  const auto train = [&](int from_width, int from_height) {
    SampleRandom random(options_.seed, epoch, image);
    flip = random.uniform(0, 1) < 0.5;
    return random_resized_crop(from_width, from_height, random);
  };
  const auto eval = [&](int from_width, int from_height) {
    const CentreCrop cut = centre_crop(from_width, from_height, size * 256 / 224, size);
    width = cut.resized_width;
    height = cut.resized_height;
    window = cut.crop;
    return Box{0, 0, from_width, from_height};
  };
  decode_or_next_of_class(image, options_.train ? PartOf(train) : PartOf(eval), desk);
  const std::uint8_t* bytes =
      desk.resampler.resize(desk.image, desk.there, width, height, window, flip);
  normalise(bytes, static_cast<std::size_t>(size) * static_cast<std::size_t>(size), kImageNet,
            planes);
}

void ImageFolder::read(Batch& batch) {
  std::vector<std::int64_t> images(static_cast<std::size_t>(batch.rows));
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    images[static_cast<std::size_t>(row)] = image_of(batch.epoch, batch.first + row);
  }
  for (FieldData& field : batch.fields) {
    if (field.name == "label") {
      for (std::size_t row = 0; row < images.size(); ++row) {
        field.as<std::int32_t>()[row] = list_.label(images[row]);
      }
      continue;
    }
    const std::int64_t floats = std::int64_t{3} * options_.size * options_.size;
    threads_.each(batch.rows, [&](std::int64_t row, int thread) {
      read_image(batch.epoch, images[static_cast<std::size_t>(row)],
                 desks_[static_cast<std::size_t>(thread)], field.as<float>() + row * floats);
    });
  }
}

}  // namespace

std::unique_ptr<RowSource> image_folder_source(const ImageFolderOptions& options) {
  require_image_support();
  require(options.list != nullptr && options.list->images() > 0,
          "image folder: no list of images is given; set ImageFolderOptions::list");
  require(options.size >= 1 && options.size <= 8192,
          "an image side must have 1 to 8192 pixels, got {}", options.size);
  require(options.threads >= 1, "at least 1 reading thread is needed, got {}", options.threads);
  return std::make_unique<ImageFolder>(options);
}

}  // namespace hetu
