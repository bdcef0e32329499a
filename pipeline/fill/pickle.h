// Reader of Python pickles of plain data, which doesn't execute them. It supports lists, tuples,
// dictionaries with string keys, strings, numbers, booleans and None. Used for recorded timelines
// of other programs.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// Returns true if the bytes begin like a pickle of protocol 2 or newer.
bool is_pickle(std::string_view bytes);

/// Converts a pickle to JSON. Tuples become arrays, and bytes that are not UTF-8 become U+FFFD.
/// Throws Io, with `origin` and the byte, for data that is not plain (such as a class). Also throws
/// Io for a list or dictionary that is referenced twice, and for a truncated file.
std::string json_of_pickle(std::string_view bytes, const std::string& origin);

/// Encodes lists of lists of lists of strings as a pickle of protocol 2.
std::string pickle_of(const std::vector<std::vector<std::vector<std::string>>>& lists);

}  // namespace hetu
