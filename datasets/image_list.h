// The names of an image folder, one sub-folder per class, as ImageNet is laid out. Small enough for
// millions of names: all lie in one text. Read by image_folder.cpp, image_check.cpp and python/.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// Images are numbered class by class, classes in the order of their names' bytes. Within a class
/// they are numbered folder by folder, in the order of the folders' paths and then of their names,
/// as torchvision's ImageFolder does.
class ImageList {
 public:
  /// Lists `folder`. Classes are its sub-folders, images the files in them, at any depth, that end
  /// in .jpg, .jpeg, .png, .bmp, .tif, .tiff, .webp, .ppm or .pgm in either case (torchvision's
  /// endings). Other files and names that begin with a dot are passed over. Throws Io
  /// for a folder that is missing or cannot be read, has no class folder (saying so if images lie
  /// in it directly), or whose class folder has no image.
  explicit ImageList(std::string folder);

  const std::string& folder() const { return folder_; }
  std::int64_t images() const { return static_cast<std::int64_t>(name_ends_.size()); }
  int classes() const { return static_cast<int>(class_names_.size()); }
  const std::string& class_name(int label) const;

  /// The class of image i.
  int label(std::int64_t i) const;
  std::string path(std::int64_t i) const;

  /// Images first_of(label) .. first_of(label + 1) - 1 are of that class.
  std::int64_t first_of(int label) const;

  /// True for the first who asks: one warning of a damaged image is enough, however many loaders
  /// read the list.
  bool first_trouble() const { return !trouble_.exchange(true); }

  /// Contents of a folder.
  struct Entry {
    std::string name;
    bool folder = false;
  };

  /// 64 bits over all names in order: another list, another number.
  std::uint64_t digest() const { return digest_; }

 private:
  void add_class(const std::string& name);
  void add_images(const std::string& below, const std::vector<Entry>& entries);
  std::string_view name(std::int64_t i) const;

  std::string folder_;
  std::vector<std::string> class_names_;
  std::vector<std::int64_t> class_first_;  // and images() at the end
  std::string names_;                      // all, without anything between them
  std::vector<std::uint64_t> name_ends_;
  std::uint64_t digest_ = 0;
  mutable std::atomic<bool> trouble_ = false;
};

/// True if a file's name ends as an image's.
bool is_image(std::string_view name);

/// Bytes of a file. Throws Io.
std::vector<std::uint8_t> read_whole_file(const std::string& path);

}  // namespace hetu
