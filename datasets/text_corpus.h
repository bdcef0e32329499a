// A text file of any size with one sentence per line and a blank line between documents. Sentences
// are read on demand, located by an index file beside the text. Used by bert_text.cpp and
// bert_text_check.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace hetu {

/// The sentences and documents of a text. Lines of blanks only end a document. Documents without a
/// sentence don't count.
///
/// The index, PATH.hetu-index, holds 8 bytes per sentence and per document. It is built if it is
/// missing, if its checksum is wrong, or if the text's size or modification time differs from the
/// one stored in it. One process builds it for all that open the text, and it is replaced
/// atomically. If it cannot be written, each process keeps its own index in memory. Any number of
/// threads may call. Every function throws Io if the text or its index has been truncated.
class TextCorpus {
 public:
  /// Opens a text. `most_sentences` limits the text to that many sentences from its start; 0: all.
  /// Throws Io for a file that cannot be read or is not a text (it has a zero byte within the first
  /// 64 KiB).
  explicit TextCorpus(const std::string& path, std::int64_t most_sentences = 0);
  ~TextCorpus();
  TextCorpus(const TextCorpus&) = delete;
  TextCorpus& operator=(const TextCorpus&) = delete;

  const std::string& path() const;
  std::int64_t bytes() const;
  std::int64_t sentences() const;
  std::int64_t documents() const;
  /// Returns the first sentence of a document. For document documents(), returns sentences().
  std::int64_t first_sentence(std::int64_t document) const;
  /// Returns the document of a sentence.
  std::int64_t document_of(std::int64_t sentence) const;
  /// Returns the document of a pair of neighbouring sentences. Pairs are numbered through the text;
  /// a document has one pair fewer than sentences.
  std::int64_t document_of_pair(std::int64_t pair) const;
  /// Returns a sentence's bytes, without blanks at the ends. A line of more than 1 MiB is cut
  /// there, before a UTF-8 character that doesn't fit.
  std::string sentence(std::int64_t number) const;
  /// Returns a sentence's line number in the file, from 1. Slow, because it counts lines: for error
  /// messages only.
  std::int64_t line_of(std::int64_t sentence) const;
  /// Throws Io if the text or its index has changed since it was opened.
  void check_unchanged() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
