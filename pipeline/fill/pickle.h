// Python's pickles of plain data, read without running what they say: lists, tuples, dictionaries
// with texts for keys, texts, numbers, booleans and None. For the recorded timelines of others.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// Whether the bytes begin as a pickle of protocol 2 or newer does.
bool is_pickle(std::string_view bytes);

/// The value as JSON; tuples are arrays, what is no UTF-8 in a text becomes U+FFFD. Throws Io,
/// naming `origin` and the byte: what is no plain data (a class, say), a list or dictionary that
/// stands in two places, an end too early.
std::string json_of_pickle(std::string_view bytes, const std::string& origin);

/// Lists of lists of lists of texts, as a pickle of protocol 2.
std::string pickle_of(const std::vector<std::vector<std::vector<std::string>>>& lists);

}  // namespace hetu
