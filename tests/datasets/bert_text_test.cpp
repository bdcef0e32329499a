// Tests plain text as rows of BERT: which sentences form a row, truncation, masks, the index, and
// bad files. tests/python/hetu/bert_text_test.py compares the rows with another implementation of
// the same rules.
#include "datasets/bert_text.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "base/error.h"
#include "datasets/order.h"
#include "datasets/text_corpus.h"
#include "tests/temporary_folder.h"

namespace hetu {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class BertText : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  std::filesystem::path at(const std::string& name) const { return folder_ / name; }

  /// Writes a vocabulary with the special tokens, then the words w0, w1, ….
  std::string vocabulary(int words) const {
    std::string text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    for (int i = 0; i < words; ++i) text += fmt::format("w{}\n", i);
    return write("vocab.txt", text);
  }

  /// Writes `documents` documents of 2 to 6 sentences with 1 to 9 words. Every sentence begins with
  /// its own number.
  BertTextOptions options(int documents, std::int64_t length = 16) const {
    std::string text;
    int sentence = 0;
    for (int d = 0; d < documents; ++d) {
      for (int s = 0; s < 2 + d % 5; ++s, ++sentence) {
        text += fmt::format("w{}", sentence);
        for (int w = 0; w < sentence % 9; ++w) text += fmt::format(" w{}", w);
        text += s % 2 == 0 ? "\n" : " \r\n";
      }
      text += d % 3 == 0 ? "\n\n \n" : "\n";
    }
    BertTextOptions out;
    out.path = write("corpus.txt", text);
    out.vocabulary = vocabulary(sentence);
    out.sequence_length = length;
    return out;
  }

 private:
  const TemporaryFolder folder_;
};

Batch read(RowSource& source, std::int64_t epoch, std::int64_t first, std::int64_t rows) {
  Batch batch;
  batch.epoch = epoch;
  batch.first = first;
  resize_batch(batch, source.fields(), rows);
  source.read(batch);
  return batch;
}

TEST(DrawnPlace, IsAPermutationForEveryCount) {
  std::set<std::vector<std::int64_t>> orders;
  for (std::int64_t n = 1; n <= 300; ++n) {
    for (const std::uint64_t key : {1ULL, 77ULL}) {
      std::vector<std::int64_t> order;
      for (std::int64_t i = 0; i < n; ++i) order.push_back(drawn_place(i, n, key));
      orders.insert(order);
      std::sort(order.begin(), order.end());
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
    }
  }
  // Different keys give different orders, except for the smallest n.
  EXPECT_GT(orders.size(), 580U);
}

TEST(DrawnPlace, SpreadsNeighboursEvenly) {
  constexpr std::int64_t kRows = 100000;
  double distance = 0;
  for (std::int64_t i = 1; i < kRows; ++i)
    distance +=
        std::abs(static_cast<double>(drawn_place(i, kRows, 5) - drawn_place(i - 1, kRows, 5)));
  // the mean distance of two uniform positions
  EXPECT_NEAR(distance / kRows, kRows / 3.0, kRows * 0.005);
}

TEST(MostMasked, LeavesOutOneRowInTenToTheTwelve) {
  EXPECT_EQ(most_masked(5), 2);    // all tokens of the row
  EXPECT_EQ(most_masked(16), 13);  // 0.15^13 = 2e-11 exceeds the bound
  EXPECT_EQ(most_masked(128), 51);
  EXPECT_EQ(most_masked(512), 138);
}

TEST_F(BertText, HasEachPairOfNeighboursButTheLastOnceInAnEpoch) {
  const BertTextOptions with = options(40);
  const auto source = bert_text_source(with);
  const TextCorpus corpus(with.path);
  ASSERT_EQ(corpus.documents(), 40);
  ASSERT_EQ(source->rows(), corpus.sentences() - corpus.documents() - 1);
  std::map<std::int32_t, int> firsts;
  int random = 0;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const Batch batch = read(*source, epoch, 0, source->rows());
    for (std::int64_t row = 0; row < source->rows(); ++row) {
      const auto* labels = batch.at("masked_lm_labels").as<std::int32_t>() + row * 16;
      const auto* ids = batch.at("input_ids").as<std::int32_t>() + row * 16;
      const auto* segments = batch.at("segment_ids").as<std::int32_t>() + row * 16;
      const auto number = [&](std::int64_t place) {
        return (labels[place] >= 0 ? labels[place] : ids[place]) - 5;
      };
      const std::int32_t first = number(1);
      std::int64_t second = 2;
      while (segments[second] == 0) ++second;
      ++firsts[first];
      const bool is_random = batch.at("next_sentence_labels").as<std::int32_t>()[row] == 1;
      random += is_random ? 1 : 0;
      if (is_random)
        EXPECT_NE(corpus.document_of(number(second)), corpus.document_of(first));
      else
        EXPECT_EQ(number(second), first + 1);
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(firsts.size()), source->rows());
  for (const auto& [first, times] : firsts) EXPECT_EQ(times, 20) << "sentence " << first;
  EXPECT_NEAR(random / (20.0 * static_cast<double>(source->rows())), 0.5, 0.05);
}

TEST_F(BertText, MasksAreInAllColumnsTheSame) {
  const auto source = bert_text_source(options(40));
  const Batch batch = read(*source, 3, 0, source->rows());
  const std::int64_t most = most_masked(16);
  std::int64_t masked = 0, as_mask = 0, kept = 0;
  // masked tokens: a share of 0.15 of each row, or one token if none was chosen
  double expected = 0;
  for (std::int64_t row = 0; row < source->rows(); ++row) {
    const auto column = [&](const char* name, std::int64_t width) {
      return batch.at(name).as<std::int32_t>() + row * width;
    };
    const auto *ids = column("input_ids", 16), *labels = column("masked_lm_labels", 16),
               *mask = column("input_mask", 16), *places = column("masked_lm_positions", most),
               *found = column("masked_lm_ids", most);
    EXPECT_EQ(ids[0], 2);
    std::int64_t k = 0;
    const std::int64_t tokens = std::count(mask, mask + 16, 1) - 3;
    expected += 0.15 * static_cast<double>(tokens) + std::pow(0.85, tokens);
    for (std::int64_t at = 0; at < 16; ++at) {
      if (mask[at] == 0) {
        EXPECT_EQ(ids[at], 0);
      }
      if (labels[at] < 0) continue;
      EXPECT_EQ(mask[at], 1);
      EXPECT_EQ(places[k], at);
      EXPECT_EQ(found[k++], labels[at]);
      ++masked;
      as_mask += ids[at] == 4 ? 1 : 0;
      kept += ids[at] == labels[at] ? 1 : 0;
    }
    for (; k < most; ++k) {
      EXPECT_EQ(places[k], 0);
      EXPECT_EQ(found[k], -1);
    }
  }
  EXPECT_NEAR(static_cast<double>(masked) / expected, 1, 0.15);
  EXPECT_NEAR(static_cast<double>(as_mask) / static_cast<double>(masked), 0.8, 0.1);
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(masked), 0.1, 0.08);
}

// A batch without a masked token has no loss and would end the training.
TEST_F(BertText, EachRowHasAMaskedToken) {
  BertTextOptions with = options(2);
  with.path = write("short.txt", "w1\n\nw2\nw3\nw4\n\nw5\nw6 w7\nw8\n");
  const auto source = bert_text_source(with);
  std::map<std::int32_t, int> places;
  int as_mask = 0, rows = 0;
  for (std::int64_t epoch = 0; epoch < 400; ++epoch) {
    const Batch batch = read(*source, epoch, 0, source->rows());
    for (std::int64_t row = 0; row < source->rows(); ++row, ++rows) {
      const auto* labels = batch.at("masked_lm_labels").as<std::int32_t>() + row * 16;
      const auto* found = std::find_if(labels, labels + 16, [](auto label) { return label >= 0; });
      ASSERT_NE(found, labels + 16) << "epoch " << epoch << ", row " << row;
      const auto place = static_cast<std::int32_t>(found - labels);
      ++places[place];
      as_mask += batch.at("input_ids").as<std::int32_t>()[row * 16 + place] == 4 ? 1 : 0;
      EXPECT_EQ(batch.at("masked_lm_positions").as<std::int32_t>()[row * most_masked(16)], place);
    }
  }
  EXPECT_GT(places[1], rows / 5);
  EXPECT_GT(places[3], rows / 5);  // the position after the separator
  EXPECT_NEAR(as_mask / static_cast<double>(rows), 0.8, 0.05);
}

TEST_F(BertText, IsTheSameByAnyThreadsAndBatches) {
  BertTextOptions with = options(40);
  const auto one = bert_text_source(with);
  with.threads = 5;
  const auto many = bert_text_source(with);
  const std::int64_t rows = one->rows();
  const Batch whole = read(*many, 2, 0, rows);
  for (std::int64_t first = 0; first < rows; first += 7) {
    const std::int64_t count = std::min<std::int64_t>(7, rows - first);
    const Batch part = read(*one, 2, first, count);
    for (const FieldData& field : part.fields) {
      const std::vector<std::byte>& all = whole.at(field.name).bytes;
      const std::size_t width = all.size() / static_cast<std::size_t>(rows);
      EXPECT_TRUE(std::equal(
          field.bytes.begin(), field.bytes.end(),
          all.begin() + static_cast<std::ptrdiff_t>(width * static_cast<std::size_t>(first))))
          << field.name << " from row " << first;
    }
  }
  with.seed = 1;
  EXPECT_NE(read(*bert_text_source(with), 2, 0, rows).fields[0].bytes, whole.fields[0].bytes);
}

TEST_F(BertText, TheIndexIsMadeOnceAndAgainWhenTheTextChanges) {
  const std::string path = write("own.txt", "a\nb\n\n  c  \r\nd\n\n\n\ne");
  const auto sentences = [&] {
    const TextCorpus corpus(path);
    std::vector<std::string> out;
    for (std::int64_t i = 0; i < corpus.sentences(); ++i) out.emplace_back(corpus.sentence(i));
    return std::pair(out, corpus.documents());
  };
  EXPECT_THAT(sentences().first, ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_EQ(sentences().second, 3);
  const std::filesystem::path index = at("own.txt.hetu-index");
  const auto made = std::filesystem::last_write_time(index);
  EXPECT_EQ(TextCorpus(path).line_of(2), 4);
  EXPECT_EQ(TextCorpus(path, 3).documents(), 2);
  EXPECT_EQ(TextCorpus(path, 3).first_sentence(2), 3);
  EXPECT_EQ(std::filesystem::last_write_time(index), made);

  const TextCorpus before(path);
  write("own.txt", "x\ny\n");
  EXPECT_THAT([&] { before.check_unchanged(); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("has changed since it was opened"), HasSubstr("4 now"))));
  EXPECT_THAT(sentences().first, ElementsAre("x", "y"));
  for (const std::string& damaged : {std::string("nonsense"), std::string(48, '\1')}) {
    write("own.txt.hetu-index", damaged);
    EXPECT_THAT(sentences().first, ElementsAre("x", "y"));
  }
  EXPECT_EQ(sentences().second, 1);
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(index.parent_path()))
    left.push_back(entry.path().filename());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("own.txt", "own.txt.hetu-index"));
}

// A line of more than 1 MiB is cut before the character that contains the limit, whatever its
// length in bytes.
TEST_F(BertText, ALongLineIsCutBetweenCharacters) {
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  for (const std::string& letter : {std::string("a"), std::string("\u00e9"), std::string("\u4e2d"),
                                    std::string("\U0001f600")}) {
    for (std::size_t before = 0; before < letter.size(); ++before) {
      std::string line(before, 'x');
      while (line.size() <= kLongest + 8) line += letter;
      const TextCorpus corpus(write("long.txt", line + "\nnext\n"));
      const std::size_t whole = before + (kLongest - before) / letter.size() * letter.size();
      EXPECT_EQ(corpus.sentence(0), line.substr(0, whole)) << letter << " after " << before;
      EXPECT_EQ(corpus.sentence(1), "next");
    }
    std::string line;
    while (line.size() + letter.size() <= kLongest) line += letter;
    EXPECT_EQ(TextCorpus(write("fits.txt", line + "\nnext\n")).sentence(0), line);
  }
}

// Wrong offsets in an index that looks valid would train on fragments of sentences.
TEST_F(BertText, AnIndexOfWrongNumbersIsMadeAnew) {
  const std::string path = write("own.txt", "first one\nsecond\n\nthird one\nfourth\n");
  const auto first_of = [&] { return TextCorpus(path).sentence(2); };
  EXPECT_EQ(first_of(), "third one");
  std::ifstream file(at("own.txt.hetu-index"), std::ios::binary);
  const std::string right((std::istreambuf_iterator<char>(file)), {});
  file.close();
  for (std::size_t byte = 0; byte < right.size(); ++byte) {
    std::string damaged = right;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 1);
    write("own.txt.hetu-index", damaged);
    const TextCorpus corpus(path);
    ASSERT_EQ(corpus.sentences(), 4) << byte;
    ASSERT_EQ(corpus.documents(), 2) << byte;
    ASSERT_EQ(corpus.sentence(2), "third one") << byte;
    ASSERT_EQ(corpus.document_of(2), 1) << byte;
  }
  std::ifstream again(at("own.txt.hetu-index"), std::ios::binary);
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(again)), {}), right);
}

// A file that is truncated while it is open must give an error. If it were mapped, the process
// would end by a signal.
TEST_F(BertText, FilesThatAreCutShortWhileOpenAreErrors) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += fmt::format("sentence {}\n{}", i, i % 4 == 3 ? "\n" : "");
  for (const char* cut : {"cut.txt", "cut.txt.hetu-index"}) {
    const TextCorpus corpus(write("cut.txt", text));
    ASSERT_EQ(corpus.sentence(19999), "sentence 19999");
    std::filesystem::resize_file(at(cut), 5000);
    const auto changed = ThrowsMessage<Error>(
        AllOf(HasSubstr(cut), HasSubstr("has changed since it was opened"), HasSubstr("5000 now")));
    EXPECT_THAT([&] { corpus.sentence(19999); }, changed);
    EXPECT_THAT([&] { corpus.check_unchanged(); }, changed);
    EXPECT_THAT([&] { corpus.line_of(19999); }, changed);
    if (cut == std::string("cut.txt.hetu-index")) {
      EXPECT_THAT([&] { corpus.document_of(19999); }, changed);
    }
  }
}

// Documents are found by blocks of the index, and the first number of each block is in memory.
TEST_F(BertText, DocumentsAreFoundAmongAnyNumber) {
  for (const int documents : {1, 2, 511, 512, 513, 1024, 1500}) {
    std::string text;
    std::vector<std::int64_t> document_of, document_of_pair;
    for (int d = 0; d < documents; ++d) {
      for (int s = 0; s < 1 + d % 4; ++s) {
        text += "x\n";
        document_of.push_back(d);
        if (s > 0) document_of_pair.push_back(d);
      }
      text += "\n";
    }
    const std::string path = write("many.txt", text);
    for (const std::size_t most : {document_of.size(), document_of.size() / 2 + 1}) {
      const TextCorpus corpus(path, static_cast<std::int64_t>(most));
      ASSERT_EQ(corpus.documents(), document_of[most - 1] + 1) << documents;
      for (std::size_t i = 0; i < most; ++i)
        ASSERT_EQ(corpus.document_of(static_cast<std::int64_t>(i)), document_of[i]) << documents;
      const std::size_t pairs = most - static_cast<std::size_t>(corpus.documents());
      for (std::size_t i = 0; i < pairs; ++i)
        ASSERT_EQ(corpus.document_of_pair(static_cast<std::int64_t>(i)), document_of_pair[i])
            << documents;
    }
  }
}

TEST_F(BertText, ManyThatOpenItAtOnceHaveOneIndex) {
  const BertTextOptions with = options(300);
  std::vector<std::thread> threads;
  std::atomic<std::int64_t> rows = 0;
  for (int t = 0; t < 8; ++t) threads.emplace_back([&] { rows += bert_text_source(with)->rows(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rows, 8 * bert_text_source(with)->rows());
}

TEST_F(BertText, LinesOfAnyKindAreFoundInPieces) {
  // longer than the chunks in which an index is built, with blank lines
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; text.size() < (std::size_t{5} << 19); ++i) {
    const auto words = static_cast<std::size_t>(i % 97 == 0 ? 40000 : i % 13);
    text += std::string(static_cast<std::size_t>(i % 3), ' ');
    if (words > 0) expected.emplace_back(words, static_cast<char>('a' + i % 26));
    text += std::string(words, static_cast<char>('a' + i % 26)) + "\n";
  }
  const TextCorpus corpus(write("pieces.txt", text));
  ASSERT_EQ(corpus.sentences(), static_cast<std::int64_t>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(corpus.sentence(static_cast<std::int64_t>(i)), expected[i]) << i;
}

TEST_F(BertText, RefusesWhatIsNoTextForIt) {
  const BertTextOptions good = options(5);
  const auto expect = [&](BertTextOptions with, const char* message) {
    EXPECT_THAT([&] { bert_text_source(with); }, ThrowsMessage<Error>(HasSubstr(message)));
  };
  const auto text = [&](const std::string& content) {
    BertTextOptions with = good;
    with.path = write("bad.txt", content);
    return with;
  };
  expect(text(""),
         "bad.txt: found 0 sentences in 0 documents, but at least 2 documents are needed");
  expect(text("w1\nw2\nw3\n"), "3 sentences in 1 document, but at least 2");
  expect(text("w1\n\nw2\n\nw3\n"), "3 sentences in 3 documents give no row");
  expect(text(std::string("w1\nw2\0\n\nw3", 10)),
         "bad.txt: byte 6 is 0, so this is not a text file");
  BertTextOptions with = good;
  with.path = at("none.txt").string();
  expect(with, "none.txt: cannot be opened: No such file");
  with = good;
  with.path = at(".").string();
  expect(with, "is a directory; give a regular file");
  with = good;
  with.vocabulary = write("bad_vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nw1\n");
  expect(with, "bad_vocab.txt: none of the 5 tokens is [MASK]; expected BERT's vocab.txt");
  with.vocabulary = write("bad_vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nw1\nw1\n");
  expect(with, "bad_vocab.txt:7: token 'w1' is a duplicate of line 6");
  with.vocabulary = at("none.txt").string();
  expect(with, "none.txt: cannot be opened: No such file");
  with = good;
  with.sequence_length = 4;
  expect(with, "rows of 4 tokens are too short");
  EXPECT_THROW(text_encoding("utf8"), Error);
}

// Some editors write a byte order mark at the start of a file. It must not become part of the first
// token.
TEST_F(BertText, AVocabularyMayBeginWithAByteOrderMark) {
  const std::string tokens = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n";
  const WordPiece words(write("marked.txt", "\xef\xbb\xbf" + tokens), true);
  EXPECT_EQ(words.pad(), 0);
  EXPECT_EQ(words.size(), 6);
}

TEST_F(BertText, NamesTheLineThatIsNotUtf8) {
  BertTextOptions with = options(5);
  with.path = write("latin.txt", "w1\nw2 \xe9t\xe9\nw3\n\nw4\nw5\n");
  const auto source = bert_text_source(with);
  EXPECT_THAT(
      [&] {
        for (int e = 0; e < 9; ++e) read(*source, e, 0, source->rows());
      },
      ThrowsMessage<Error>(HasSubstr("latin.txt:2: byte 4, 0xe9, is not UTF-8")));
  with.encoding = TextEncoding::Latin1;
  EXPECT_EQ(read(*bert_text_source(with), 0, 0, 2).rows, 2);
}

}  // namespace
}  // namespace hetu
