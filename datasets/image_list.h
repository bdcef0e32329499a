// The file names of an image folder with one sub-folder per class, as ImageNet is laid out. All
// names share one string, so millions of them fit into memory. Used by image_folder.cpp,
// image_check.cpp and python/.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// The images and classes of a folder. Images are numbered class by class, with the classes ordered
/// by the bytes of their names. Within a class they are ordered by the path of their folder and
/// then by name, as in torchvision's ImageFolder.
class ImageList {
 public:
  /// Lists `folder`. Classes are its sub-folders. Images are the files in them, at any depth, with
  /// torchvision's endings: .jpg, .jpeg, .png, .bmp, .tif, .tiff, .webp, .ppm or .pgm in upper or
  /// lower case. Other files, and names that begin with a dot, are skipped. Throws Io for a folder
  /// that is missing or cannot be read, and for a class folder without an image. Throws Io for a
  /// folder without class folders; the message says if images lie in it directly.
  explicit ImageList(std::string folder);

  const std::string& folder() const { return folder_; }
  std::int64_t images() const { return static_cast<std::int64_t>(name_ends_.size()); }
  int classes() const { return static_cast<int>(class_names_.size()); }
  const std::string& class_name(int label) const;

  /// Returns the class of image i.
  int label(std::int64_t i) const;
  /// Returns the path of image i.
  std::string path(std::int64_t i) const;

  /// Returns the first image of a class. Its images are first_of(label) .. first_of(label + 1) - 1.
  std::int64_t first_of(int label) const;

  /// Returns true on the first call only. Any number of loaders that share the list thus print one
  /// warning of a damaged image.
  bool first_trouble() const { return !trouble_.exchange(true); }

  /// An entry of a folder.
  struct Entry {
    std::string name;
    bool folder = false;
  };

  /// Returns a 64-bit hash of all names in order, which tells lists with different names apart.
  std::uint64_t digest() const { return digest_; }

 private:
  void add_class(const std::string& name);
  void add_images(const std::string& below, const std::vector<Entry>& entries);
  std::string_view name(std::int64_t i) const;

  std::string folder_;
  std::vector<std::string> class_names_;
  std::vector<std::int64_t> class_first_;  // then images() at the end
  std::string names_;                      // all names, concatenated without separators
  std::vector<std::uint64_t> name_ends_;
  std::uint64_t digest_ = 0;
  mutable std::atomic<bool> trouble_ = false;
};

/// Returns true if a file's name has an ending of images.
bool is_image(std::string_view name);

/// Returns the bytes of a file. Throws Io.
std::vector<std::uint8_t> read_whole_file(const std::string& path);

}  // namespace hetu
