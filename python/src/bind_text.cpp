// WordPiece, and BERT rows from plain text, for Python.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "datasets/bert_text.h"
#include "datasets/loader.h"
#include "datasets/text_corpus.h"
#include "datasets/word_piece.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

template <class T>
void take(const nb::dict& how, const char* name, T& to) {
  if (how.contains(name)) to = nb::cast<T>(how[name]);
}

BertTextOptions options_of(const nb::dict& how) {
  BertTextOptions out;
  std::string encoding = "utf-8";
  take(how, "path", out.path);
  take(how, "vocabulary", out.vocabulary);
  take(how, "lower_case", out.lower_case);
  take(how, "encoding", encoding);
  take(how, "sequence_length", out.sequence_length);
  take(how, "seed", out.seed);
  take(how, "corpus_lines", out.corpus_lines);
  take(how, "max_rows", out.max_rows);
  take(how, "threads", out.threads);
  out.encoding = text_encoding(encoding);
  return out;
}

}  // namespace

void bind_text(nb::module_& m) {
  nb::class_<WordPiece>(m, "WordPiece", "A WordPiece vocabulary; see datasets/word_piece.h.")
      .def(nb::init<const std::string&, bool>(), nb::arg("path"), nb::arg("lower_case") = true)
      .def_prop_ro("size", &WordPiece::size)
      .def(
          "encode",
          [](const WordPiece& words, const nb::bytes& text, const std::string& encoding) {
            std::vector<std::int32_t> ids;
            words.encode({text.c_str(), text.size()}, text_encoding(encoding), text.size(), ids);
            return ids;
          },
          nb::arg("text"), nb::arg("encoding") = "utf-8", "Returns the ids of a text's tokens.");
  m.def("bert_text_loader", [](const nb::dict& how, const LoaderOptions& options) {
    BertTextOptions source = options_of(how);
    const nb::gil_scoped_release release;
    return std::make_unique<Loader>(bert_text_source(source), options);
  });
  m.def(
      "bert_text_about",
      [](const nb::dict& how) {
        const BertTextOptions options = options_of(how);
        std::unique_ptr<RowSource> rows;
        std::int64_t words = 0;
        {
          const nb::gil_scoped_release release;
          rows = bert_text_source(options);
          words = WordPiece(options.vocabulary, options.lower_case).size();
        }
        std::int64_t tokens = options.sequence_length;
        nb::dict out;
        out["rows"] = rows->rows();
        out["vocabulary_size"] = words;
        out["most_masked"] = most_masked(tokens);
        return out;
      },
      "Returns the rows of an epoch, the tokens of the vocabulary, and the most masked tokens of a "
      "row.");
  m.def("bert_text_entropy", [](const nb::dict& how, std::int64_t most_rows) {
    const BertTextOptions options = options_of(how);
    const nb::gil_scoped_release release;
    const std::int64_t words = WordPiece(options.vocabulary, options.lower_case).size();
    return bert_target_entropy(*bert_text_source(options), words, most_rows);
  });
  m.def("count_words", [](const nb::dict& how) {
    const BertTextOptions options = options_of(how);
    std::vector<std::pair<std::string, std::int64_t>> counts;
    {
      const nb::gil_scoped_release release;
      counts = count_words(options);
    }
    return counts;
  });
}

}  // namespace hetu
