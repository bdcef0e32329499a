#include "tests/emulator/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tests/emulator/accesses.h"
#include "tests/emulator/forms.h"
#include "tests/emulator/interpreter.h"
#include "tests/emulator/lane_work.h"
#include "tests/emulator/matrices.h"
#include "tests/emulator/names.h"

namespace hetu::emulator {
namespace {

class Maker : Names {
 public:
  Maker(const std::string& ptx, const Text& text, const Globals& globals)
      : Names(text, globals), ptx_(ptx) {}

  Program make(const Function& entry) {
    made_.name = entry.name;
    made_.most_threads = entry.most_threads;
    put_parameters(entry);
    for (const Variable& v : text_.variables)
      if (v.space == "shared" && !v.dynamic) put_shared(v);
    function(entry);
    for (std::size_t i = 0; i < called_.size(); ++i) function(*called_[i]);  // called_ grows
    for (const auto& [instruction, name] : calls_)
      made_.code[static_cast<std::size_t>(instruction)].target = begins_.at(name);
    end_shared();
    return std::move(made_);
  }

 private:
  void function(const Function& f) {
    const int begins = static_cast<int>(made_.code.size());
    begins_[f.name] = begins;
    if (!f.entry)  // functions may use the same names
      for (const auto* of : {&f.parameters, &f.results})
        for (const Variable& v : *of) local_[v.name] = local_.at(f.name + v.name);
    scopes_.assign(1, {});
    std::map<std::string, int> labels;
    std::vector<std::pair<int, std::string>> jumps;
    for (const Statement& s : read_body(ptx_, f)) {
      switch (s.kind) {
        case Statement::Kind::Open:
          scopes_.emplace_back();
          break;
        case Statement::Kind::Close:
          scopes_.pop_back();
          break;
        case Statement::Kind::Label:
          labels[s.opcode] = static_cast<int>(made_.code.size());
          break;
        case Statement::Kind::Registers:
          for (const Registers& r : s.registers) declare(r);
          break;
        case Statement::Kind::Variable:
          for (const Variable& v : s.variables)
            if (v.space == "shared")
              put_shared(v);
            else
              put_local(v);
          break;
        case Statement::Kind::Instruction:
          instruction(s, jumps);
          break;
      }
    }
    Statement end;
    end.opcode = "ret";
    instruction(end, jumps);
    for (const auto& [at, label] : jumps) {
      if (labels.count(label) == 0) throw Problem("PTX: no label " + label);
      made_.code[static_cast<std::size_t>(at)].target = labels[label];
    }
  }

  Instruction& add(const Statement& s, Instruction made) {
    made.line = s.line;
    if (!s.guard.empty()) {
      made.guard = operand(s, s.guard, 1);
      made.guard_negated = s.guard_negated;
    }
    std::string words = s.opcode;
    for (const std::string& one : s.operands) words += (one == s.operands[0] ? " " : ", ") + one;
    made_.text.push_back(words);
    made_.code.push_back(std::move(made));
    return made_.code.back();
  }

  void instruction(const Statement& s, std::vector<std::pair<int, std::string>>& jumps) {
    const std::vector<std::string> parts = parts_of(s.opcode);
    const std::string& what = parts[0];
    Instruction made;
    if (what == "bra") {
      made.flow = Flow::Branch;
      jumps.emplace_back(static_cast<int>(made_.code.size()), s.operands.at(0));
    } else if (what == "ret" || what == "exit") {
      made.flow = Flow::Return;
    } else if (what == "call") {
      return call(s);
    } else if (what == "bar" && parts[1] == "warp") {
      made.flow = Flow::Collective;
      made.meaning = &meet;
      made.members = operand(s, s.operands.at(0), 4);
    } else if (what == "bar" || what == "barrier") {
      if (s.operands != std::vector<std::string>{"0"})
        bad(s, "no barrier but that of all is known");
      made.flow = Flow::Barrier;
    } else if (what == "membar" || what == "fence") {
      return;  // threads run one after another
    } else if (what == "trap") {
      made.meaning = &trap;
    } else if (accesses(s, parts, made) || collective(s, parts, made)) {
    } else if (what == "mov" && s.operands.size() == 2) {
      move(s, parts, made);
    } else {
      compute(s, made);
    }
    add(s, std::move(made));
  }

  void compute(const Statement& s, Instruction& made) {
    const Form* const form = find_form(s.opcode);
    if (form == nullptr) bad(s, "this instruction is not known to the emulator");
    if (s.operands.size() != form->bytes.size()) bad(s, "so many operands are not known");
    for (std::size_t i = 0; i < s.operands.size(); ++i) {
      made.operands.push_back(operand(s, s.operands[i], form->bytes[i]));
      if (made.operands.back().bytes < form->bytes[i] ||
          (i == 0 && made.operands.back().bytes != form->bytes[i]) ||
          (made.operands.back().bytes != form->bytes[i] && !s.opcode.starts_with("cvt")))
        bad(s, fmt::format("operand {} has {} bytes for {}", i, made.operands.back().bytes,
                           form->bytes[i]));
      if (made.operands.back().bytes != form->bytes[i])
        made.operands.back() = low_bytes(s, made.operands.back(), form->bytes[i]);
    }
    made.meaning = form->meaning;
  }

  /// Returns a copy of a wider register's lower bytes.
  Operand low_bytes(const Statement& s, const Operand& of, int bytes) {
    Instruction cut;
    cut.operands = {place(bytes), of};
    cut.meaning = &cut_off;
    const Operand made = cut.operands[0];
    add(s, std::move(cut));
    return made;
  }

  void move(const Statement& s, const std::vector<std::string>& parts, Instruction& made) {
    const int bytes = type_bytes(parts.back());
    const auto element = [&](const std::string& text) {
      return text.front() == '{'
                 ? bytes / static_cast<int>(split_operands(text.substr(1, text.size() - 2)).size())
                 : bytes;
    };
    list(s, s.operands[0], element(s.operands[0]), made);
    made.elements = static_cast<int>(made.operands.size());  // number of results
    list(s, s.operands[1], element(s.operands[1]), made);
    made.meaning = made.operands.size() == 2 ? move_of(bytes) : &regroup;
  }

  bool accesses(const Statement& s, const std::vector<std::string>& parts, Instruction& made) {
    const std::string& what = parts[0];
    const bool loads = what == "ld" || what == "ldu", stores = what == "st";
    const bool changes = what == "atom" || what == "red";
    if (what == "cp" && parts.at(1) == "async") return bring(s, parts, made);
    if (what == "cvta") return convert_address(s, parts, made);
    if (!loads && !stores && !changes) return false;
    for (const std::string& part : parts) {
      if (part == "global" || part == "const") made.space = Space::Global;
      if (part == "shared") made.space = Space::Shared;
      if (part == "local") made.space = Space::Local;
      if (part == "param") made.space = Space::Parameter;
      if (part == "v2" || part == "v4") made.elements = part[1] - '0';
    }
    made.element_bytes = type_bytes(parts.back());
    made.signs = parts.back()[0] == 's';
    if (stores) {
      address(s, s.operands.at(0), made);
      list(s, s.operands.at(1), made.element_bytes, made);
      made.meaning = &store;
    } else if (loads) {
      list(s, s.operands.at(0), made.element_bytes, made);
      address(s, s.operands.at(1), made);
      made.meaning = &load;
    } else {
      if (what == "atom") made.operands.push_back(operand(s, s.operands.at(0), made.element_bytes));
      if (what == "red") made.operands.push_back(place(made.element_bytes));
      const std::size_t first = what == "atom" ? 1 : 0;
      address(s, s.operands.at(first), made);
      for (std::size_t i = first + 1; i < s.operands.size(); ++i)
        made.operands.push_back(operand(s, s.operands[i], made.element_bytes));
      made.meaning = change_of(parts);
      if (made.meaning == nullptr) bad(s, "this instruction is not known to the emulator");
    }
    return true;
  }

  bool bring(const Statement& s, const std::vector<std::string>& parts, Instruction& made) {
    if (parts.at(2) == "wait_all") {
      made.meaning = &land;
      return true;
    }
    if (parts.at(2) != "ca" && parts.at(2) != "cg")
      bad(s, "this instruction is not known to the emulator");
    for (std::size_t i = 0; i < 2; ++i) {
      Instruction one;
      address(s, s.operands.at(i), one);
      if (one.offset != 0) bad(s, "an offset is not known here");
      made.operands.push_back(one.operands[0]);
    }
    made.element_bytes = std::atoi(s.operands.at(2).c_str());
    made.operands.push_back(operand(s, s.operands.size() > 3 ? s.operands[3] : s.operands[2], 4));
    made.meaning = &send;
    return true;
  }

  bool convert_address(const Statement& s, const std::vector<std::string>& parts,
                       Instruction& made) {
    const bool to = parts.at(1) == "to";
    const std::string& space = parts.at(to ? 2 : 1);
    made.space = space == "shared"  ? Space::Shared
                 : space == "local" ? Space::Local
                 : space == "param" ? Space::Parameter
                                    : Space::Global;
    made.variant = to ? 1 : 0;
    made.operands = {operand(s, s.operands.at(0), 8), operand(s, s.operands.at(1), 8)};
    made.meaning = &change_space;
    return true;
  }

  bool collective(const Statement& s, const std::vector<std::string>& parts, Instruction& made) {
    const std::string& what = parts[0];
    if (what == "shfl" || what == "vote") {
      made.flow = Flow::Collective;
      made.meaning = what == "shfl" ? exchange_of(parts.at(2)) : vote_of(parts.at(2));
      if (made.meaning == nullptr) bad(s, "this instruction is not known to the emulator");
      const bool ballots = what == "vote";
      list(s, s.operands.at(0), ballots && parts.back() == "pred" ? 1 : 4, made);
      if (!ballots && made.operands.size() == 1) made.operands.push_back(place(1));
      for (std::size_t i = 1; i + 1 < s.operands.size(); ++i)
        made.operands.push_back(operand(s, s.operands[i], ballots ? 1 : 4));
      made.members = operand(s, s.operands.back(), 4);
      return true;
    }
    if (what != "ldmatrix" && what != "mma" && what != "wmma") return false;
    made.flow = Flow::Collective;
    made.meaning = matrix_meaning(s.opcode, made.variant);
    if (made.meaning == nullptr) bad(s, "this instruction is not known to the emulator");
    for (const std::string& part : parts)
      if (part == "shared") made.space = Space::Shared;
    for (const std::string& text : s.operands)
      if (text.front() == '[')
        address(s, text, made);
      else
        list(s, text, 4, made);
    return true;
  }

  /// Translates `call (result), name, (parameters)`: arguments are copied to the function's own
  /// memory, and results back.
  void call(const Statement& s) {
    const bool results = s.operands.at(0).front() == '(';
    const std::string& name = s.operands.at(results ? 1 : 0);
    const Function* to = nullptr;
    for (const Function& f : text_.functions)
      if (f.name == name) to = &f;
    if (to == nullptr) bad(s, "no function of that name");
    if (std::find(called_.begin(), called_.end(), to) == called_.end()) {
      called_.push_back(to);
      for (const auto* of : {&to->parameters, &to->results})
        for (const Variable& v : *of) put_local(v, name);
    }
    const auto copy = [&](const std::string& list_of, const std::vector<Variable>& theirs,
                          bool in) {
      const std::vector<std::string> mine =
          split_operands(std::string_view(list_of).substr(1, list_of.size() - 2));
      if (mine.size() != theirs.size()) bad(s, "so many values are not known");
      for (std::size_t i = 0; i < mine.size(); ++i) {
        Instruction one;
        one.meaning = &copy_local;
        const std::size_t there = local_.at(name + theirs[i].name), here = local_.at(mine[i]);
        one.offset = static_cast<std::int64_t>(in ? there : here);
        one.variant = static_cast<int>(in ? here : there);
        one.element_bytes = static_cast<int>(theirs[i].bytes);
        add(s, std::move(one));
      }
    };
    if (s.operands.back().front() == '(' && s.operands.size() > (results ? 2U : 1U))
      copy(s.operands.back(), to->parameters, true);
    Instruction one;
    one.flow = Flow::Call;
    calls_.emplace_back(static_cast<int>(made_.code.size()), name);
    add(s, std::move(one));
    if (results) copy(s.operands[0], to->results, false);
  }

  const std::string& ptx_;
  std::vector<const Function*> called_;
  std::map<std::string, int> begins_;
  std::vector<std::pair<int, std::string>> calls_;
};

}  // namespace

Program make_program(const std::string& ptx, const Text& text, const Function& entry,
                     const Globals& globals) {
  return Maker(ptx, text, globals).make(entry);
}

}  // namespace hetu::emulator
