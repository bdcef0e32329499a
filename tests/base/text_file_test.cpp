// Tests files that a user names. They are read only if they are regular files, and they are
// replaced as a whole, through links and devices. Also tests the bounds on what a parser reads.
#include "base/text_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <future>

#include "tests/temporary_folder.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

TEST(InputFile, RefusesWhatIsNoRegularFileWithoutWaiting) {
  const TemporaryFolder folder;
  const std::string fifo = folder / "fifo", text = folder / "text";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  write_text(text, "1234");
  fs::create_symlink("text", folder / "link");
  const InputFile file(folder / "link");
  EXPECT_EQ(file.bytes(), 4);
  EXPECT_EQ(::fcntl(file.descriptor(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_THAT([&] { InputFile one(fifo); }, ThrowsMessage<Error>(HasSubstr("fifo: is a FIFO")));
  EXPECT_THAT([&] { read_text(fifo); }, ThrowsMessage<Error>(HasSubstr("give a regular file")));
  EXPECT_THAT([&] { check_regular(folder.path()); },
              ThrowsMessage<Error>(HasSubstr("is a directory; give a regular file")));
  EXPECT_THAT([&] { read_text("/dev/zero"); }, ThrowsMessage<Error>(HasSubstr("is a device")));
  EXPECT_THAT([&] { read_text(folder / "none"); },
              ThrowsMessage<Error>(HasSubstr("none: cannot be opened: No such file")));
  EXPECT_THAT([&] { read_text(text, 3); }, ThrowsMessage<Error>(HasSubstr("larger than 3 bytes")));
}

TEST(ReadText, ReadsAnOpenDescriptorByName) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "through", 7), 7);
  ::close(ends[1]);
  EXPECT_EQ(read_text(fmt::format("/dev/fd/{}", ends[0])), "through");
  ::close(ends[0]);
}

TEST(WriteText, ReplacesTheFileThatALinkLeadsTo) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "other");
  write_text(folder / "other/real", "old");
  fs::permissions(folder / "other/real", fs::perms(0640));
  fs::create_symlink("other", folder / "to-folder");
  fs::create_symlink("to-folder/real", folder / "link");
  write_text(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_text(folder / "other/real"), "new");
  EXPECT_EQ(fs::status(folder / "other/real").permissions(), fs::perms(0640));
  fs::create_symlink("other/made", folder / "dangling");
  write_text(folder / "dangling", "made");
  EXPECT_TRUE(fs::is_symlink(folder / "dangling"));
  EXPECT_EQ(read_text(folder / "other/made"), "made");
  fs::create_symlink("ring", folder / "ring");
  EXPECT_THAT([&] { write_text(folder / "ring", ""); },
              ThrowsMessage<Error>(HasSubstr("too many levels of symbolic links")));
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder / "other"))
    files += entry.exists() ? 1 : 0;
  EXPECT_EQ(files, 2U) << "a file beside is left";
}

TEST(WriteText, WritesIntoWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  auto read = std::async(std::launch::async, [&fifo] {
    const int file = ::open(fifo.c_str(), O_RDONLY);
    std::string text(100, '\0');
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(file, text.data(), 100))));
    ::close(file);
    return text;
  });
  write_text(fifo, "into a FIFO");
  EXPECT_EQ(read.get(), "into a FIFO");
  EXPECT_TRUE(fs::is_fifo(fifo));
  fs::create_symlink("/dev/null", folder / "nothing");
  write_text(folder / "nothing", "text");
  EXPECT_TRUE(fs::is_symlink(folder / "nothing"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THAT([&] { write_text(folder.path(), ""); },
              ThrowsMessage<Error>(HasSubstr("is a directory; name a file")));
}

// A shell does this with `hetu … -o /dev/stdout > FILE`. The text is written after the contents
// that are already there.
TEST(WriteText, WritesIntoAnOpenDescriptorByName) {
  const TemporaryFolder folder;
  const int file = ::open((folder / "out").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(::write(file, "first\n", 6), 6);
  struct stat before {
  }, after{};
  ASSERT_EQ(::fstat(file, &before), 0);
  write_text(fmt::format("/proc/self/fd/{}", file), "second\n");
  ASSERT_EQ(::stat((folder / "out").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(read_text(folder / "out"), "first\nsecond\n");
  ::close(file);
}

TEST(ReplaceFile, LeavesTheOldFileAfterAnError) {
  const TemporaryFolder folder;
  write_text(folder / "file", "old");
  EXPECT_THROW(replace_file(folder / "file",
                            [](const std::string& temporary) {
                              write_text(temporary, "half");
                              fail(Code::Io, "disk full");
                            }),
               Error);
  EXPECT_EQ(read_text(folder / "file"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(ReplaceFile, NamesTheFileThatWasAskedFor) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { write_text(folder / "missing/file", "x"); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("missing/file: cannot be written"), Not(HasSubstr(".tmp")))));
}

TEST(Bounded, JsonIsAtMostSixtyFourDeep) {
  const auto nested = [](int depth) {
    return std::string(depth, '[') + "\"[[[\\\"[[[\"" + std::string(depth, ']');
  };
  EXPECT_EQ(bounded_json(nested(64), "f"), nested(64));
  EXPECT_THAT([&] { bounded_json(nested(65), "f"); },
              ThrowsMessage<Error>("f: brackets nest deeper than 64"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_THROW(bounded_json(objects, "f"), Error);
  try {
    bounded_json(objects, "f", Code::Io);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Io);
  }
}

TEST(Bounded, YamlIsAtMostSixtyFourDeep) {
  const auto deep = [](const std::string& text) {
    EXPECT_THAT([&] { bounded_yaml(text, "f"); },
                ThrowsMessage<Error>(HasSubstr("nest deeper than 64")));
  };
  deep("nodes: " + std::string(100000, '['));
  deep("a: don\"t " + std::string(100000, '{'));
  std::string dashes, keys;
  for (int i = 0; i < 1000; ++i) {
    dashes += "- ";
    keys += std::string(i, ' ') + "k:\n";
  }
  deep(dashes);
  deep(keys);
  const std::string fine = "nodes:\n  - host: a\n    workers: 2\n# [ a remark\n---\n";
  EXPECT_EQ(bounded_yaml(fine, "f"), fine);
  EXPECT_THAT([&] { bounded_yaml(std::string((16 << 20) + 1, ' '), "f"); },
              ThrowsMessage<Error>(HasSubstr("at most 16777216 are allowed")));
}

}  // namespace
}  // namespace hetu
