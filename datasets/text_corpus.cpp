#include "datasets/text_corpus.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "datasets/random_access_file.h"
#include "datasets/text_index.h"

namespace hetu {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 20;  // maximum bytes per sentence
constexpr std::int64_t kLooked = std::int64_t{1} << 16;   // bytes at the start searched for zeros

// Removes an incomplete UTF-8 character at the end of a text that was cut at any byte.
void drop_cut_character(std::string& text) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(3, text.size()); ++bytes) {
    const auto byte = static_cast<unsigned char>(text[text.size() - bytes]);
    if ((byte & 0xC0) == 0x80) continue;  // a later byte of a character
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    if (length > bytes) text.resize(text.size() - bytes);
    return;
  }
}

}  // namespace

struct TextCorpus::Impl {
  Impl(const std::string& path, std::int64_t most)
      : text(checked(path)), index(TextIndex::of(text)) {
    sentences = most > 0 ? std::min(most, index.sentences()) : index.sentences();
    documents = sentences == index.sentences() ? index.documents() : document_of(sentences - 1) + 1;
  }

  // Checks that the file is a text, before an index is built from it.
  static const std::string& checked(const std::string& path) {
    const RandomAccessFile file(path);
    std::string head(static_cast<std::size_t>(std::min(kLooked, file.state().bytes)), ' ');
    file.read(0, head.data(), head.size());
    if (const std::size_t at = head.find('\0'); at != std::string::npos) {
      fail(Code::Io,
           "{}: byte {} is 0, so this is not a text file; expected one sentence per line and a "
           "blank line between documents",
           path, at + 1);
    }
    return path;
  }

  std::int64_t document_of(std::int64_t sentence) const {
    return index.last_document(
        index.documents(),
        [sentence](std::int64_t /*document*/, std::int64_t first) { return first <= sentence; });
  }

  RandomAccessFile text;
  TextIndex index;
  std::int64_t sentences = 0, documents = 0;
};

TextCorpus::TextCorpus(const std::string& path, std::int64_t most_sentences)
    : impl_(std::make_unique<Impl>(path, most_sentences)) {}
TextCorpus::~TextCorpus() = default;

const std::string& TextCorpus::path() const { return impl_->text.path(); }
std::int64_t TextCorpus::bytes() const { return impl_->text.state().bytes; }
std::int64_t TextCorpus::sentences() const { return impl_->sentences; }
std::int64_t TextCorpus::documents() const { return impl_->documents; }

std::int64_t TextCorpus::first_sentence(std::int64_t document) const {
  return std::min(impl_->index.first_sentence(document), impl_->sentences);
}

std::int64_t TextCorpus::document_of(std::int64_t sentence) const {
  return impl_->document_of(sentence);
}

std::int64_t TextCorpus::document_of_pair(std::int64_t pair) const {
  return impl_->index.last_document(
      impl_->documents,
      [pair](std::int64_t document, std::int64_t first) { return first - document <= pair; });
}

std::string TextCorpus::sentence(std::int64_t number) const {
  const auto [begin, end] = impl_->index.bytes_of(number);
  if (begin < 0 || begin >= end || end > bytes()) {
    fail(Code::Io,
         "{}.hetu-index: the index is damaged (sentence {} in bytes {} to {} of {}); remove this "
         "file",
         path(), number, begin, end, bytes());
  }
  std::string text(static_cast<std::size_t>(std::min(kLongest, end - begin)), ' ');
  impl_->text.read(begin, text.data(), text.size());
  const std::size_t line_end = text.find('\n');
  if (line_end != std::string::npos)
    text.resize(line_end);
  else if (end - begin > kLongest)
    drop_cut_character(text);
  const std::size_t last = text.find_last_not_of(" \t\r\f\v");
  text.resize(last == std::string::npos ? 0 : last + 1);
  return text;
}

std::int64_t TextCorpus::line_of(std::int64_t sentence) const {
  std::int64_t line = 1;
  impl_->text.read_through(0, impl_->index.bytes_of(sentence).first,
                           [&line](std::string_view piece, std::int64_t) {
                             line += std::count(piece.begin(), piece.end(), '\n');
                           });
  return line;
}

void TextCorpus::check_unchanged() const {
  impl_->text.check_unchanged();
  impl_->index.check_unchanged();
}

}  // namespace hetu
