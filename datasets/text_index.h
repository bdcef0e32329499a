// The byte offsets of a text's sentences and the sentence numbers of its documents, stored in a
// file. Used by text_corpus.cpp.
//
// The file holds the offset of each sentence, then the number of each document's first sentence, 8
// bytes each. They follow a header with the text's size and modification time and a checksum of
// everything. The file is read on demand. Every kStride-th document stays in memory, so that a
// search reads a single block.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/random_access_file.h"

namespace hetu {

/// The offset of each sentence, the first sentence of each document, and the number of sentences.
/// Any number of threads may call.
class TextIndex {
 public:
  /// Returns the index of a text, read from the file beside it or built. One process builds it
  /// while the others wait. A file that is damaged, or belongs to another state of the text, is
  /// rebuilt.
  static TextIndex of(const RandomAccessFile& text);

  std::int64_t sentences() const { return sentences_; }
  std::int64_t documents() const { return documents_; }
  /// Returns the offset of a sentence, and the offset of the next sentence or the end of the text.
  std::pair<std::int64_t, std::int64_t> bytes_of(std::int64_t sentence) const;
  std::int64_t first_sentence(std::int64_t document) const;
  /// Returns the last of the first `documents` documents for which `fits(document, its first
  /// sentence)` is true. `fits` must be true for document 0 and monotone: once false, it stays
  /// false.
  std::int64_t last_document(
      std::int64_t documents,
      const std::function<bool(std::int64_t document, std::int64_t first)>& fits) const;
  /// Throws Io if the index file has changed since it was opened.
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
  std::unique_ptr<RandomAccessFile> file_;  // the index file, or null if the index is in memory
  std::vector<std::int64_t> numbers_;       // without a file: offsets, then first sentences
};

}  // namespace hetu
