// The order in which the pushes of a round are added.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

namespace hetu::ps::server {

/// Adds neighbours in pairs until one term is left, the first: ((0 + 1) + (2 + 3)) + 4. If each
/// term is the sum of 1, 2, 4, 8, … micro-batches, the result has the bits of the tree that workers
/// use (executor/compile/sum_tree.h). `add(to, from)` adds a term to another. Terms that have been
/// added are released.
template <class Term, class Add>
void add_in_pairs(std::vector<Term>& terms, const Add& add) {
  for (std::size_t step = 1; step < terms.size(); step *= 2) {
    for (std::size_t i = 0; i + step < terms.size(); i += 2 * step)
      add(terms[i], std::exchange(terms[i + step], Term()));
  }
}

}  // namespace hetu::ps::server
