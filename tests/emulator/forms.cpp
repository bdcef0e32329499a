#include "tests/emulator/forms.h"

namespace hetu::emulator {
namespace {

Forms all_forms() {
  Forms made;
  define_integers(made);
  define_floats(made);
  define_conversions(made);
  return made;
}

}  // namespace

const Form* find_form(const std::string& opcode) {
  static const Forms forms = all_forms();
  const auto found = forms.find(opcode);
  return found == forms.end() ? nullptr : &found->second;
}

}  // namespace hetu::emulator
