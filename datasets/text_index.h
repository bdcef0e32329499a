// Where sentences and documents of a text begin, as a file. Read by text_corpus.cpp.
//
// The file holds the byte of each sentence, then the number of each document's first sentence, each
// 8 bytes, after a head with the text's size and time and a checksum of all. It is read where it is
// needed: of the documents, every kStride-th stays in memory, so that a search reads one block.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/random_access_file.h"

namespace hetu {

/// Byte of each sentence; number of the first sentence of each document, and of all sentences. Any
/// number of threads may ask.
class TextIndex {
 public:
  /// Returns the index of a text, from the file beside it or made now; one process makes it, the
  /// others wait. A file that is damaged, or made of another state of the text, is made anew.
  static TextIndex of(const RandomAccessFile& text);

  std::int64_t sentences() const { return sentences_; }
  std::int64_t documents() const { return documents_; }
  /// The byte of a sentence, and of the next one or the text's end.
  std::pair<std::int64_t, std::int64_t> bytes_of(std::int64_t sentence) const;
  std::int64_t first_sentence(std::int64_t document) const;
  /// Returns the last of the first `documents` documents for which `fits(document, its first
  /// sentence)` holds. It holds for document 0 and, from some document on, no longer.
  std::int64_t last_document(
      std::int64_t documents,
      const std::function<bool(std::int64_t document, std::int64_t first)>& fits) const;
  /// Throws Io if the file beside the text is no longer what was opened.
  void check_unchanged() const;

 private:
  static constexpr std::int64_t kStride = 512;

  TextIndex() = default;
  static std::unique_ptr<TextIndex> from_file(const std::string& path, const FileState& text);
  static TextIndex made_of(const RandomAccessFile& text);
  bool write(const std::string& path, const FileState& text) const;
  void read(std::int64_t first, std::int64_t count, std::int64_t* out) const;
  void note_documents(std::int64_t first, const std::int64_t* numbers, std::int64_t count);

  std::int64_t sentences_ = 0, documents_ = 0, text_bytes_ = 0;
  std::vector<std::int64_t> every_stride_;  // first sentence of document k * kStride
  std::unique_ptr<RandomAccessFile> file_;  // or
  std::vector<std::int64_t> numbers_;       // offsets, then firsts
};

}  // namespace hetu
