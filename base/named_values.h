// Values by name that a public function returns, such as the outputs of a Predictor.
#pragma once
#include <map>
#include <string>
#include <utility>

#include "base/error.h"

namespace hetu {

/// Values by name. A std::map, except that at() reports an unknown name in words.
template <class T>
class NamedValues : public std::map<std::string, T> {
 public:
  using std::map<std::string, T>::map;

  /// Returns the value of a name. Throws InvalidArgument, listing the names, if it is unknown.
  const T& at(const std::string& name) const {
    const auto found = this->find(name);
    if (found != this->end()) return found->second;
    std::string known;
    for (const auto& entry : *this) known += (known.empty() ? "" : ", ") + entry.first;
    fail(Code::InvalidArgument, "no result is called '{}'; the results are: {}", name, known);
  }
  T& at(const std::string& name) { return const_cast<T&>(std::as_const(*this).at(name)); }
};

}  // namespace hetu
