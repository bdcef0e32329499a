#include "datasets/text_corpus.h"

#include <algorithm>
#include <cstring>

#include "datasets/mapped_file.h"
#include "datasets/text_index.h"
#include "graph/base/error.h"

namespace hetu {
namespace {

constexpr std::size_t kLongest = std::size_t{1} << 20;  // bytes of a sentence that are read
constexpr std::size_t kLooked = std::size_t{1} << 16;   // at, for bytes that no text has

}  // namespace

struct TextCorpus::Impl {
  Impl(const std::string& path, std::int64_t most)
      : text(checked(path)), index(TextIndex::of(text)) {
    sentences = most > 0 ? std::min(most, index.sentences()) : index.sentences();
    documents = sentences == index.sentences() ? index.documents() : document_of(sentences - 1) + 1;
  }

  // Said before an index is made of it.
  static const std::string& checked(const std::string& path) {
    const MappedFile file(path);
    const std::string_view head = file.bytes().substr(0, kLooked);
    if (const std::size_t at = head.find('\0'); at != std::string_view::npos) {
      fail(Code::Io,
           "{}: byte {} is 0, so this is no text; expected a file of one sentence per line "
           "and a blank line between documents",
           path, at + 1);
    }
    return path;
  }

  std::int64_t document_of(std::int64_t sentence) const {
    std::int64_t low = 0, high = index.documents();
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (index.first_sentence(middle) <= sentence ? low : high) = middle;
    }
    return low;
  }

  MappedFile text;
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

std::string_view TextCorpus::sentence(std::int64_t number) const {
  const std::string_view all = impl_->text.bytes();
  const auto begin = static_cast<std::size_t>(impl_->index.begin(number));
  if (begin >= all.size()) {
    fail(Code::Io, "{}.hetu-index: sentence {} is said to begin at byte {} of {}; remove this file",
         path(), number, begin, all.size());
  }
  std::string_view text = all.substr(begin, kLongest);
  text = text.substr(0, text.find('\n'));
  const std::size_t last = text.find_last_not_of(" \t\r\f\v");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

std::int64_t TextCorpus::line_of(std::int64_t sentence) const {
  const auto begin = impl_->text.bytes().begin();
  return 1 + std::count(begin, begin + impl_->index.begin(sentence), '\n');
}

void TextCorpus::check_unchanged() const {
  const FileState then = impl_->text.state(), now = impl_->text.state_now();
  if (then == now) return;
  fail(Code::Io, "{}: has changed since it was opened: {} bytes then, {} now; start again", path(),
       then.bytes, now.bytes);
}

}  // namespace hetu
