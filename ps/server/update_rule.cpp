#include "ps/server/update_rule.h"

#include <fmt/format.h>

#include <cmath>

namespace hetu::ps {

namespace {

std::string fault_of_spans(const std::vector<Span>& spans, std::int64_t elements) {
  if (spans.size() > kMostSpans) {
    return fmt::format("its optimizer leaves {} ranges undecayed; at most {} are allowed",
                       spans.size(), kMostSpans);
  }
  std::int64_t end = 0;
  for (const Span& span : spans) {
    if (span.begin < end || span.end <= span.begin || span.end > elements) {
      return fmt::format(
          "its optimizer leaves elements {} to {} undecayed; ranges must ascend from {} to {}",
          span.begin, span.end, end, elements);
    }
    end = span.end;
  }
  return "";
}

}  // namespace

std::string describe(const UpdateRule& rule) {
  std::string text = rule.optimizer ? optimizer_name(rule.optimizer->settings.kind) : "adds";
  if (rule.rule == Rule::RoundMean) text += ", rounds by mean";
  if (rule.rule == Rule::RoundSum) text += ", rounds by sum";
  return text;
}

std::string fault_of(const UpdateRule& rule, std::int64_t elements) {
  if (!rule.optimizer) return "";
  const Optimizer& o = rule.optimizer->settings;
  const char* name = optimizer_name(o.kind);
  if (!is_elementwise(o.kind)) {
    return fmt::format(
        "{} needs whole parameters, but a server holds only parts; choose another optimizer", name);
  }
  const auto wrong = [&](const char* setting, double value, const char* right) {
    return fmt::format("{}'s {} is {:g}; it must be {}", name, setting, value, right);
  };
  const auto is_share = [](double x) { return x >= 0 && x < 1; };
  const auto is_amount = [](double x) { return std::isfinite(x) && x >= 0; };
  if (!is_share(o.momentum)) return wrong("momentum", o.momentum, "at least 0 and below 1");
  if (!is_share(o.beta1)) return wrong("beta1", o.beta1, "at least 0 and below 1");
  if (!is_share(o.beta2)) return wrong("beta2", o.beta2, "at least 0 and below 1");
  if (!is_amount(o.epsilon)) return wrong("epsilon", o.epsilon, "finite, at least 0");
  if (!is_amount(o.l2)) return wrong("l2", o.l2, "finite, at least 0");
  if (!is_amount(o.weight_decay)) {
    return wrong("weight_decay", o.weight_decay, "finite, at least 0");
  }
  return fault_of_spans(rule.optimizer->undecayed, elements);
}

}  // namespace hetu::ps
