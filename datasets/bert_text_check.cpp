#include <algorithm>
#include <map>

#include "base/error.h"
#include "datasets/bert_text.h"
#include "datasets/text_corpus.h"

namespace hetu {
namespace {

constexpr std::int64_t kListed = 5;      // bad sentences that are listed
constexpr std::int64_t kBetween = 4096;  // sentences between two calls of `progress`

}  // namespace

BertTextCheck check_bert_text(const BertTextOptions& options,
                              const std::function<void(std::int64_t, std::int64_t)>& progress) {
  BertTextCheck out;
  out.rows = bert_text_source(options)->rows();
  const TextCorpus corpus(options.path, options.corpus_lines);
  const WordPiece words(options.vocabulary, options.lower_case);
  out.bytes = corpus.bytes();
  out.sentences = corpus.sentences();
  out.documents = corpus.documents();
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < out.sentences; ++i) {
    ids.clear();
    const std::string sentence = corpus.sentence(i);
    try {
      words.encode(sentence, options.encoding, sentence.size(), ids);
    } catch (const Error& error) {
      if (++out.bad_sentences <= kListed)
        out.problems.push_back(
            fmt::format("{}:{}: {}", options.path, corpus.line_of(i), error.what()));
    }
    out.tokens += static_cast<std::int64_t>(ids.size());
    out.unknown += std::count(ids.begin(), ids.end(), words.unknown());
    if (progress && (i % kBetween == 0 || i + 1 == out.sentences)) progress(i + 1, out.sentences);
  }
  if (out.bad_sentences > kListed)
    out.problems.push_back(
        fmt::format("{}: and {} more", options.path, out.bad_sentences - kListed));
  return out;
}

std::vector<std::pair<std::string, std::int64_t>> count_words(const BertTextOptions& options) {
  const TextCorpus corpus(options.path, options.corpus_lines);
  const WordCutter cutter(options.lower_case);
  std::map<std::string, std::int64_t, std::less<>> counts;
  for (std::int64_t i = 0; i < corpus.sentences(); ++i) {
    try {
      cutter.each(corpus.sentence(i), options.encoding, [&](std::string_view word, int) {
        const auto found = counts.find(word);
        if (found == counts.end())
          counts.emplace(word, 1);
        else
          ++found->second;
        return true;
      });
    } catch (const Error& error) {
      fail(error.code(), "{}:{}: {}", options.path, corpus.line_of(i), error.what());
    }
  }
  return {counts.begin(), counts.end()};
}

}  // namespace hetu
