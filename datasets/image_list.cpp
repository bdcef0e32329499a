#include "datasets/image_list.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text_file.h"
#include "datasets/order.h"

namespace hetu {
namespace {

constexpr const char* kEndings[] = {".jpg",  ".jpeg", ".png", ".bmp", ".tif",
                                    ".tiff", ".webp", ".ppm", ".pgm"};

using Entry = ImageList::Entry;
using Inode = std::pair<dev_t, ino_t>;

// Returns true for folders and links to folders. Most file systems report the type of an entry. For
// links, and where the type is unknown, this calls stat.
bool is_folder(const std::string& in, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN && entry.d_type != DT_LNK) return entry.d_type == DT_DIR;
  struct stat found = {};
  return ::stat((in + "/" + entry.d_name).c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

std::vector<Entry> entries_of(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (open == nullptr) {
    fail(Code::Io, "{}: {}; expected a folder with one sub-folder of images per class", folder,
         std::strerror(errno));
  }
  std::vector<Entry> entries;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr && errno != 0) fail(Code::Io, "{}: {}", folder, std::strerror(errno));
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') entries.push_back({entry->d_name, is_folder(folder, *entry)});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

// Adds the folders below `folder`, at any depth, to `found`, as paths relative to the class folder.
// `path` is the relative path of `folder` itself. Links to folders are followed. `around` holds the
// enclosing folders: a link to one of them throws Io.
void add_folders_below(const std::string& folder, const std::string& path,
                       const std::vector<Entry>& entries, std::vector<Inode>& around,
                       std::vector<std::string>& found) {
  struct stat own = {};
  if (::stat(folder.c_str(), &own) != 0) fail(Code::Io, "{}: {}", folder, std::strerror(errno));
  const Inode inode = {own.st_dev, own.st_ino};
  if (std::find(around.begin(), around.end(), inode) != around.end())
    fail(Code::Io, "{}: a link to a folder that contains it; remove the link", folder);
  around.push_back(inode);
  for (const Entry& entry : entries) {
    if (!entry.folder) continue;
    const std::string below = folder + "/" + entry.name;
    const std::string path_below = path.empty() ? entry.name : path + "/" + entry.name;
    found.push_back(path_below);
    add_folders_below(below, path_below, entries_of(below), around, found);
  }
  around.pop_back();
}

std::uint64_t digest_with(std::uint64_t digest, std::string_view text) {
  for (const char c : text) digest = (digest ^ static_cast<std::uint8_t>(c)) * 0x100000001B3ULL;
  return drawn_bits(digest, text.size());
}

}  // namespace

bool is_image(std::string_view name) {
  return std::any_of(std::begin(kEndings), std::end(kEndings), [name](std::string_view ending) {
    return name.size() > ending.size() &&
           std::equal(ending.begin(), ending.end(), name.end() - ending.size(),
                      [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
  });
}

ImageList::ImageList(std::string folder) : folder_(std::move(folder)) {
  int loose_images = 0;  // images outside a class folder
  for (const Entry& entry : entries_of(folder_)) {
    if (entry.folder) {
      add_class(entry.name);
    } else {
      loose_images += is_image(entry.name) ? 1 : 0;
    }
  }
  if (class_names_.empty()) {
    fail(Code::Io, "{}: has no class folders ({}); put the images into one sub-folder per class",
         folder_,
         loose_images == 0 ? std::string("and no images")
                           : fmt::format("but {} images", loose_images));
  }
  class_first_.push_back(images());
  names_.shrink_to_fit();
  name_ends_.shrink_to_fit();
}

void ImageList::add_class(const std::string& name) {
  const std::string path = folder_ + "/" + name;
  class_first_.push_back(images());
  digest_ = digest_with(digest_, name);
  const std::vector<Entry> entries = entries_of(path);
  add_images("", entries);
  std::vector<std::string> folders;  // sub-folders of the class, at any depth
  std::vector<Inode> around;
  add_folders_below(path, "", entries, around, folders);
  std::sort(folders.begin(), folders.end());
  for (const std::string& below : folders) add_images(below + "/", entries_of(path + "/" + below));
  if (images() == class_first_.back()) {
    fail(Code::Io, "{}: the class folder has no images ({}); remove it, or add images", path,
         fmt::join(kEndings, ", "));
  }
  class_names_.push_back(name);
}

// Adds the images in the sub-folder `below` of the class, which is "" or ends in a slash.
void ImageList::add_images(const std::string& below, const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) {
    if (entry.folder || !is_image(entry.name)) continue;
    const std::string name = below + entry.name;
    names_ += name;
    name_ends_.push_back(names_.size());
    digest_ = digest_with(digest_, name);
  }
}

std::string_view ImageList::name(std::int64_t i) const {
  HETU_ASSERT(i >= 0 && i < images());
  const auto at = static_cast<std::size_t>(i);
  const std::size_t begin = at == 0 ? 0 : name_ends_[at - 1];
  return std::string_view(names_).substr(begin, name_ends_[at] - begin);
}

const std::string& ImageList::class_name(int label) const {
  return class_names_.at(static_cast<std::size_t>(label));
}

int ImageList::label(std::int64_t i) const {
  return static_cast<int>(std::upper_bound(class_first_.begin(), class_first_.end(), i) -
                          class_first_.begin()) -
         1;
}

std::string ImageList::path(std::int64_t i) const {
  return fmt::format("{}/{}/{}", folder_, class_name(label(i)), name(i));
}

std::int64_t ImageList::first_of(int label) const {
  return class_first_.at(static_cast<std::size_t>(label));
}

std::vector<std::uint8_t> read_whole_file(const std::string& path) {
  const InputFile file(path);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file.bytes()));
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(file.descriptor(), bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(Code::Io, "{}: {}", path, std::strerror(errno));
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace hetu
