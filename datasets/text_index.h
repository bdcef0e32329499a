// Where sentences and documents of a text begin, as a file. Read by text_corpus.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets/mapped_file.h"

namespace hetu {

/// Byte of each sentence; number of the first sentence of each document, and of all sentences.
class TextIndex {
 public:
  /// That of a text, from beside it or made now; one process makes it, the others wait.
  static TextIndex of(const MappedFile& text);

  std::int64_t sentences() const { return sentences_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t begin(std::int64_t sentence) const { return offsets_[sentence]; }
  std::int64_t first_sentence(std::int64_t document) const { return firsts_[document]; }

 private:
  TextIndex() = default;
  static std::unique_ptr<TextIndex> from_file(const std::string& path, const FileState& text);
  static TextIndex made_of(const MappedFile& text);
  bool write(const std::string& path, const FileState& text) const;
  void point_into(const std::int64_t* offsets);

  std::int64_t sentences_ = 0, documents_ = 0;
  const std::int64_t* offsets_ = nullptr;
  const std::int64_t* firsts_ = nullptr;
  std::unique_ptr<MappedFile> file_;   // or
  std::vector<std::int64_t> numbers_;  // offsets, then firsts
};

}  // namespace hetu
