// A text file of one sentence per line and a blank line between documents, of any size: read where
// a sentence is needed, with an index beside it. Read by bert_text.cpp and bert_text_check.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace hetu {

/// Lines with nothing but blanks end a document; documents without a sentence do not count. The
/// index, PATH.hetu-index, has 8 bytes per sentence and document. It is made when there is none, or
/// when the text's size or time is not the one that it was made of, or when its checksum is wrong:
/// once for all processes that open it, whole or not at all. Where it cannot be written it stays in
/// memory. Any number of threads may ask; every function throws Io where the text or its index has
/// been cut short.
class TextCorpus {
 public:
  /// `most_sentences`: only the first so many; 0: all. Throws Io for a file that cannot be read, or
  /// that is no text (a byte 0 in its first 64 KiB).
  explicit TextCorpus(const std::string& path, std::int64_t most_sentences = 0);
  ~TextCorpus();
  TextCorpus(const TextCorpus&) = delete;
  TextCorpus& operator=(const TextCorpus&) = delete;

  const std::string& path() const;
  std::int64_t bytes() const;
  std::int64_t sentences() const;
  std::int64_t documents() const;
  /// Number of the first sentence of a document, which may be documents(): then sentences().
  std::int64_t first_sentence(std::int64_t document) const;
  /// The document of a sentence.
  std::int64_t document_of(std::int64_t sentence) const;
  /// The document of a pair of neighbouring sentences, of which each document has one fewer than
  /// sentences.
  std::int64_t document_of_pair(std::int64_t pair) const;
  /// Its bytes, without blanks at the ends; of a longer line the first MiB.
  std::string sentence(std::int64_t number) const;
  /// Its line in the file, from 1. Counts lines: for messages.
  std::int64_t line_of(std::int64_t sentence) const;
  /// Throws Io if the text or its index is no longer what was opened.
  void check_unchanged() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
